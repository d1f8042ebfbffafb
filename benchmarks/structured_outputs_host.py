"""The host's cost of constrained answers, beside a device that only takes time.

    python benchmarks/structured_outputs_host.py [--out results.jsonl] [--step-ms 11] [--running 256]

The engine itself (scheduler, steps that overlap, masks, detokeniser) with `--running` answers, and in the device's
place a clock: a step takes `--step-ms` and its tokens are known when it ends. Tokens are chosen on the host, which a
device would do beside it: at random among what a mask allows, while the host waits for the step. Then the first token
of a request alone and beside the others, whose schema is new each time. Schemas and vocabulary are those of
`structured_outputs.py`, which needs a GPU.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from rows import Rows, machine, parser_of
from structured_outputs import SHARES, endless, first_token_ms, tokenizer_folder

from lora_engine.adapters.layout import TargetShapes
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.runner import InFlight, Launched, Logits, Runner
from lora_engine.memory import PagePool, PoolGeometry
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import LoadedModel
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.sampling import Samples, SamplingRow, masks_of
from lora_engine.scheduling.sequence import Chunk, Sequence
from lora_engine.text import Tokenizer

VOCAB, OUTPUT, FIRST_TOKENS = 128_256, 128, 10
CONFIG = ModelConfig.from_dict(
    {
        "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 2, "intermediate_size": 2,
        "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": VOCAB, "max_position_embeddings": 4096,
    }
)  # fmt: skip


class NoModel:
    """A model's description, without the model."""

    config = CONFIG
    merged = None


class TimedLaunch(Launched):
    """Computing until its time is over."""

    def __init__(self, sequences: list[Sequence], logits: Logits, ends_at: float) -> None:
        super().__init__(sequences, logits)
        self.ends_at = ends_at

    @property
    def is_computing(self) -> bool:
        return time.perf_counter() < self.ends_at


class TimedFlight(InFlight):
    """A step whose tokens are known when its time is over."""

    ends_at = 0.0
    rnd = random.Random(1)

    def collect(self) -> Any:
        """Tokens are chosen before the wait, when a device would: with nothing else for the host to do."""
        self._tokens.copy_(torch.tensor([self._choose(row) for row in self._rows]))
        time.sleep(max(0.0, self.ends_at - time.perf_counter()))
        return super().collect()

    def _choose(self, row: SamplingRow) -> int:
        if row.mask is None:
            return self.rnd.randrange(VOCAB - 1)
        words = row.mask.nonzero()[0]
        word = int(words[self.rnd.randrange(len(words))])
        value = int(row.mask[word]) & 0xFFFFFFFF
        return word * 32 + self.rnd.choice([bit for bit in range(32) if value >> bit & 1])


class TimedRunner(Runner):
    """A runner whose steps only take time, in place of a device."""

    def __init__(self, pool: PagePool, step_s: float, running: int) -> None:
        super().__init__(NoModel(), pool, running)  # type: ignore[arg-type]
        self.overlaps = True
        self._step_s = step_s
        self._free_at = 0.0

    def launch(self, chunks: Iterable[Chunk], *_: Any, **__: Any) -> Launched:
        self._free_at = max(self._free_at, time.perf_counter()) + self._step_s
        sampling = [chunk.sequence for chunk in chunks if chunk.samples]
        return TimedLaunch(sampling, Logits(torch.zeros(1, 1)), self._free_at)

    def sample(self, launched: Launched, deferred: Collection[Sequence] = ()) -> InFlight:
        assert isinstance(launched, TimedLaunch)
        rows = launched.rows
        masks_of(rows)
        tokens = torch.zeros(len(rows), dtype=torch.int64)
        # A device that finished before it knew what to sample has been idle since.
        self._free_at = max(self._free_at, time.perf_counter())
        flight = TimedFlight(launched.sequences, rows, Samples(tokens), None, deferred)
        flight.ends_at = self._free_at
        return flight


def build(step_s: float, running: int) -> Engine:
    pool = PagePool(PoolGeometry(1, 16, 1, 2), 30_000, torch.float32, torch.device("cpu"))
    loaded = LoadedModel(
        "timed", "sha256:0", "cpu", NoModel(), Tokenizer.load(tokenizer_folder(VOCAB)), pool,  # type: ignore[arg-type]
        TargetShapes(CONFIG.target_shapes()), 4096,
    )  # fmt: skip
    config = EngineConfig(model=Path("timed"), max_running=running, step_tokens=8192, prefix_cache=False)
    engine = Engine(config, LoadedAdapters(), loaded)
    engine.runner = TimedRunner(pool, step_s, running)
    return engine


def run(engine: Engine, name: str, share: float) -> dict[str, float]:
    grammars = [engine.grammars.compile(endless(index)) for index in range(8)] if share else []
    for index in range(engine.config.max_running):
        constrained = int((index + 1) * share) > int(index * share)
        grammar = grammars[index % 8] if constrained else None
        params = SamplingParams(max_tokens=OUTPUT, ignore_eos=True)
        engine.add_request(GenerationRequest(f"{name} {index}", [1] * 16, params, grammar=grammar))
    waits, hold, tokens = 0, engine.core.hold, 0

    def counted(sequence: Sequence) -> None:
        nonlocal waits
        waits += 1
        hold(sequence)

    engine.core.hold = counted  # type: ignore[method-assign]
    for _ in range(10):
        engine.step()
    began, processor = time.perf_counter(), time.thread_time()
    steps, ended = 0, False
    while not ended:  # all of them run until the first has its tokens
        output = engine.step()
        steps += 1
        tokens += sum(len(delta.token_ids) for delta in output.deltas)
        ended = bool(output.finished)
    seconds = time.perf_counter() - began
    for request_id in list(engine.core.requests):
        engine.abort(request_id)
    while engine.has_work():
        engine.step()
    assert all(end.error is None for end in output.finished), output.finished
    engine.core.hold = hold  # type: ignore[method-assign]
    return {
        "tokens_per_s": tokens / seconds,
        "host_ms": (time.thread_time() - processor) / steps * 1e3,
        "held": waits,
    }


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--step-ms", type=float, default=11.0)
    parser.add_argument("--running", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    engine = build(arguments.step_ms / 1e3, arguments.running)
    run(engine, "warm-up", 0.25)
    more = {"step_ms": arguments.step_ms, "running": arguments.running, **machine()}
    rows = Rows(arguments.out, "structured_outputs_host", "timed", **more)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in SHARES}
    for repeat in range(arguments.rounds):
        for name, share in SHARES.items():
            runs[name].append(run(engine, f"{name} {repeat}", share))
            print(name, runs[name][-1], flush=True)
    free = [each["tokens_per_s"] for each in runs["none constrained"]]
    for name, results in runs.items():
        rates = [each["tokens_per_s"] for each in results]
        more = {"each_run": [round(rate, 1) for rate in rates], "held": [each["held"] for each in results]}
        rows.add(name, "tokens_per_s", statistics.median(rates), "1/s", settings=more)
        rows.add(name, "host_ms", statistics.median(each["host_ms"] for each in results), "ms")
        losses = [(1 - rate / base) * 100 for rate, base in zip(rates, free, strict=True)]
        rows.add(name, "loss", statistics.median(losses), "%", settings={"each_run": [round(x, 2) for x in losses]})
    first_tokens(engine, rows)


def first_tokens(engine: Engine, rows: Rows) -> None:
    """Time the first token of a request without a schema, with a known schema, and with a new one each time."""
    engine.grammars.compile(endless("known"))
    for beside in (0, engine.config.max_running - 1):
        where = f"beside {beside}" if beside else "alone"
        for what in ("free", "known schema", "new schema"):
            times = []
            for repeat in range(FIRST_TOKENS):
                variant = f"{where} {repeat}" if what == "new schema" else "known"
                constraint = None if what == "free" else endless(variant)
                times.append(first_token_ms(engine, f"{where} {what} {repeat}", constraint, beside))
            more = {"runs": len(times), "most": round(max(times), 2)}
            rows.add(f"first token {where}, {what}", "first_token_ms", statistics.median(times), "ms", settings=more)


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
