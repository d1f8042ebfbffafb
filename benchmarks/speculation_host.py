"""Host time of steps with drafts between two steps of the device: from the tokens of a step to the launch of the next.

    TRITON_INTERPRET=1 python benchmarks/speculation_host.py [--out results.jsonl] [--streams 1 16 64] [--drafts 2 4]

The engine itself, with `GraphRunner` and 16 adapters, on a CPU: a replay of a graph does nothing, and a step's tokens
are any ones of which a draft is right with a chance of 0.7. Passes of a draft head do nothing either, so that its rows
cost the host what they do on a GPU, less the launches. Processor time of the step thread, µs, medians: `gap` is what a
device waits for, from the arrival of a step's tokens to the replay of the next step, `head` the part until the first
pass of the head, behind which the rest is hidden, and `step` the whole of a step, of which the rest runs beside the
device.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence as Sequences
from dataclasses import replace
from pathlib import Path
from typing import Any

import offline_throughput
import torch
from offline_throughput import MIXERS, random_adapter, random_model
from rows import Rows, machine, parser_of
from speculation import FixedDepth, random_head

import lora_engine.execution.graph_runner as graph_runner
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.runner import InFlight, Logits, Runner
from lora_engine.model.graph_shapes import GraphShape
from lora_engine.model.head_passes import HeadPasses
from lora_engine.model.parallel import Parallel
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.sampling import Samples, SamplingRow, parameters_of
from lora_engine.scheduling.sequence import Chunk, Sequence

ADAPTERS, RIGHT = 16, 0.7
PARTS = ("gap", "head", "step")


class NoGraph:
    """A graph whose replay does nothing but count the processor time since the last tokens arrived."""

    arrived = 0.0
    times: dict[str, list[float]] = {}

    def __init__(self, runner: GraphRunner, shape: GraphShape) -> None:
        self.graph, self.logits = self, runner.inputs.logits[: shape.sampling_rows]
        self.greedy = torch.zeros(shape.sampling_rows, dtype=torch.int64)

    def replay(self) -> None:
        count("gap")


def count(part: str) -> None:
    if NoGraph.arrived:
        NoGraph.times.setdefault(part, []).append(time.thread_time() - NoGraph.arrived)


class RandomDrafts:
    """Drafts that cost nothing."""

    is_free = True

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        return [[5] * number for number in most]

    def forget(self, sequence: Sequence) -> None:
        """Do nothing: nothing is kept."""


def no_passes(passes: HeadPasses) -> None:
    """Let passes do nothing."""
    passes._padded = True
    passes._launch = lambda kind, *_: count("head") if kind == "first" else None  # type: ignore[method-assign]


def no_forward(runner: Runner, chunks: list[Chunk], *_: Any) -> Logits:
    return Logits(torch.zeros(sum(chunk.num_sampled for chunk in chunks), 1))


def no_samples(logits: Logits, rows: list[SamplingRow]) -> Samples:
    parameters_of(rows)
    return Samples(torch.zeros(len(rows), dtype=torch.int64))


def build(running: int, drafts: int) -> Engine:
    graph_runner.StepGraph = NoGraph  # type: ignore[assignment,misc]
    torch.cuda.graph_pool_handle = lambda: None  # type: ignore[assignment,return-value]
    offline_throughput._memory = PageableMemory()
    offline_throughput._noise[False] = 0.01 * torch.randn(1 << 20, dtype=torch.bfloat16)
    config = EngineConfig(
        model=Path("random"), device="cpu", backend="triton", dtype="bfloat16", pool_mb=64, max_context=2048,
        max_running=512, prefix_cache=False, model_name="tiny",
    )  # fmt: skip
    source = LoadedAdapters()
    loaded = random_model(replace(config), Parallel())
    with torch.inference_mode():
        loaded.draft_head = HeadPasses(random_head(loaded.model, running, 2048), drafts)
    no_passes(loaded.draft_head)
    engine = Engine(config, source, loaded)
    runner = engine.runner = GraphRunner(loaded.model, engine.pool, config.max_running, loaded.max_context)
    runner.graphs.capture_first()
    runner.overlaps = True
    runner._sample_rows = no_samples  # type: ignore[method-assign]
    Runner._forward = no_forward  # type: ignore[method-assign]
    loaded.model.layer_inputs = type("Buffer", (), {"buffer": torch.zeros(8192, 3 * 64, dtype=torch.bfloat16)})()
    for index in range(ADAPTERS):
        source.add(random_adapter(engine, index, 16, MIXERS))
    return engine


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--streams", type=int, nargs="+", default=(1, 16, 64))
    parser.add_argument("--drafts", type=int, nargs="+", default=(2, 4))
    parser.add_argument("--steps", type=int, default=150)
    arguments = parser.parse_args()
    engine = build(max(arguments.streams), max(arguments.drafts))
    rows = Rows(arguments.out, "speculation_host", "timed", **machine())
    for streams in arguments.streams:
        for drafts in (0, *arguments.drafts):
            for kind in ("known", "eagle3") if drafts else ("none",):
                times = run(engine, kind, streams, drafts, arguments.steps)
                for part in PARTS:
                    if part in times:
                        value = statistics.median(times[part]) * 1e6
                        rows.add(f"{streams} streams, {kind}, {drafts}", part, value, "us")


def run(engine: Engine, kind: str, streams: int, drafts: int, steps: int) -> dict[str, list[float]]:
    head = engine._head
    drafter: Any = RandomDrafts() if kind == "known" else head
    engine.core.scheduler.speculation = FixedDepth(drafter, drafts, streams) if drafts else None
    engine.runner.drafting = engine.core.may_draft if kind == "eagle3" else None
    rnd, digests = random.Random(1), [f"sha256:{index:064x}" for index in range(ADAPTERS)]
    for index in range(streams):
        sampling = SamplingParams(max_tokens=1500, ignore_eos=True, temperature=1.0, seed=index)
        engine.add_request(GenerationRequest(f"{index}", [7] * 256, sampling, digests[index % ADAPTERS]))
    collect = InFlight.collect

    def arrive(flight: InFlight) -> Any:
        of = {sequence: iter((*of_sequence, None)) for sequence, of_sequence in flight.drafts.items()}
        guessed = [next(of[s]) if s in of else None for s in flight._sequences]
        right = [guess is not None and rnd.random() < RIGHT for guess in guessed]
        # Drafts that are left on the device are 0: no pass writes any.
        flight._tokens = torch.tensor(
            [max(guess or 0, 0) if one else 9 for one, guess in zip(right, guessed, strict=True)]
        )
        NoGraph.arrived = time.thread_time()
        return collect(flight)

    InFlight.collect = arrive  # type: ignore[method-assign]
    for _ in range(12):
        engine.step()
    NoGraph.times, whole = {}, []
    for _ in range(steps):
        began = time.thread_time()
        engine.step()
        whole.append(time.thread_time() - began)
    InFlight.collect = collect  # type: ignore[method-assign]
    times = {**NoGraph.times, "step": whole}
    NoGraph.arrived = 0.0
    for request_id in [*engine.core.requests]:
        engine.abort(request_id)
    while engine.has_work():
        engine.step()
    return times


if __name__ == "__main__":
    main()
