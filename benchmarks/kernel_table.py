"""Time of LoRA shrink and expand by rank, batch and distinct adapters, against the bytes they must read.

    python benchmarks/kernel_table.py --out benchmarks/results/kernels.jsonl

Llama-3.1-8B shapes, bfloat16. Each measurement replays a CUDA graph that walks eight layers, so
that weights come from memory and not from the cache; the figure is the median time of one layer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from rows import Rows, bandwidth, parser_of, traffic

from lora_kernels.expand import lora_expand
from lora_kernels.fp8_tensors import FP8
from lora_kernels.kernel_variants import KernelVariant, LoraShape
from lora_kernels.shrink import lora_shrink
from lora_kernels.tables import ALL_TARGETS, FP8_ROWS, MODULE_FIELDS, Group, SlotTables
from lora_kernels.work_items import Span, token_tiles

KV_DIM, ROWS_PER_PAGE, LAYERS = 1024, 32, 8
GROUPS = {
    "qkv": Group("qkv", 0, 4096, (4096, 1024, 1024)),
    "o": Group("o", 3, 4096, (4096,)),
    "gate_up": Group("gate_up", 4, 4096, (14336, 14336)),
    "down": Group("down", 6, 14336, (4096,)),
    # The inputs of a gated delta layer of Qwen3.5-9B, whose two gates are targets of the same launch, and without them.
    "delta_in": Group("delta_in", 7, 4096, (8192, 4096, 32, 32)),
    "delta_in without gates": Group("delta_in without gates", 7, 4096, (8192, 4096)),
    "delta_gates": Group("delta_gates", 7, 4096, (32, 32)),
}


@dataclass
class Case:
    """A batch of ``tokens`` decode tokens over ``adapters`` adapters with these ranks, round-robin."""

    tokens: int
    adapters: int
    ranks: tuple[int, ...]


def build(case: Case, group: Group, *, fp8: bool = False) -> tuple[torch.Tensor, SlotTables, int]:
    """Return the pool, the tables, and the bytes that one layer of the group reads."""
    layout, pages_needed, read = [], 0, 0
    for index in range(case.adapters):
        rank = case.ranks[index % len(case.ranks)]
        cursor = rank * len(group.out_features) * group.in_features // KV_DIM
        fields = []
        for target, features in enumerate(group.out_features):
            fields.append((target * rank * group.in_features // KV_DIM, cursor, rank))
            cursor += rank * -(-features // KV_DIM)
        layout.append((fields, -(-cursor // (ROWS_PER_PAGE * (2 if fp8 else 1)))))
        pages_needed = max(pages_needed, layout[-1][1])
        read += cursor * KV_DIM * (1 if fp8 else 2)
    total = sum(pages for _, pages in layout) + 1
    pool = torch.randn(LAYERS, total, ROWS_PER_PAGE * KV_DIM, device="cuda", dtype=torch.bfloat16) * 0.02
    if fp8:
        for page in pool:  # elements of E4M3, none of which is NaN
            page.copy_(torch.randn(total, 2 * ROWS_PER_PAGE * KV_DIM, device="cuda").to(FP8).view(torch.bfloat16))
    tables = SlotTables(case.adapters + 1, LAYERS, pages_needed, "cuda", fp8_rows=2 if fp8 else 0)
    order = (torch.randperm(total - 1) + 1).tolist()
    for index, (fields, pages) in enumerate(layout):
        modules = torch.zeros(LAYERS, ALL_TARGETS, MODULE_FIELDS, dtype=torch.int32)
        for offset, field in enumerate(fields):
            modules[:, group.first_target + offset, :3] = torch.tensor(field, dtype=torch.int32)
            if fp8:
                modules[:, group.first_target + offset, :2] += FP8_ROWS
        tables.write(index + 1, [order.pop() for _ in range(pages)], modules, torch.ones(LAYERS, ALL_TARGETS))
    return pool, tables, read


def measure(run: Callable[[int], None], repeats: int = 20) -> float:
    """Return the median microseconds of one layer, from graph replays."""
    run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(LAYERS):
            run(layer)
    times = []
    for _ in range(repeats):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / LAYERS)
    return statistics.median(times)


def bench(case: Case, group: Group, variant: KernelVariant, *, fp8: bool = False) -> dict[str, float]:
    pool, tables, read = build(case, group, fp8=fp8)
    per_adapter = case.tokens // case.adapters
    spans = [
        Span(i + 1, i * per_adapter, (i + 1) * per_adapter, case.ranks[i % len(case.ranks)])
        for i in range(case.adapters)
    ]
    tiles = token_tiles(spans, variant).cuda()
    shape = LoraShape(variant, max(case.ranks))
    x = torch.randn(case.tokens, group.in_features, device="cuda", dtype=torch.bfloat16)
    h = shape.workspace(case.tokens, group.in_features, len(group.out_features), "cuda", x.dtype)
    out = torch.randn(case.tokens, sum(group.out_features), device="cuda", dtype=torch.bfloat16)

    def shrink(layer: int) -> None:
        lora_shrink(x, pool[layer], h, tiles, tables, layer, group, KV_DIM, shape)

    def expand(layer: int) -> None:
        lora_expand(h, pool[layer], out, tiles, tables, layer, group, KV_DIM, shape, None)

    def both(layer: int) -> None:
        shrink(layer)
        expand(layer)

    times = {"shrink_us": measure(shrink), "expand_us": measure(expand), "both_us": measure(both)}
    return {**times, "bytes": read}


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--fp8", action="store_true", help="adapters whose factors are in FP8")
    arguments = parser.parse_args()
    rows = Rows(arguments.out, "kernels", "llama-3.1-8b" + (", fp8 adapters" if arguments.fp8 else ""))
    decode = [Case(t, t, r) for t in (16, 64, 256) for r in ((8,), (16,), (64,), (8, 16, 32, 64))]
    decode += [Case(64, 64, (128,))]
    shared = [Case(64, 1, (16,))] + [Case(256, n, (8, 16, 32, 64)) for n in (1, 8, 64, 128)]
    prefill = [Case(4096, 1, (16,)), Case(4096, 16, (8, 16, 32, 64))]
    work = (
        (KernelVariant.GEMV_1, decode, GROUPS),
        (KernelVariant.GEMV_1, shared, ("qkv", "o")),
        (KernelVariant.GEMV_2, [Case(128, 64, (8, 16, 32, 64))], ("qkv", "o")),
        (KernelVariant.GROUPED, shared, ("qkv", "o")),
        (KernelVariant.PREFILL, prefill, GROUPS),
    )
    for variant, cases, groups in work:
        for name in groups:
            for case in cases:
                if name not in ("qkv", "o") and case.tokens in (16, 256):
                    continue
                result = bench(case, GROUPS[name], variant, fp8=arguments.fp8)
                ranks = "/".join(map(str, case.ranks))
                case_name = f"{name} {case.tokens} tokens {case.adapters} adapters r{ranks}"
                both, read = result.pop("both_us"), result.pop("bytes")
                settings = {**result, **traffic(read, both), "variant": variant.name}
                rows.add(case_name, "lora_layer_us", both, "us", read / bandwidth() * 1e6, settings=settings)


if __name__ == "__main__":
    main()
