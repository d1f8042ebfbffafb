"""Time of a mixture of experts beside the bytes and the products that it needs.

    python benchmarks/experts_table.py --out benchmarks/results/experts.jsonl

One layer of Qwen3-30B-A3B in bfloat16: 128 experts of width 768, 8 per token, hidden size 2048, with the router's
choice and the sorting of pairs. Random tokens choose their experts evenly. The floor is the time to read the experts
in use once, at the copy bandwidth that is measured on the card first, or to multiply them at the rate of a large
product by cuBLAS, whichever is longer. Experts in FP8 are half as many bytes, in MXFP4 a quarter, and are multiplied in
bfloat16. Each
measurement replays a CUDA graph of eight calls on different weights.
"""

from __future__ import annotations

import torch
from gated_delta_table import copy_bandwidth
from kernel_table import LAYERS, measure
from rows import Rows, parser_of

from lora_engine.adapters.experts import MODULES, plan_experts
from lora_engine.adapters.targets import ExpertShapes
from lora_engine.memory import PoolGeometry
from lora_engine.peft_format import DOWN, GATE_UP, ExpertFactor, FactorForm
from lora_engine.peft_format import ExpertLora as PeftLora
from lora_kernels.expert_lora import ExpertLora, shrink_experts
from lora_kernels.experts import config_of, grouped_experts, route
from lora_kernels.fp8_tensors import Fp8Stack
from lora_kernels.mxfp4 import Mxfp4Stack
from lora_kernels.tables import SlotTables

EXPERTS, PER_TOKEN, HIDDEN, INNER = 128, 8, 2048, 768
RANK, KV_DIM, ROWS_PER_PAGE = 16, 512, 32
GEOMETRY = PoolGeometry(1, ROWS_PER_PAGE // 2, KV_DIM // 128, 128)
STEPS = (1, 64, 256, 4096)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def in_fp8(parts: int, rows: int, columns: int, in_blocks: bool) -> Fp8Stack:
    """Return random matrices of all experts in FP8."""
    stack = Fp8Stack.empty(EXPERTS, parts, rows, columns, in_blocks, torch.device("cuda"))
    stack.data.copy_(random(EXPERTS, parts * rows, columns) * 50)
    stack.scale.fill_(0.02 / 50)
    return stack


def in_mxfp4(rows: int, columns: int) -> Mxfp4Stack:
    """Return random matrices of all experts in MXFP4."""
    stack = Mxfp4Stack.empty(EXPERTS, rows, columns, torch.device("cuda"))
    stack.data.random_(-(2**15), 2**15)
    stack.scale.fill_(121)
    return stack


def product_rate() -> float:
    """Return the multiplications and additions a second of a large product."""
    a, b = random(LAYERS, 8192, 4096), random(4096, 8192)
    us = measure(lambda layer: torch.mm(a[layer], b))
    return 2 * 8192 * 4096 * 8192 / us * 1e6


class Adapters:
    """Adapters of rank 16 on all modules of a layer's experts, in pages of a pool, for tokens round-robin."""

    def __init__(self, count: int) -> None:
        a, b = ExpertFactor(("a",), FactorForm.ROWS), ExpertFactor(("b",), FactorForm.COLUMNS)
        modules = [PeftLora(0, module, RANK, (1.0,), a, b) for module in (GATE_UP, DOWN)]
        (slots,), _, pages = plan_experts([modules], [0], GEOMETRY, ExpertShapes(EXPERTS, HIDDEN, INNER))
        self.pools = [random(count * pages, ROWS_PER_PAGE * KV_DIM) for _ in range(LAYERS)]
        self.tables, self.count = SlotTables(count + 1, 1, pages, "cuda", experts=True), count
        self.num_bytes = EXPERTS * RANK * (2 * HIDDEN + 3 * INNER) * 2
        entries, scales = torch.zeros(1, 3, 5, dtype=torch.int32), torch.ones(1, 3)
        for slot in slots:
            entry = torch.tensor([slot.a_row, slot.a_step, slot.b_row, slot.b_step, slot.rank])
            entries[0, MODULES.index(slot.module)] = entry
        none = torch.zeros(1, self.tables.modules.shape[2], 5, dtype=torch.int32)
        for index in range(count):
            of_pages = range(index * pages, (index + 1) * pages)
            self.tables.write(index + 1, of_pages, none, torch.zeros(none.shape[:2]), (entries, scales))

    def of(self, tokens: int) -> list[ExpertLora]:
        slots = 1 + torch.arange(tokens, device="cuda", dtype=torch.int32) * self.count // tokens
        return [ExpertLora(slots.int(), pool, self.tables, 0, KV_DIM, RANK) for pool in self.pools]


def main() -> None:
    arguments = parser_of(__doc__, out=True).parse_args()
    rows = Rows(arguments.out, "experts", "qwen3-30b-a3b")
    bandwidth, rate = copy_bandwidth(), product_rate()
    rows.add("device copy", "bandwidth", bandwidth / 1e9, "GB/s")
    rows.add("large product", "rate", rate / 1e12, "TFLOP/s")
    gate_up = [random(EXPERTS, 2 * INNER, HIDDEN) for _ in range(LAYERS)]
    down = [random(EXPERTS, HIDDEN, INNER) for _ in range(LAYERS)]
    of_expert = 3 * INNER * HIDDEN
    by_form: dict[str, list[tuple[Fp8Stack | Mxfp4Stack, ...]]] = {
        form: [(in_fp8(2, INNER, HIDDEN, blocks), in_fp8(1, HIDDEN, INNER, blocks)) for _ in range(LAYERS)]
        for form, blocks in (("FP8 by row", False), ("FP8 in blocks", True))
    }
    by_form["MXFP4"] = [(in_mxfp4(2 * INNER, HIDDEN), in_mxfp4(HIDDEN, INNER)) for _ in range(LAYERS)]
    of_counts = {count: Adapters(count) for count in (1, 4, 64)}
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
        for form, stacks in by_form.items():
            fewer = used * sum(stack.nbytes for stack in stacks[0]) / EXPERTS + 2 * x[0].nbytes

            def rounded(layer: int, x: list = x, routings: list = routings, stacks: list = stacks) -> object:  # type: ignore[type-arg]
                return grouped_experts(x[layer], *stacks[layer], routings[layer], "silu")

            least = max(fewer / bandwidth, 2 * of_expert * tokens * PER_TOKEN / rate)
            rows.add(
                f"experts in {form} of {tokens} tokens", "kernel_us", measure(rounded), "us", least * 1e6,
                settings={"experts_in_use": used, "bytes": fewer},
            )  # fmt: skip
        for count, adapters in of_counts.items():
            if count > tokens:
                continue
            lora = adapters.of(tokens)
            keys = [
                EXPERTS * each.slots[:, None] + routing.experts for each, routing in zip(lora, routings, strict=True)
            ]
            pairs = sum(len(key.unique()) for key in keys) / LAYERS
            added = pairs / EXPERTS * adapters.num_bytes / bandwidth

            def shrunk(layer: int, x: list = x, routings: list = routings, lora: list = lora) -> object:  # type: ignore[type-arg]
                pairs_a_block = config_of(tokens * PER_TOKEN, EXPERTS).pairs  # noqa: B023
                return shrink_experts(x[layer], lora[layer], routings[layer], 0, 2, pairs_a_block)

            def adapted(layer: int, x: list = x, routings: list = routings, lora: list = lora) -> object:  # type: ignore[type-arg]
                weights = gate_up[layer], down[layer]
                return grouped_experts(x[layer], *weights, routings[layer], "silu", None, lora[layer])

            name = f"{tokens} tokens, {count} adapters on experts"
            rows.add(f"A of gate and up, {name}", "kernel_us", measure(shrunk), "us")
            rows.add(
                f"experts of {name}", "kernel_us", measure(adapted), "us", (floor + added) * 1e6,
                settings={"adapters_and_experts": pairs},
            )  # fmt: skip


if __name__ == "__main__":
    main()
