"""Time of a mixture of experts beside the bytes and the products that it needs.

    python benchmarks/experts_table.py --out benchmarks/results/experts.jsonl

One layer of Qwen3-30B-A3B in bfloat16: 128 experts of width 768, 8 per token, hidden size 2048, with the router's
choice and the sorting of pairs. Random tokens choose their experts evenly. The floor is the time to read the experts
in use once, at the copy bandwidth that is measured on the card first, or to multiply them at the rate of a large
product by cuBLAS, whichever is longer. Each measurement replays a CUDA graph of eight calls on different weights.
"""

from __future__ import annotations

import torch
from gated_delta_table import copy_bandwidth
from kernel_table import LAYERS, measure
from rows import Rows, parser_of

from lora_kernels.experts import grouped_experts, route

EXPERTS, PER_TOKEN, HIDDEN, INNER = 128, 8, 2048, 768
STEPS = (1, 64, 256, 4096)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def product_rate() -> float:
    """Return the multiplications and additions a second of a large product."""
    a, b = random(LAYERS, 8192, 4096), random(4096, 8192)
    us = measure(lambda layer: torch.mm(a[layer], b))
    return 2 * 8192 * 4096 * 8192 / us * 1e6


def main() -> None:
    arguments = parser_of(__doc__, out=True).parse_args()
    rows = Rows(arguments.out, "experts", "qwen3-30b-a3b")
    bandwidth, rate = copy_bandwidth(), product_rate()
    rows.add("device copy", "bandwidth", bandwidth / 1e9, "GB/s")
    rows.add("large product", "rate", rate / 1e12, "TFLOP/s")
    gate_up = [random(EXPERTS, 2 * INNER, HIDDEN) for _ in range(LAYERS)]
    down = [random(EXPERTS, HIDDEN, INNER) for _ in range(LAYERS)]
    of_expert = 3 * INNER * HIDDEN
    for tokens in STEPS:
        x = [random(tokens, HIDDEN) for _ in range(LAYERS)]
        logits = [random(tokens, EXPERTS) for _ in range(LAYERS)]
        routings = [route(scores, PER_TOKEN, renormalised=True) for scores in logits]
        used = sum(len(routing.experts.unique()) for routing in routings) / LAYERS
        moved = used * of_expert * 2 + 2 * x[0].nbytes
        floor = max(moved / bandwidth, 2 * of_expert * tokens * PER_TOKEN / rate)

        def routed(layer: int, logits: list[torch.Tensor] = logits) -> object:
            return route(logits[layer], PER_TOKEN, renormalised=True)

        def products(layer: int, x: list[torch.Tensor] = x, routings: list = routings) -> object:  # type: ignore[type-arg]
            return grouped_experts(x[layer], gate_up[layer], down[layer], routings[layer], "silu")

        rows.add(f"routing of {tokens} tokens", "kernel_us", measure(routed), "us")
        rows.add(
            f"experts of {tokens} tokens", "kernel_us", measure(products), "us", floor * 1e6,
            settings={"experts_in_use": used, "bytes": moved},
        )  # fmt: skip


if __name__ == "__main__":
    main()
