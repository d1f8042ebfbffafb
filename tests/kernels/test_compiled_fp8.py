"""What the compiler makes of products of few tokens, and of the FP8 kernels, for a GPU."""

from __future__ import annotations

import json

import pytest
from lorikeet_testing.compiled import compiler_process
from lorikeet_testing.model_shapes import SHAPES


def test_products_use_tensor_cores_and_wait_for_the_kernel_before() -> None:
    kernels: dict[str, str] = json.loads(compiler_process("compiled_fp8"))
    assert len(kernels) == 7
    for name, ptx in kernels.items():
        before, waits, after = ptx.partition("griddepcontrol.wait")
        assert waits, name
        if name.startswith("_fp8_matmul"):
            assert "wgmma.mma_async.sync.aligned.m64n" in after and ".f32.e4m3.e4m3" in after, name
            assert "cp.async" not in before and "cp.async.cg" in after, name
        elif name.startswith("_hopper_fp8_wide"):
            assert "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3" in ptx, name
            first, _wait, rest = ptx[ptx.index("cp.async.bulk.tensor.2d") :].partition("griddepcontrol.wait")
            assert first.count("cp.async.bulk.tensor.2d") == 1, "weights are copied before the wait"
            assert rest.count("cp.async.bulk.tensor.2d") == 3 + 4, "activations after it"
            assert "st.global" not in before and ".local" not in ptx, name
        elif name.startswith("_hopper_fp8"):
            assert "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3" in ptx, name
            first, _wait, rest = ptx[ptx.index("cp.async.bulk.tensor.2d") :].partition("griddepcontrol.wait")
            assert first.count("cp.async.bulk.tensor.2d") == 2, "weights are copied before the wait"
            assert rest.count("cp.async.bulk.tensor.2d") == 2 + 4, "activations after it"
            assert "st.global" not in before and ".local" not in ptx, name
        elif name.startswith("_skinny_linear"):
            assert "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16" in after, name
            assert "cp.async" not in before and "cp.async.cg" in after, name
        else:
            assert "cvt.rn.satfinite.e4m3x2.f32" in after, name
            assert "st.global" not in before, name


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ["fp8", "fp8 blocks", "fp8 kv"])
def test_everything_compiles_for_every_model(part: str) -> None:
    *faults, _count = compiler_process("compiled_shapes", "bfloat16", part, *SHAPES, timeout=1800).splitlines()
    assert not faults
