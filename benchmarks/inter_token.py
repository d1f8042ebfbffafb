"""Objectives for the time between tokens on one GPU: what they do for their tenant, and what they cost the others.

    python benchmarks/inter_token.py --out benchmarks/results/inter_token.jsonl [--objective-ms 30 20 8] [--seconds 30]

Llama-3.1-8B shape, random weights. A chat tenant always has 16 requests of 256 + 200 tokens; others always have 64 of
2,048 + 64. The same engine runs them without an objective, with each, and without one again. The first fifth of each
run is left out: counted are the tokens, first tokens and ends after it. Attainment is the share of chat requests whose
mean time between tokens is within the objective.
"""

from __future__ import annotations

import logging
import random
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from offline_throughput import build_engine
from rows import Rows, parser_of

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams, Slo

CHAT, OTHERS = (16, 256, 200), (64, 2048, 64)  # requests at once, prompt, output


class Load:
    """Requests that keep each tenant's number in the engine constant, and the time of every token."""

    def __init__(self, engine: Engine, label: str, objective_ms: int) -> None:
        self.engine, self._label, self._objective_ms = engine, label, objective_ms
        self._rnd = random.Random(3)
        self._sent = 0
        self.live: dict[str, set[str]] = {"chat": set(), "others": set()}
        self.sent_at: dict[str, float] = {}
        self.times: dict[str, list[float]] = {}
        self.done: dict[str, float] = {}

    def refill(self) -> None:
        for tenant, (at_once, prompt, output) in (("chat", CHAT), ("others", OTHERS)):
            while len(self.live[tenant]) < at_once:
                self._sent += 1
                name = f"{self._label} {tenant} {self._sent}"
                tokens = [self._rnd.randrange(self.engine.model_config.vocab_size) for _ in range(prompt)]
                slo = Slo(inter_token_ms=self._objective_ms if tenant == "chat" else 0)
                sampling = SamplingParams(max_tokens=output, ignore_eos=True)
                self.engine.add_request(GenerationRequest(name, tokens, sampling, tenant=tenant, slo=slo))
                self.live[tenant].add(name)
                self.sent_at[name] = time.perf_counter()

    def step(self) -> None:
        output = self.engine.step()
        now = time.perf_counter()
        for delta in output.deltas:
            self.times.setdefault(delta.request_id, []).append(now)
        for end in output.finished:
            for names in self.live.values():
                names.discard(end.request_id)
            if end.usage.outcome == "finished":
                self.done[end.request_id] = now

    def run(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self.refill()
            self.step()

    def end(self) -> None:
        for names in list(self.live.values()):
            for name in list(names):
                self.engine.abort(name)
        while self.engine.has_work():
            self.step()


def measure(engine: Engine, rows: Rows, case: str, objective_ms: int, against: list[int], seconds: float) -> None:
    """Measure one case. ``against``: the objectives that attainment is judged by."""
    load = Load(engine, case, objective_ms)
    began, limited = time.perf_counter(), engine.prefill_budget_report().limited_steps
    load.run(seconds)
    warm, stop = began + seconds / 5, time.perf_counter()
    report = engine.prefill_budget_report()
    load.end()
    times = {name: at for name, at in load.times.items() if at[-1] >= warm}
    chat = {name: at for name, at in times.items() if " chat " in name}
    gaps = [1e3 * (b - a) for at in chat.values() for a, b in pairwise(at) if warm <= b <= stop]
    ended = [name for name, at in load.done.items() if warm <= at <= stop]
    means = [1e3 * (at[-1] - at[0]) / (len(at) - 1) for name, at in chat.items() if name in ended]
    first = [at[0] - load.sent_at[name] for name, at in times.items() if " others " in name and warm <= at[0] <= stop]
    others = sum(" others " in name for name in ended)
    limited = report.limited_steps - limited
    settings = {"objective_ms": objective_ms, "chat_requests": len(means), "limited_steps": limited}
    for metric, value, unit in (
        *((f"attainment_of_{one}_ms", float(np.mean(np.array(means) <= one)), "") for one in against),
        ("p50_inter_token_ms", _percentile(gaps, 50), "ms"),
        ("p99_inter_token_ms", _percentile(gaps, 99), "ms"),
        ("p99_mean_of_a_request_ms", _percentile(means, 99), "ms"),
        ("others_requests_per_s", others / (stop - warm), "1/s"),
        ("others_p50_first_token_s", _percentile(first, 50), "s"),
        ("others_p99_first_token_s", _percentile(first, 99), "s"),
    ):
        rows.add(case, metric, value, unit, settings=settings)


def _percentile(values: list[float], q: float) -> float:
    """Return a percentile, or NaN without values, so that one empty case does not lose the others."""
    return float(np.percentile(values, q)) if values else float("nan")


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--objective-ms", type=int, nargs="+", default=[30, 20, 8])
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of each run")
    arguments = parser.parse_args()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=4096, max_running=96, step_tokens=4096, prefix_cache=False,
        admission="all",
    )  # fmt: skip
    started = time.perf_counter()
    engine = build_engine(arguments.model, config, LoadedAdapters())
    print(f"engine up in {time.perf_counter() - started:.1f} s", flush=True)
    warm_up = Load(engine, "warm-up", 0)
    warm_up.run(5.0)
    warm_up.end()
    torch.cuda.synchronize()
    rows = Rows(arguments.out, "inter_token", arguments.model, chat=CHAT, others=OTHERS, seconds=arguments.seconds)
    objectives = arguments.objective_ms
    measure(engine, rows, "no objective", 0, objectives, arguments.seconds)
    for objective in objectives:
        measure(engine, rows, f"objective {objective} ms", objective, [objective], arguments.seconds)
    measure(engine, rows, "no objective again", 0, objectives, arguments.seconds)
    engine.core.check()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    main()
