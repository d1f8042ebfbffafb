"""What the compiler makes of attention on Hopper GPUs, read in PTX: Triton's interpreter has no Gluon."""

from __future__ import annotations

import json

from lorikeet_testing.compiled import compiler_process

# Most bytes that prompts' kernel keeps on its stack with heads of 128; with heads of 64 it has no stack.
STACK = 88


def test_prompts_on_hopper_use_the_copy_engine_and_matrix_instructions_of_warpgroups_and_little_spills() -> None:
    kernels: dict[str, tuple[str, int]] = json.loads(compiler_process("compiled_attention"))
    for name, (ptx, stack) in kernels.items():
        assert ".local" not in ptx, name
        assert stack <= (STACK if name == "Llama-3.1-8B" else 0), f"{name} keeps registers in memory"
        if name.startswith("decode"):
            continue
        assert "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16" in ptx, name
        assert ptx.count("cp.async.bulk.tensor.3d") == 2 * 8 * (2 if name == "Llama-3.1-8B" else 1), "pages and panels"
        assert ptx.count("setmaxnreg") >= 4, "warps that copy give registers to those that multiply"
