"""What the compiler makes of the experts' kernels for a GPU, read in PTX."""

from __future__ import annotations

import json

import pytest
from lorikeet_testing.compiled import compiler_process


@pytest.mark.parametrize(
    ("which", "count"), [((), 44), pytest.param(("every",), 62, marks=pytest.mark.long)], ids=["largest", "every"]
)
def test_products_use_matrix_instructions_and_nothing_spills(which: tuple[str, ...], count: int) -> None:
    kernels: dict[str, str] = json.loads(compiler_process("compiled_experts", *which))
    assert len(kernels) == count
    for name, ptx in kernels.items():
        assert ".local" not in ptx, f"{name} keeps registers in memory"
        if "in part" not in name:
            assert "atom.global" not in ptx, name
        if name.startswith(("_gate_up", "_down", "_shrink_blocks")):
            assert "mma" in ptx, name
        if name.startswith(("_gate_up", "_down")):
            assert "cp.async" in ptx, name
        if name.endswith("of FP8"):
            assert "wgmma.mma_async.sync.aligned.m64n" in ptx and ".f32.e4m3.e4m3" in ptx, name
        if name.endswith("of MXFP4"):  # whose smallest value is none that is normal before it is multiplied
            assert "mul.bf16x2" in ptx, "two values at a time"
            assert "mul.ftz" not in ptx and "wgmma.mma_async.sync.aligned.m64n" in ptx, name
    counting = [name for name, ptx in kernels.items() if "atom.global.gpu.relaxed.add" in ptx]
    assert len(counting) == 2 and all(name.startswith("_shrink") for name in counting)
    for kind in ("_gate_up_kernel", "_down_kernel", "_shrink_blocks_kernel"):  # rows of host memory as the pool's
        copies = [{name.endswith("in part"): ptx.count("cp.async.c")} for name, ptx in kernels.items() if kind in name]
        assert {each[True] for each in copies if True in each} <= {each[False] for each in copies if False in each}
