"""What the compiler makes of prompts' attention on Hopper GPUs, read in PTX: Triton's interpreter has no Gluon."""

from __future__ import annotations

import json

from lorikeet_testing.compiled import compiler_process


def test_prompts_on_hopper_use_the_copy_engine_and_matrix_instructions_of_warpgroups() -> None:
    kernels: dict[str, str] = json.loads(compiler_process("compiled_attention"))
    for name, ptx in kernels.items():
        assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in ptx, name
        assert ptx.count("cp.async.bulk.tensor.3d") == 2 * 8 * (2 if name == "Llama-3.1-8B" else 1), "pages and panels"
        assert ptx.count("setmaxnreg") >= 4, "warps that copy give registers to those that multiply"
        assert ".local" not in ptx, name
