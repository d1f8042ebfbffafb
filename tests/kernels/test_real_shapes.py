"""Launch parameters that follow from a width, for the widths of models that people serve: few are powers of two."""

from __future__ import annotations

import pytest
import torch
from lorikeet_testing.compiled import compiler_process
from lorikeet_testing.compiled_shapes import launches
from lorikeet_testing.model_shapes import SHAPES, family_of

from lora_kernels import reference
from lora_kernels.elementwise import add_norm

GPU = torch.cuda.is_available()
WIDTHS = sorted({shape.hidden for shape in SHAPES.values()})


def one_of_each_block() -> list[str]:
    """Names of models, one for each size of a norm's block, and for widths that are powers of two and that are not."""
    kinds = {
        (max(shape.hidden - 1, 1).bit_length(), shape.hidden.bit_count() == 1): name for name, shape in SHAPES.items()
    }
    return list(kinds.values())


ONE_OF_EACH = {family_of(name): name for name in SHAPES}.values()


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


@pytest.mark.parametrize("part", ["everything", "invariant"])
@pytest.mark.parametrize("model", SHAPES)
def test_every_launch_is_one_that_the_gpu_takes(model: str, part: str) -> None:
    for launch in launches(model, part, torch.bfloat16):
        assert is_power_of_two(launch.options.get("num_warps", 4)), launch.name
        assert launch.options.get("num_warps", 4) <= 32, launch.name
        blocks = {name: value for name, value in launch.arguments.items() if name.startswith("BLOCK")}
        assert all(map(is_power_of_two, blocks.values())), (launch.name, blocks)


def test_norms_compile_for_every_block() -> None:
    models = one_of_each_block()
    *faults, count = compiler_process("compiled_shapes", "bfloat16", "norms", *models).splitlines()
    assert not faults
    assert int(count) == 3 * len(models) + 1  # sums over ranks have one kernel for all widths


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_what_does_not_depend_on_the_batch_compiles(dtype: str) -> None:
    *faults, _count = compiler_process("compiled_shapes", dtype, "invariant", *ONE_OF_EACH, timeout=600).splitlines()
    assert not faults


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_families_differ_in_compiles(dtype: str) -> None:
    *faults, _count = compiler_process("compiled_shapes", dtype, "family", *ONE_OF_EACH, timeout=600).splitlines()
    assert not faults


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_everything_compiles_for_every_model(dtype: str) -> None:
    *faults, _count = compiler_process("compiled_shapes", dtype, "everything", *SHAPES, timeout=3600).splitlines()
    assert not faults


@pytest.mark.parametrize("width", WIDTHS if GPU else [w for w in WIDTHS if not is_power_of_two(w)])
def test_norms_of_every_width(width: int) -> None:
    dtype = torch.bfloat16 if GPU else torch.float32
    device = "cuda" if GPU else "cpu"
    x, residual = (torch.randn(3, width, device=device).to(dtype) for _ in range(2))
    weight, out = torch.randn(width, device=device).to(dtype), torch.full_like(x, float("nan"))
    added = residual + x
    add_norm(x, residual, weight, 1e-5, out)
    torch.testing.assert_close(residual, added)
    torch.testing.assert_close(out, reference.rms_norm(added, weight, 1e-5))
