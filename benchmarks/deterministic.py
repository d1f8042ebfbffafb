"""The cost of `--deterministic`: decode steps and prompts, with it and without, of Llama-3.1-8B's shape.

    python benchmarks/deterministic.py --out benchmarks/results/deterministic.jsonl
    python benchmarks/deterministic.py --products

Decode: prompts of 256 tokens, the median of the steps in which every sequence gets one token, at 1, 16, 64 and 256.
Prefill: 8 prompts of 2,048 tokens until each has its first token. Base, and up to 64 adapters on q,k,v,o of ranks
8/16/32/64. `--products`: each matrix of a layer times 1 to 2,048 rows, by cuBLAS as it chooses, by cuBLAS without
split sums over at least 64 rows, and by this repository's kernel.
"""

from __future__ import annotations

import gc
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from offline_throughput import LLAMA_3_1_8B, MIXED, MIXERS, build_engine, capture_when_used, random_adapter
from rows import Rows, parser_of
from step_times import decode_step_ms, prefill_ms, warm

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.invariant_ops import forbid_split_sums, padded_linear
from lora_engine.model.ops import linear
from lora_kernels.invariant_linear import invariant_linear

BATCHES = (1, 16, 64, 256)
CASES = {"base": 0, "64 mixed": 64}
PROMPTS, PROMPT = 8, 2048
HIDDEN, INNER = LLAMA_3_1_8B["hidden_size"], LLAMA_3_1_8B["intermediate_size"]
MATRICES = {"qkv": (6144, HIDDEN), "o": (HIDDEN, HIDDEN), "gate_up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER)}
ROWS = (1, 16, 32, 64, 128, 256, 2048)
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def measure(deterministic: bool) -> dict[tuple[str, str, int], float]:
    """Return the milliseconds by case, metric and batch."""
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_running=256, prefix_cache=False, deterministic=deterministic
    )
    began = time.perf_counter()
    engine: Engine = build_engine("llama-3.1-8b", config, source)
    digests = []
    for index in range(max(CASES.values())):
        packed = random_adapter(engine, index, MIXED[index % len(MIXED)], MIXERS)
        source.add(packed)
        digests.append(packed.digest)
    warm(engine, digests)
    print(f"deterministic {deterministic}: ready after {time.perf_counter() - began:.1f} s", flush=True)
    medians = {}
    for case, adapters in CASES.items():
        for batch in BATCHES:
            used = digests[: min(adapters, batch)]
            medians[case, "step_ms", batch] = decode_step_ms(engine, case, batch, used)
        medians[case, "prefill_ms", PROMPTS] = prefill_ms(engine, case, digests[:adapters], PROMPTS, PROMPT)
    return medians


def products() -> None:
    """Return the microseconds of each product, and whether its rows equal those of the product with most rows."""
    ways: dict[str, Product] = {"cublas": linear, "unsplit": padded_linear, "ours": invariant_linear}
    for way, product in ways.items():
        if way == "unsplit":  # and from then on
            forbid_split_sums()
        for name, (outputs, inputs) in MATRICES.items():
            weight = torch.randn(outputs, inputs, device="cuda").bfloat16()
            x = torch.randn(max(ROWS), inputs, device="cuda").bfloat16()
            whole = product(x, weight)
            differ = [rows for rows in ROWS if not torch.equal(product(x[:rows], weight), whole[:rows])]
            times = {rows: round(microseconds(product, x[:rows], weight), 1) for rows in ROWS}
            print(f"{name:8} {way:8} {times} differ at {differ}", flush=True)


def microseconds(product: Product, x: torch.Tensor, weight: torch.Tensor) -> float:
    """Return the time of one product among others in a graph; copies of the matrix alternate, so that it comes from
    the device's memory.
    """
    copies = [weight.clone() for _ in range(max(1, (200 << 20) // weight.nbytes))]
    for copy in copies:
        product(x, copy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in copies:
            product(x, copy)
    times = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / len(copies))
    return float(statistics.median(times))


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--products", action="store_true")
    arguments = parser.parse_args()
    if arguments.products:
        products()
        return
    capture_when_used()
    rows = Rows(arguments.out, "deterministic", "llama-3.1-8b")
    usual = measure(deterministic=False)
    gc.collect()
    torch.cuda.empty_cache()
    for (case, metric, batch), value in measure(deterministic=True).items():
        before = usual[case, metric, batch]
        size = {"batch": batch} if metric == "step_ms" else {"prompts": batch, "prompt": PROMPT}
        rows.add(case, metric, before, "ms", system="lorikeet", settings=size)
        rows.add(case, metric, value, "ms", system="lorikeet, deterministic", settings=size)
        print(f"{case:10} {metric} {batch:4}: {100 * (value / before - 1):+.1f} %", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    logging.getLogger("lora_engine.model.invariant_ops").setLevel("INFO")
    main()
