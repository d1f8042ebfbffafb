"""Ablations of the engine: the same traffic, with one of its ideas taken out at a time.

    python benchmarks/ablations.py --out benchmarks/results/ablations.jsonl

Llama-3.1-8B shape, 400 requests of 256 tokens in and 128 out, adapters of ranks 8/16/32/64 on q,k,v,o drawn
uniformly, at most 256 running, in a pool that holds 128 such requests beside 32 of the largest adapters (S-LoRA's
ablations, section 7.3):

- `unified`: the engine as it is, in the order of arrival; `clustered`: in S-LoRA's order, 32 adapters at a time.
- `separate memory`: the room for adapters is cut into 32 equal slots, as large as the largest needs. Requests whose
  adapter has no slot are passed by others, which is an order too: to be compared with `clustered`.
- `no prefetch`: adapters are asked for when their request's turn comes.
- `no graphs`: the engine without CUDA graphs, beside which to read the next.
- `padded bmm`: weights padded to the largest rank, gathered for each decode token, multiplied as one batched product;
  prompts go adapter by adapter. Without CUDA graphs. The padded copies lie ready on the device, outside the pool.
"""

from __future__ import annotations

import collections.abc
import logging
from pathlib import Path
from typing import Any

import torch
from offline_throughput import MIXED, MIXERS, Case, build_engine, run_case
from rows import Rows, parser_of

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.memory import PageAllocator
from lora_engine.model.batch import LoraSpan, StepBatch
from lora_engine.model.ops import linear
from lora_engine.model.triton_ops import TritonOps, TritonPlan
from lora_engine.scheduling.evictor import Evictor
from lora_engine.scheduling.scheduler import Scheduler
from lora_engine.scheduling.sequence import Outcome, Sequence

REQUESTS, SLOTS = 400, 32
LARGEST = 52  # pages of rank 64 on q,k,v,o
PAGE_MB = 2
KV_MB, ADAPTERS_MB = 128 * 384 * 131072 // 2**20, SLOTS * LARGEST * PAGE_MB
# Name, adapters in use, order.
RUNS = (
    ("unified", 8, "fcfs"),
    ("separate memory", 8, "fcfs"),
    ("unified", 64, "fcfs"),
    ("clustered", 64, "clustered"),
    ("separate memory", 64, "fcfs"),
    ("unified", 256, "fcfs"),
    ("clustered", 256, "clustered"),
    ("separate memory", 256, "fcfs"),
    ("no prefetch", 64, "fcfs"),
    ("no graphs", 64, "fcfs"),
    ("padded bmm", 64, "fcfs"),
)


class Slots:
    """An allocator of equal slots of pages, in place of the pool's allocator."""

    def __init__(self, allocator: PageAllocator, count: int) -> None:
        self.idle = [allocator.allocate_run(LARGEST) for _ in range(count)]
        self._taken: dict[int, list[int]] = {}

    def allocate_run(self, count: int) -> list[int]:
        pages = self.idle.pop()
        self._taken[pages[0]] = pages
        return pages[:count]

    def release(self, pages: collections.abc.Sequence[int]) -> None:
        self.idle.append(self._taken.pop(pages[0]))


class SeparateScheduler(Scheduler):
    """A scheduler that lets others pass a request whose adapter finds no slot; the least recently used idle adapter
    is evicted.
    """

    def _copy_to_device(self, sequence: Sequence, digest: str) -> AdapterSlot | Outcome:
        tier, packed = self._device_tier, self._source.get(digest)
        assert packed is not None, "every adapter of this benchmark is in host memory"
        if not tier._allocator.idle:  # type: ignore[attr-defined]
            idle = [slot for slot in tier.slots() if not slot.refs and tier.ready(slot)]
            if not idle:
                return Outcome.LOADING
            tier.drop(min(idle, key=lambda slot: slot.last_used))
        return tier.load(packed)


class SeparateEvictor(Evictor):
    """An evictor that takes no pages from adapters for keys and values."""

    def free_up(self, pages_wanted: int) -> bool:
        return self._allocator.free >= pages_wanted


def separate_memory(engine: Engine) -> None:
    """Give adapters a memory region apart from keys and values."""
    assert engine.pool.geometry.page_bytes(torch.bfloat16) == PAGE_MB * 2**20
    engine.core.device_tier._allocator = Slots(engine.core.allocator, SLOTS)  # type: ignore[assignment]
    engine.core.scheduler.__class__ = SeparateScheduler
    engine.core.scheduler._evictor.__class__ = SeparateEvictor
    engine.core.check = engine.core.allocator.check  # type: ignore[method-assign]


class PaddedBmm:
    """A stand-in for the LoRA kernels: gathered batched products over padded weights."""

    def __init__(self, engine: Engine, adapters: int) -> None:
        self.adapters = adapters
        self.ops = engine.loaded.model.ops
        self.plan_step = TritonOps.plan
        self.spans: list[LoraSpan] = []
        self.rank = max(MIXED)
        shape, device = engine.loaded.model.shape, engine.loaded.model.device
        targets = [shape.targets[t] for t in MIXERS]
        self.weights = [
            [
                (
                    torch.randn(adapters, self.rank, i, device=device, dtype=torch.bfloat16) * 0.01,
                    torch.randn(adapters, self.rank, o, device=device, dtype=torch.bfloat16) * 0.01,
                )
                for i, o in targets
            ]
            for _ in range(shape.num_layers)
        ]
        self.index: dict[str, int] = {}

    def plan(self, ops: TritonOps, batch: StepBatch, pool: Any) -> TritonPlan:
        self.spans = list(batch.lora)
        for span in self.spans:
            self.index.setdefault(span.slot.digest, len(self.index) % self.adapters)
        plan = self.plan_step(ops, batch, pool)
        decode = [span for span in self.spans if span.stop <= batch.num_decode]
        tokens = [(row, self.index[span.slot.digest]) for span in decode for row in range(span.start, span.stop)]
        self.rows, self.picks = torch.tensor(tokens, device=ops.device).view(-1, 2).T
        self.prompts = [span for span in self.spans if span.stop > batch.num_decode]
        return plan

    def project(self, group: int, layer: int, x: Any, weight: Any, bias: Any) -> Any:
        out = linear(x, weight, bias)
        start = 0
        for a, b in self.weights[layer][:3] if group == 0 else self.weights[layer][3:] if group == 1 else []:
            columns = slice(start, start + b.shape[2])
            start += b.shape[2]
            if len(self.rows):
                shrunk = torch.bmm(a[self.picks], x[self.rows][:, :, None])
                out[self.rows, columns] += torch.bmm(shrunk.transpose(1, 2), b[self.picks])[:, 0]
            for span in self.prompts:
                pick = self.index[span.slot.digest]
                out[span.start : span.stop, columns] += x[span.start : span.stop] @ a[pick].T @ b[pick]
        return out


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--adapters", type=int, nargs="*", help="only runs with so many")
    arguments = parser.parse_args()
    rows = Rows(arguments.out, "ablations", "llama-3.1-8b", requests=REQUESTS, kv_mb=KV_MB, adapters_mb=ADAPTERS_MB)
    for name, adapters, order in RUNS:
        if arguments.adapters and adapters not in arguments.adapters:
            continue
        source = LoadedAdapters()
        config = EngineConfig(
            model=Path("random"), device="cuda", max_context=4096, step_tokens=4096, prefix_cache=False,
            pool_mb=KV_MB + ADAPTERS_MB, prefetch=0 if name == "no prefetch" else 16, order=order,
            cluster_adapters=SLOTS, cuda_graphs=name not in ("no graphs", "padded bmm"),
        )  # fmt: skip
        engine = build_engine("llama-3.1-8b", config, source)
        if name == "separate memory":
            separate_memory(engine)
        if name == "padded bmm":
            padded = PaddedBmm(engine, adapters)
            TritonOps.plan = lambda ops, batch, pool, p=padded: p.plan(ops, batch, pool)  # type: ignore[method-assign,misc]
            TritonOps.project = lambda ops, *rest, p=padded: p.project(*rest[:5])  # type: ignore[method-assign,misc]
        run_case(engine, source, Case("warm-up", 4), 32)
        case = Case("ablation", adapters, uniform=True)
        result = run_case(engine, source, case, REQUESTS)
        rows.add(f"{name}, {adapters} adapters", "requests_per_s", result["requests_per_s"], "1/s", settings=result)
        del engine
        torch.cuda.empty_cache()


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
