"""PTX of the experts' kernels for a Hopper GPU, as JSON: `python -m lorikeet_testing.compiled_experts`."""

from __future__ import annotations

import json

import torch

from lora_kernels.expert_lora import ExpertLora
from lora_kernels.experts import Routing, grouped_experts, least_tokens, route
from lora_kernels.tables import SlotTables

from .compiled import Launch, compiling
from .compiled_shapes import elements

EXPERTS, PER_TOKEN, HIDDEN, INNER, KV_DIM = 128, 8, 2048, 768, 512


def main() -> None:
    """Compile every kernel for layers of Qwen3-30B-A3B, in bfloat16, in each configuration, with LoRA and without."""
    bf16, i32 = torch.bfloat16, torch.int32
    gate_up, down = elements(EXPERTS, 2 * INNER, HIDDEN, dtype=bf16), elements(EXPERTS, HIDDEN, INNER, dtype=bf16)
    tables = SlotTables(4, 1, 64, "cpu", experts=True)
    tables.pages, tables.experts = elements(4, 64, dtype=i32), elements(4, 1, 3, 5, dtype=i32)
    tables.expert_scales = elements(4, 1, 3, dtype=torch.float32)
    launches: dict[str, Launch] = {}
    with compiling(lambda launch: launches.setdefault(f"{launch.name} {len(launches)}", launch)):
        for tokens in least_tokens(EXPERTS, PER_TOKEN):
            route(elements(tokens, EXPERTS, dtype=bf16), PER_TOKEN, renormalised=True)
            routing = Routing(
                elements(tokens, PER_TOKEN, dtype=i32),
                elements(tokens, PER_TOKEN, dtype=torch.float32),
                elements(tokens * PER_TOKEN, dtype=i32),
                elements(EXPERTS + 1, dtype=i32),
            )
            x = elements(tokens, HIDDEN, dtype=bf16)
            grouped_experts(x, gate_up, down, routing, "silu")
            lora = ExpertLora(elements(tokens, dtype=i32), elements(64, 32 * KV_DIM, dtype=bf16), tables, 0, KV_DIM, 16)
            grouped_experts(x, gate_up, down, routing, "silu", None, lora)
    print(json.dumps({name: launch.compile().asm["ptx"] for name, launch in launches.items()}))


if __name__ == "__main__":
    main()
