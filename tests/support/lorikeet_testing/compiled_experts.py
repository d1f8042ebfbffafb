"""PTX and stacks of the experts' kernels for a Hopper GPU, as JSON: `python -m lorikeet_testing.compiled_experts`.

With `every` it has all configurations of each form of weights.
"""

from __future__ import annotations

import json
import sys

import torch

from lora_kernels.expert_lora import ExpertLora
from lora_kernels.experts import (
    ClampedSwiglu,
    Routing,
    SigmoidScores,
    form_of,
    grouped_experts,
    least_tokens,
    route,
)
from lora_kernels.fp8_tensors import BLOCK, FP8, Fp8Stack
from lora_kernels.mxfp4 import Mxfp4Stack
from lora_kernels.tables import ResidencyTables, SlotTables

from .compiled import Launch, compiling, stack_bytes
from .compiled_shapes import elements

EVERY = "every" in sys.argv[1:]
EXPERTS, PER_TOKEN, HIDDEN, INNER, KV_DIM = 128, 8, 2048, 768, 512
# Tokens whose shrinks have programs of blocks of pairs.
BLOCKS = 200


def main() -> None:
    """Compile every kernel for layers of Qwen3-30B-A3B, in bfloat16, with LoRA and without.

    Weights in 16 bits have the configurations of the smallest and of the largest steps, which use all kernels, and
    other forms those of the largest steps; with `every`, each form has all that it can have.
    """
    bf16, i32 = torch.bfloat16, torch.int32
    plain = elements(EXPERTS, 2 * INNER, HIDDEN, dtype=bf16), elements(EXPERTS, HIDDEN, INNER, dtype=bf16)
    by_row, in_blocks = (
        (_in_fp8(2, INNER, HIDDEN, in_blocks), _in_fp8(1, HIDDEN, INNER, in_blocks)) for in_blocks in (False, True)
    )
    tables = SlotTables(4, 1, 64, "cpu", experts=True)
    tables.pages, tables.experts = elements(4, 64, dtype=i32), elements(4, 1, 3, 5, dtype=i32)
    tables.expert_scales = elements(4, 1, 3, dtype=torch.float32)
    fp8_tables = SlotTables(4, 1, 64, "cpu", experts=True, fp8_rows=2)  # adapters in FP8 beside others
    fp8_tables.pages, fp8_tables.experts = tables.pages, tables.experts
    fp8_tables.expert_scales = tables.expert_scales
    residency = ResidencyTables(4, 4, 1, EXPERTS, "cpu")  # some experts outside the pool
    residency.row_of, residency.host = elements(4, dtype=i32), elements(4, 1, dtype=torch.int64)
    residency.places, residency.counts = elements(4, 1, EXPERTS, dtype=i32), elements(4, 1, EXPERTS, dtype=i32)
    partial = SlotTables(4, 1, 64, "cpu", experts=True, residency=residency)
    partial.pages, partial.experts, partial.expert_scales = tables.pages, tables.experts, tables.expert_scales
    launches: dict[str, Launch] = {}
    with compiling(lambda launch: launches.setdefault(f"{launch.name} {len(launches)}", launch)):
        biases = elements(EXPERTS, 2 * INNER, dtype=bf16), elements(EXPERTS, HIDDEN, dtype=bf16)
        mxfp4 = _in_mxfp4(2 * INNER, HIDDEN), _in_mxfp4(HIDDEN, INNER)
        for groups in (1, 8):  # as GLM-4.5-Air's router and, with groups, DeepSeek's
            sigmoid = SigmoidScores(elements(EXPERTS, dtype=torch.float32), groups, max(1, groups // 2), 2.5)
            route(elements(1, EXPERTS, dtype=bf16), PER_TOKEN, renormalised=True, sigmoid=sigmoid)
        for tokens in _least(plain[0]) if EVERY else _least(plain[0])[::2]:
            route(elements(tokens, EXPERTS, dtype=bf16), PER_TOKEN, renormalised=True)
            x, routing, lora = _step(tokens, tables)
            grouped_experts(x, *plain, routing, "silu")
            grouped_experts(x, *plain, routing, "silu", None, lora)
            if tokens in (_least(plain[0])[0], _least(plain[0])[-1]):
                grouped_experts(x, *plain, routing, "silu", None, lora._replace(tables=partial))
        for each in (tables, partial):  # several pairs an expert, in the smallest configuration
            x, routing, lora = _step(BLOCKS, each)
            grouped_experts(x, *plain, routing, "silu", None, lora)
        least, *_, most = _least(by_row[0])
        x, routing, _ = _step(least, tables)
        grouped_experts(x, *by_row, routing, "silu")
        for tokens in (least, most) if EVERY else (most,):
            x, routing, lora = _step(tokens, fp8_tables)
            grouped_experts(x, *in_blocks, routing, "silu", None, lora)
        for tokens in _least(mxfp4[0]) if EVERY else _least(mxfp4[0])[-1:]:
            x, routing, lora = _step(tokens, tables)
            grouped_experts(x, *mxfp4, routing, ClampedSwiglu(1.702, 7.0), None, lora, *biases)
    different = {launch.source().hash(): (name, launch) for name, launch in launches.items()}
    kernels = {_named(name, launch): launch.compile() for name, launch in different.values()}
    print(json.dumps({name: (kernel.asm["ptx"], stack_bytes(kernel)) for name, kernel in kernels.items()}))


def _least(matrices: torch.Tensor | Fp8Stack | Mxfp4Stack) -> list[int]:
    """Return the smallest steps of the configurations of the experts' products."""
    return least_tokens(EXPERTS, PER_TOKEN, form_of(matrices))


def _step(tokens: int, tables: SlotTables) -> tuple[torch.Tensor, Routing, ExpertLora]:
    """Return a step's activations, routing, and adapters, unallocated."""
    bf16, i32 = torch.bfloat16, torch.int32
    routing = Routing(
        elements(tokens, PER_TOKEN, dtype=i32),
        elements(tokens, PER_TOKEN, dtype=torch.float32),
        elements(tokens * PER_TOKEN, dtype=i32),
        elements(EXPERTS + 1, dtype=i32),
    )
    lora = ExpertLora(elements(tokens, dtype=i32), elements(64, 32 * KV_DIM, dtype=bf16), tables, 0, KV_DIM, 16)
    return elements(tokens, HIDDEN, dtype=bf16), routing, lora


def _in_fp8(parts: int, rows: int, columns: int, in_blocks: bool) -> Fp8Stack:
    """Return the experts' matrices in FP8, unallocated."""
    blocks = parts, -(-rows // BLOCK), -(-columns // BLOCK)
    scale = elements(EXPERTS, *(blocks if in_blocks else (parts * rows,)), dtype=torch.float32)
    return Fp8Stack(elements(EXPERTS, parts * rows, columns, dtype=FP8), scale)


def _in_mxfp4(rows: int, columns: int) -> Mxfp4Stack:
    """Return the experts' matrices in MXFP4, unallocated."""
    sizes = EXPERTS, columns // 128, rows
    return Mxfp4Stack(elements(*sizes, 32, dtype=torch.int16), elements(*sizes, 4, dtype=torch.uint8), columns)


def _named(name: str, launch: Launch) -> str:
    stored = ("", " of FP8", " of FP8", " of MXFP4")[launch.arguments.get("SCALES", 0)]
    adapted = " adapted" if launch.arguments.get("MAX_RANK") else ""
    return name + adapted + stored + (" in part" if launch.arguments.get("RESIDENCY") else "")


if __name__ == "__main__":
    main()
