"""What the compiler makes of the gated delta kernels for a GPU, read in PTX."""

from __future__ import annotations

import json

from lorikeet_testing.compiled import compiler_process


def test_states_are_read_sixteen_bytes_at_a_time_and_nothing_spills() -> None:
    compiled: dict[str, tuple[str, int]] = json.loads(compiler_process("compiled_delta"))
    kernels = {name: ptx for name, (ptx, _) in compiled.items()}
    assert len(kernels) == 9
    of_states = [
        name for name in kernels if name.startswith(("gated_delta._decode_kernel", "gated_delta._scan_kernel"))
    ]
    assert len(of_states) == 3
    for name in of_states:
        assert "ld.global.v4" in kernels[name] and "st.global.v4" in kernels[name], name
    assert "mma" in kernels["gated_delta._chunk_kernel"] and "mma" in kernels["gated_delta._scan_kernel"]
    for name, ptx in kernels.items():
        assert ".local" not in ptx and compiled[name][1] == 0, f"{name} keeps registers in memory"
