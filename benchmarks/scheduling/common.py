"""Shared parts of the scheduling benchmarks: machines with their step times, workloads, measures, result rows."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lora_engine.request import GenerationRequest, SamplingParams, Slo
from lora_engine.simulation import Machine, SimulatedAdapter, SimulatedEnd, SimulatedEngine, StepTimes

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import rows  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "scheduling.jsonl"
PLOTS = ROOT / "docs" / "images" / "scheduling"

# Llama-3.1-8B in bf16 on one H200; fit.py derives these from measured steps and shows how well they fit.
H200 = StepTimes(
    step=4.07e-3, sequence=1.31e-5, prompt_token=3.71e-5, context_token=3.12e-8, rank=1.15e-7, distinct_rank=2.69e-7
)
H200_PAGES = 50_000  # 16 tokens each: what 139 GiB leave beside the weights, kept low so that traces fill it

# Llama-2-7B on one A10G, as the papers used: step times chosen so that S-LoRA's setting S2 saturates where its paper
# measured it (about 1.7 requests/s of 260 + 260 tokens in a pool of 14,500 tokens).
A10G = StepTimes(step=30e-3, sequence=0.5e-3, prompt_token=0.22e-3, distinct_rank=3.5e-6)
A10G_COPY_PAGE_S = 0.8e-3  # 8.4 MB over PCIe: an adapter of rank 64 in 13 ms

Arrivals = list[tuple[float, GenerationRequest]]


def adapters(count: int, ranks: Sequence[int] = (64, 32, 16, 8), pages_per_rank: float = 4.0) -> list[SimulatedAdapter]:
    """Return adapters ``a0``, ``a1``, …: ranks round-robin, pages in proportion."""
    chosen = [ranks[n % len(ranks)] for n in range(count)]
    return [SimulatedAdapter(f"a{n}", rank, max(1, round(rank * pages_per_rank))) for n, rank in enumerate(chosen)]


def machine(
    times: StepTimes, pool_tokens: int, loras: list[SimulatedAdapter] | None = None, **speeds: float
) -> Machine:
    return Machine(times, pool_tokens // 16 + 1, loras or [], **speeds)


def request(name: str, prompt: int, output: int, tenant: str = "", adapter: str = "", **slo: Any) -> GenerationRequest:
    sampling = SamplingParams(max_tokens=output, ignore_eos=True)
    return GenerationRequest(name, [1] * prompt, sampling, adapter, tenant=tenant, slo=Slo(**slo))


def gamma_times(rnd: random.Random, rate: float, cv: float, seconds: float) -> list[float]:
    """Return arrival times with gamma-distributed gaps: mean ``1 / rate``, coefficient of variation ``cv``."""
    now, times = 0.0, []
    shape = 1 / cv**2
    while True:
        now += rnd.gammavariate(shape, cv**2 / rate)
        if now >= seconds:
            return times
        times.append(now)


def first_token_s(ended: SimulatedEnd) -> float | None:
    return None if ended.first_token is None else ended.first_token - ended.submitted


def percentile(values: Iterable[float], q: float) -> float:
    return float(np.percentile(list(values), q))


def row(workload: str, case: str, metric: str, value: float, unit: str, **settings: Any) -> rows.Row:
    model, gpu, gpus = (settings.pop(name, none) for name, none in (("model", "simulated"), ("gpu", None), ("gpus", 0)))
    made = rows.row(workload, case, metric, value, unit, settings, model=model, digits=6)
    return {**made, "gpu": gpu, "gpus": gpus}


def slowed(times: StepTimes) -> StepTimes:
    """Return the step times of a machine at half the speed."""
    return replace(times, step=2 * times.step, sequence=2 * times.sequence, prompt_token=2 * times.prompt_token)


def run_until(engine: SimulatedEngine, now: float) -> None:
    while engine.has_work() and engine.clock.now < now:
        engine.step()
    if not engine.has_work():
        engine.clock.now = max(engine.clock.now, now)


def write(entries: list[dict[str, Any]], path: Path | None = None) -> None:
    """Append rows to a file (None: that of all scheduling benchmarks), and print them."""
    path = path or RESULTS
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for entry in entries:
            file.write(json.dumps(entry) + "\n")
            print(
                f"{entry['workload']:14} {entry['case']:44} {entry['metric']:34} {entry['value']:10.4g} {entry['unit']}"
            )


def play(machine: Machine, arrivals: Arrivals, until: float = float("inf"), **settings: Any) -> SimulatedEngine:
    """Run a simulated engine over the arrivals, without a prefix cache, since these prompts are all alike."""
    engine = SimulatedEngine(machine, prefix_cache=False, max_waiting=10**9, **settings)
    engine.run(arrivals, until=until)
    return engine


def axes(count: int, height: float = 3.2) -> Any:
    """Return a figure and a row of empty plots."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, plots = pyplot.subplots(1, count, figsize=(4.2 * count, height), layout="constrained", squeeze=False)
    for plot in plots[0]:
        plot.spines[["top", "right"]].set_visible(False)
        plot.grid(axis="y", alpha=0.3)
    return figure, plots[0]


def save(figure: Any, name: str) -> None:
    PLOTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
