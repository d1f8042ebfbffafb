"""What the compiler makes of the LoRA kernels for a GPU: read in PTX, since a race there shows only now and then."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from lorikeet_testing.compiled import compiler_process

from lora_kernels.kernel_variants import SHRINK, KernelVariant

DTYPES = ("bfloat16", pytest.param("float32", marks=pytest.mark.long))


@cache
def compiled(dtype: str) -> dict[str, dict[str, Any]]:
    """By variant and kernel: starting the compiler's process takes longer than to compile one of them."""
    kernels: dict[str, dict[str, Any]] = json.loads(compiler_process("compiled_lora", dtype))[dtype]
    return kernels


def ptx_of(variant: KernelVariant, dtype: str, of: str = "") -> dict[str, str]:
    return compiled(dtype)[variant.name + of]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_nothing_is_read_ahead_of_the_kernel_before(variant: KernelVariant, dtype: str) -> None:
    """The loop's pipeline must not fetch, before the wait, what the kernel before is still writing."""
    for name, ptx in ptx_of(variant, dtype).items():
        ahead, found, _ = ptx.partition("cp.async")
        if variant is KernelVariant.PREFILL:
            assert "griddepcontrol.wait" in ahead or not found, name
        else:
            assert not found, f"{name} has a pipeline, whose first loads come before the wait"
        assert "griddepcontrol.wait" in ptx, name


@pytest.mark.parametrize("variant", [KernelVariant.GEMV_1, KernelVariant.GEMV_2], ids=lambda f: f.name)
def test_a_shrink_keeps_to_its_registers(variant: KernelVariant) -> None:
    assert f".maxnreg {SHRINK[variant].registers}" in ptx_of(variant, "bfloat16")["_shrink_gemv_kernel"]


def test_a_shrink_over_wide_pool_rows_keeps_no_registers_in_memory() -> None:
    """A block of columns as wide as a pool row of 2,048 elements had too many sums at a time."""
    assert compiled("bfloat16")["stacks"] == {"Gemma-3-12B": 0}


@pytest.mark.parametrize("variant", [KernelVariant.GEMV_1, KernelVariant.GROUPED], ids=lambda f: f.name)
def test_weights_are_read_sixteen_bytes_at_a_time(variant: KernelVariant) -> None:
    kernels = ptx_of(variant, "bfloat16") | {
        f"{name} of a gated delta layer": ptx
        for name, ptx in ptx_of(variant, "bfloat16", " of a gated delta layer").items()
    }
    assert len(kernels) == 2 * len(ptx_of(variant, "bfloat16"))
    for name, ptx in kernels.items():
        assert "ld.global.v4" in ptx, name
        scalar = ptx.count("ld.global.b16") + ptx.count("ld.global.u16")
        assert scalar <= 4, f"{name} reads {scalar} elements one by one"  # a few shrunk activations are


@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_rank_512_takes_the_same_kernels(variant: KernelVariant) -> None:
    """It compiles, and no kernel's tiles are larger for it: programs walk more rows, or there are more of them."""

    def products(kernels: dict[str, str]) -> dict[str, int]:
        return {name: ptx.count("mma.sync") for name, ptx in kernels.items()}

    assert products(compiled("bfloat16")[f"{variant.name} of rank 512"]) == products(ptx_of(variant, "bfloat16"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_epilogue_waits_for_all_of_the_kernel_before(dtype: str) -> None:
    """It compiles, and has no part in launches that overlap: what it reads is complete when it starts."""
    (ptx,) = compiled(dtype)["epilogue"].values()
    assert "griddepcontrol" not in ptx
