"""Compiles the LoRA kernels for a GPU as their wrappers launch them, without having one.

Run as a program: it needs the real compiler, while the tests' process has Triton's interpreter.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from lora_kernels import epilogue, expand, shrink
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.tables import Group, SlotTables
from lora_kernels.work_items import Span, token_tiles

from .compiled import Launch, compiling, stack_bytes

KV_DIM, ROWS_PER_PAGE = 1024, 32
GROUP = Group("qkv", 0, 4096, (4096, 1024, 1024))
# Targets of a gated delta layer of Qwen3.5-9B: queries, keys and values; z; both gates.
DELTA_GROUP = Group("delta_in", 7, 4096, (8192, 4096, 32, 32))


def ptx_of(
    variant: KernelVariant, tokens: int = 8, dtype: torch.dtype = torch.bfloat16, rank: int = 64, group: Group = GROUP
) -> dict[str, str]:
    """PTX of every kernel that the variant launches, by name."""
    ptx: dict[str, str] = {}

    def take(launch: Launch) -> None:
        ptx[launch.name] = launch.compile().asm["ptx"]

    pool = torch.zeros(4, ROWS_PER_PAGE * KV_DIM, dtype=dtype)
    x = torch.zeros(tokens, group.in_features, dtype=dtype)
    out = torch.zeros(tokens, sum(group.out_features), dtype=dtype)
    shape = LoraShape(variant, rank)
    h = shape.workspace(tokens, group.in_features, len(group.out_features), "cpu", x.dtype)
    where: Any = (token_tiles([Span(1, 0, tokens, rank)], variant), SlotTables(2, 1, 3, "cpu"), 0, group, KV_DIM, shape)
    with compiling(take):
        shrink.lora_shrink(x, pool, h, *where)
        expand.lora_expand(h, pool, out, *where, None)
    return ptx


def epilogue_ptx(dtype: torch.dtype) -> dict[str, str]:
    ptx: dict[str, str] = {}

    def take(launch: Launch) -> None:
        ptx[launch.name] = launch.compile().asm["ptx"]

    pool = torch.zeros(4, ROWS_PER_PAGE * KV_DIM, dtype=dtype)
    out = torch.zeros(8, sum(GROUP.out_features), dtype=dtype)
    tiles = token_tiles([Span(1, 0, 8, 8)], KernelVariant.GROUPED)
    with compiling(take):
        epilogue.lora_epilogue(out, pool, tiles, SlotTables(2, 1, 3, "cpu"), 0, GROUP, KV_DIM)
    return ptx


def shrink_stack(kv_dim: int) -> int:
    """Return the bytes of its stack of the shrink of a token, over pool rows of ``kv_dim`` elements."""
    recorded: list[Launch] = []
    tokens, shape = 8, LoraShape(KernelVariant.GEMV_1, 64)
    pool, x = (torch.zeros(*size, dtype=torch.bfloat16) for size in ((4, 2 * kv_dim), (tokens, GROUP.in_features)))
    h = shape.workspace(tokens, GROUP.in_features, len(GROUP.out_features), "cpu", x.dtype)
    tiles = token_tiles([Span(1, 0, tokens, 64)], shape.variant)
    with compiling(recorded.append):
        shrink.lora_shrink(x, pool, h, tiles, SlotTables(2, 1, 3, "cpu"), 0, GROUP, kv_dim, shape)
    return stack_bytes(recorded[0].compile())


if __name__ == "__main__":
    types = {name: getattr(torch, name) for name in sys.argv[1:]}
    json.dump(
        {
            name: {"epilogue": epilogue_ptx(dtype), "stacks": {"Gemma-3-12B": shrink_stack(2048)}}
            | {variant.name: ptx_of(variant, dtype=dtype) for variant in KernelVariant}
            | {
                f"{variant.name} of a gated delta layer": ptx_of(variant, dtype=dtype, group=DELTA_GROUP)
                for variant in (KernelVariant.GEMV_1, KernelVariant.GROUPED)
                if dtype is torch.bfloat16
            }
            | {
                f"{variant.name} of rank 512": ptx_of(variant, dtype=dtype, rank=512)
                for variant in KernelVariant
                if dtype is torch.bfloat16
            }
            for name, dtype in types.items()
        },
        sys.stdout,
    )
