"""Compiles attention's kernels for Hopper GPUs, and prints PTX and stacks as JSON: prompts' and decode's by shape."""

from __future__ import annotations

import json

import torch

from lora_kernels.attention import (
    PREFILL_TILE_FIELDS,
    DecodeWorkspace,
    PrefillWorkspace,
    paged_decode,
    paged_prefill,
)
from lora_kernels.hopper_prefill import TILE_ROWS

from .compiled import Launch, compiling, stack_bytes
from .compiled_shapes import PAGE_TOKENS, SHARED_BYTES, elements

SHAPES = {"Llama-3.1-8B": (32, 8, 128), "gpt-oss-20b": (64, 8, 64)}
DECODES = {"Llama-3.1-8B": (32, 8, 128), "Qwen3.5-9B": (16, 4, 256)}


def launches() -> dict[str, Launch]:
    """Return a launch of each shape: keys that are split, and of GPT-OSS sinks."""
    recorded: list[Launch] = []
    with compiling(recorded.append):
        for heads, kv_heads, head_dim in SHAPES.values():
            q = elements(4, heads * head_dim, dtype=torch.bfloat16)
            pool = elements(4, 2 * PAGE_TOKENS * kv_heads * head_dim, dtype=torch.bfloat16)
            tables, tiles = (elements(4, size, dtype=torch.int32) for size in (8, PREFILL_TILE_FIELDS))
            paged_prefill(
                q, pool, tables, tiles, q, heads=heads, kv_heads=kv_heads, page_tokens=PAGE_TOKENS, block_m=TILE_ROWS,
                workspace=PrefillWorkspace(kv_heads, head_dim, "meta", TILE_ROWS), split_keys=True, hopper=True,
                sinks=elements(heads, dtype=torch.bfloat16) if head_dim == 64 else None,
            )  # fmt: skip
    return dict(zip(SHAPES, [launch for launch in recorded if "hopper" in launch.name], strict=True))


def decode_launches() -> dict[str, Launch]:
    """Return a launch of each shape with 256 sequences, whose keys are not split."""
    recorded: list[Launch] = []
    with compiling(recorded.append):
        for heads, kv_heads, head_dim in DECODES.values():
            q = elements(256, heads * head_dim, dtype=torch.bfloat16)
            pool = elements(4, 2 * PAGE_TOKENS * kv_heads * head_dim, dtype=torch.bfloat16)
            paged_decode(
                q, pool, elements(256, 8, dtype=torch.int32), elements(256, dtype=torch.int32), q,
                DecodeWorkspace(256, heads, head_dim, 1, "meta"), heads=heads, kv_heads=kv_heads,
                page_tokens=PAGE_TOKENS, splits=1,
            )  # fmt: skip
    return {f"decode of {name}": launch for name, launch in zip(DECODES, recorded, strict=True)}


def main() -> None:
    kernels = {}
    for name, launch in (launches() | decode_launches()).items():
        compiled = launch.compile()
        assert compiled.metadata.shared <= SHARED_BYTES, name
        kernels[name] = compiled.asm["ptx"], stack_bytes(compiled)
    print(json.dumps(kernels))


if __name__ == "__main__":
    main()
