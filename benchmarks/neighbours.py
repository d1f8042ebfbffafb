"""The first token of a tenant with nothing running, behind a flood of another tenant, on one GPU.

    python benchmarks/neighbours.py --out benchmarks/results/neighbours.jsonl [--floods choices memory] [--seconds 12]

Llama-3.1-8B shape, random weights. The quiet tenant's requests, one of 64 tokens, one of 4,096 and one of 64 with an
adapter that is in host memory only, come one after another, each with nothing of its tenant in the engine: first
alone, then behind each flood, with the guard (``guaranteed_share``) and without. Without, a request that has no token
after `--patience` seconds is aborted and counted with that. The bound is 1.5 times the time alone, which has the
adapter's load, and the longest step meanwhile twice. Each flood's tokens per second, prompts and answers, are measured
while nobody else is there, in alternation with the guard and without.
"""

from __future__ import annotations

import logging
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from offline_throughput import MIXERS, build_engine, random_adapter
from rows import Rows, parser_of

from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, Pooling, PoolingKind, SamplingParams, Slo, StepOutput

ADAPTERS = 96
GUARDED, UNGUARDED = 0.5, 0.0
TURN_S = 0.25  # of one share


@dataclass(frozen=True)
class Flood:
    """The requests that one tenant keeps in the engine."""

    requests: int
    prompt: int = 64
    output: int = 400  # on average, from half to one and a half times as many, so that the flood has no phases
    choices: int = 1
    inputs: int = 0  # of an embedding request
    adapters: int = 0
    background: bool = False


FLOODS = {
    "choices": Flood(64, choices=8),
    "long outputs": Flood(512, output=4000),
    "short requests": Flood(1024, prompt=16, output=4),
    "many adapters": Flood(512, adapters=ADAPTERS),
    "huge prompts": Flood(256, prompt=8000, output=64),
    "memory": Flood(400, prompt=2000, output=2000),
    "batch": Flood(512, prompt=1000, background=True),
    "embeddings": Flood(32, prompt=512, inputs=32),
}
PROBES = {"64 tokens": (64, False), "4096 tokens": (4096, False), "64 tokens, adapter": (64, True)}


class Traffic:
    """An engine with a flood of requests, and the times of its outputs."""

    def __init__(self, engine: Engine, source: LoadedAdapters, adapters: list[PackedAdapter]) -> None:
        self.engine, self._source, self._adapters = engine, source, adapters
        self._quiet = adapters[-1]
        self._rnd = random.Random(7)
        self._sent = 0
        self._live: set[str] = set()
        self.flood: Flood | None = None
        self.slowest_step = 0.0
        self._adding_s = 0.0  # time of making the flood's requests, which is not the engine's

    def guard(self, share: float) -> None:
        """Switch the guard between runs, since a start of the engine takes longer than they do."""
        self.engine.core.queue.foreground._shares._guaranteed = share  # type: ignore[attr-defined]

    def begin(self, flood: Flood, seconds: float) -> None:
        self.flood = flood
        self.run(seconds)

    def end(self) -> None:
        self.flood = None
        for name in [*self.engine.core.requests]:
            self.engine.abort(name)
        while self.engine.has_work():
            self.step()
        self._live.clear()
        self.engine.core.check()

    def run(self, seconds: float) -> float:
        """Return the flood's tokens per second."""
        before, began = self._served(), time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            self.step()
        return (self._served() - before) / (now - began)

    def _served(self) -> int:
        """Number of tokens of the flood's prompts and answers so far; recomputed ones count once."""
        queue = self.engine.core.queue
        orders = (queue.foreground, queue.background)
        accounts = (account for order in orders for account in order.accounts)  # type: ignore[attr-defined]
        return sum(a.input_tokens + a.output_tokens for a in accounts if a.tenant == "flood")

    def first_token(self, probe: str, patience: float) -> float:
        """Return the seconds until the quiet tenant's first token, or ``patience``."""
        prompt, with_adapter = PROBES[probe]
        if with_adapter:
            self.engine.drop_adapter(self._quiet.digest)
        request = self._request("quiet", prompt, 4, self._quiet.digest if with_adapter else "")
        self.slowest_step, self._adding_s, began = 0.0, 0.0, time.perf_counter()
        self.engine.add_request(request)
        while time.perf_counter() < began + patience:
            output = self.step()
            if any(delta.request_id == request.request_id for delta in output.deltas):
                break
        waited = time.perf_counter() - began - self._adding_s
        self.engine.abort(request.request_id)
        self.step()
        return waited

    def step(self) -> StepOutput:
        flood, begun = self.flood, time.perf_counter()
        while flood is not None and len(self._live) < flood.requests:
            self._add(flood)
        began = time.perf_counter()
        self._adding_s += began - begun
        output = self.engine.step()
        self.slowest_step = max(self.slowest_step, time.perf_counter() - began)
        for end in output.finished:
            self._live.discard(end.request_id)
        return output

    def _add(self, flood: Flood) -> None:
        digest = self._adapters[self._sent % flood.adapters].digest if flood.adapters else ""
        output = self._rnd.randint(flood.output - flood.output // 2, flood.output + flood.output // 2)
        request = self._request("flood", flood.prompt, output, digest, background=flood.background)
        if flood.inputs:
            more = tuple(self._tokens(flood.prompt) for _ in range(flood.inputs - 1))
            request = replace(request, pooling=Pooling(PoolingKind.LAST), more_prompts=more)
        elif flood.choices > 1:
            sampling = replace(request.sampling, n=flood.choices, temperature=1.0)
            request = replace(request, sampling=sampling)
        self.engine.add_request(request)
        self._live.add(request.request_id)

    def _request(
        self, tenant: str, prompt: int, output: int, digest: str = "", *, background: bool = False
    ) -> GenerationRequest:
        self._sent += 1
        sampling = SamplingParams(max_tokens=output, ignore_eos=True)
        slo = Slo(background=background)
        return GenerationRequest(
            f"{tenant}-{self._sent}", self._tokens(prompt), sampling, digest, tenant=tenant, slo=slo
        )

    def _tokens(self, count: int) -> list[int]:
        return self._rnd.choices(range(1000, self.engine.model_config.vocab_size), k=count)


def probes(traffic: Traffic, patience: float, times: int) -> Iterator[tuple[str, list[float], float]]:
    """Send each kind of request ``times`` times; return the first tokens, and the longest step meanwhile."""
    for probe in PROBES:
        waits, slowest = [], 0.0
        for _ in range(times):
            waits.append(traffic.first_token(probe, patience))
            slowest = max(slowest, traffic.slowest_step)
            traffic.run(0.1)
            if waits[-1] >= patience:
                break
        yield probe, waits, slowest


def measure(traffic: Traffic, rows: Rows, name: str, seconds: float, patience: float, alone: dict[str, float]) -> None:
    flood = FLOODS[name]
    traffic.guard(GUARDED)
    traffic.begin(flood, seconds / 4)
    rates: dict[float, list[float]] = {GUARDED: [], UNGUARDED: []}
    rounds = round(seconds / 2 / TURN_S / 4)
    for share in (UNGUARDED, GUARDED, GUARDED, UNGUARDED) * rounds:  # contexts grow, and prompts come together
        traffic.guard(share)
        rates[share].append(traffic.run(TURN_S))
    guarded, unguarded = (statistics.mean(rates[share]) for share in (GUARDED, UNGUARDED))
    rows.add(name, "tokens_per_s", guarded, "1/s")
    rows.add(name, "tokens_per_s_without_guard", unguarded, "1/s")
    rows.add(name, "throughput_kept", guarded / unguarded, "")
    traffic.guard(GUARDED)
    for probe, waits, slowest in probes(traffic, patience, 3):
        bound = 1.5 * alone[probe] + 2 * slowest
        case = f"{name}: {probe}"
        rows.add(case, "first_token_ms", 1e3 * max(waits), "ms", settings={"bound_ms": round(1e3 * bound, 1)})
        rows.add(case, "over_bound", max(waits) / bound, "")
    traffic.guard(UNGUARDED)
    for probe, waits, _ in probes(traffic, patience, 1):
        rows.add(f"{name}: {probe}", "first_token_without_guard_ms", 1e3 * max(waits), "ms")
    traffic.end()


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--floods", nargs="+", choices=FLOODS, default=[*FLOODS])
    parser.add_argument(
        "--seconds", type=float, default=12.0, help="seconds of each flood, besides the quiet tenant's requests"
    )
    parser.add_argument("--patience", type=float, default=3.0)
    arguments = parser.parse_args()
    config = EngineConfig(model=Path("random"), device="cuda", max_context=16384, prefix_cache=False, admission="all")
    began, source = time.perf_counter(), LoadedAdapters()
    engine = build_engine(arguments.model, config, source)
    adapters = [random_adapter(engine, index, 16, MIXERS) for index in range(ADAPTERS + 1)]
    for adapter in adapters:
        source.add(adapter)
    print(f"engine up in {time.perf_counter() - began:.1f} s, {engine.pool.num_pages} pages", flush=True)
    traffic = Traffic(engine, source, adapters)
    for name in (
        "short requests",
        "huge prompts",
    ):  # some shapes of steps are compiled when they come
        traffic.begin(FLOODS[name], 3.0)
        traffic.end()
    rows = Rows(
        arguments.out, "neighbours", arguments.model, pages=engine.pool.num_pages, patience_s=arguments.patience
    )
    [*probes(traffic, arguments.patience, 1)]
    alone = {}
    for probe, waits, _ in probes(traffic, arguments.patience, 5):
        alone[probe] = statistics.median(waits)
        rows.add(f"alone: {probe}", "first_token_ms", 1e3 * alone[probe], "ms")
    for name in arguments.floods:
        measure(traffic, rows, name, arguments.seconds, arguments.patience, alone)
    torch.cuda.synchronize()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    main()
