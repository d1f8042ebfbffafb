"""The time to merge an adapter into a second set of the base's matrices, and of a step that runs on them.

    python benchmarks/merge_cost.py --out benchmarks/results/w1.jsonl

Llama-3.1-8B shape. A merge writes every matrix that the adapter touches, from the pristine ones: its floor is the
bytes read and written at a copy's rate. A decode step of 16 requests, all of the merged adapter, beside the base's.
"""

from __future__ import annotations

import logging
import statistics
import time
from pathlib import Path

import torch
from offline_throughput import ALL_LINEAR, MIXERS, build_engine, random_adapter
from rows import Rows, bandwidth, parser_of
from step_times import decode_step_ms

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.model.merging import MergedLayers

ADAPTERS = {
    "q,k,v,o rank 16": (16, MIXERS),
    "q,k,v,o rank 64": (64, MIXERS),
    "all-linear rank 64": (64, ALL_LINEAR),
}
BATCH = 16


def merge_ms(engine: Engine, digest: str) -> float:
    """Return the median milliseconds of consecutive merges; the adapter is on the device."""
    slot, merged = engine.core.device_tier.get(digest), engine.loaded.model.merged
    assert slot is not None and isinstance(merged, MergedLayers)
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        merged.merge(slot)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=4096, max_running=BATCH, step_tokens=4096, prefix_cache=False,
        mode="merged",
    )  # fmt: skip
    engine = build_engine("llama-3.1-8b", config, source)
    rows = Rows(arguments.out, "W1", "llama-3.1-8b", batch=BATCH)
    rows.add("base, merged mode", "step_ms", decode_step_ms(engine, "base", BATCH, []), "ms")
    for index, (name, (rank, targets)) in enumerate(ADAPTERS.items()):
        packed = random_adapter(engine, index, rank, targets)
        source.add(packed)
        step = decode_step_ms(engine, name, BATCH, [packed.digest])
        touched = sum(out * into for into, out in (engine.loaded.model.shape.targets[target] for target in targets))
        floor = touched * engine.model_config.num_layers * 2 * 2 / bandwidth() * 1e3
        rows.add(f"merged, {name}", "merge_ms", merge_ms(engine, packed.digest), "ms", floor)
        rows.add(f"merged, {name}", "step_ms", step, "ms")


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
