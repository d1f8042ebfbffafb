"""PTX of the experts' kernels for a Hopper GPU, as JSON: `python -m lorikeet_testing.compiled_experts`."""

from __future__ import annotations

import json

import torch

from lora_kernels.experts import Routing, grouped_experts, least_tokens, route

from .compiled import Launch, compiling
from .compiled_shapes import elements

EXPERTS, PER_TOKEN, HIDDEN, INNER = 128, 8, 2048, 768


def main() -> None:
    """Compile every kernel for the layers of Qwen3-30B-A3B, in bfloat16, in each configuration."""
    bf16, i32 = torch.bfloat16, torch.int32
    gate_up, down = elements(EXPERTS, 2 * INNER, HIDDEN, dtype=bf16), elements(EXPERTS, HIDDEN, INNER, dtype=bf16)
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
            grouped_experts(elements(tokens, HIDDEN, dtype=bf16), gate_up, down, routing, "silu")
    print(json.dumps({name: launch.compile().asm["ptx"] for name, launch in launches.items()}))


if __name__ == "__main__":
    main()
