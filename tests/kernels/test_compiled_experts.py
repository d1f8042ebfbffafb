"""What the compiler makes of the experts' kernels for a GPU, read in PTX."""

from __future__ import annotations

import json

from lorikeet_testing.compiled import compiler_process


def test_products_use_matrix_instructions_and_nothing_spills() -> None:
    kernels: dict[str, str] = json.loads(compiler_process("compiled_experts"))
    assert len(kernels) == 33
    for name, ptx in kernels.items():
        assert ".local" not in ptx, f"{name} keeps registers in memory"
        if name.startswith(("_gate_up", "_down", "_shrink_blocks")):
            assert "mma" in ptx, name
        if name.startswith(("_gate_up", "_down")):
            assert "cp.async" in ptx, name
