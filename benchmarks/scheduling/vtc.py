"""VTC's traces: the gap in service between clients under first-come-first-served and under virtual token counters.

    python benchmarks/scheduling/vtc.py [--arena vtc_arena_real_trace.csv]

Setting of Sheng et al. (OSDI 2024): Llama-2-7B on one A10G, a pool of 10,000 tokens, 256 tokens in and out. Measure:
at every second, over the last 60 s, the sum over clients of min(most served client's service - its own, what it asked
for but did not get), in priced tokens per second (input 1, output 2)."""

from __future__ import annotations

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import common
import numpy as np

from lora_engine.scheduling.queue_policies.fair import Fair
from lora_engine.scheduling.sequence import Sequence
from lora_engine.simulation import SimulatedEngine

POOL, WINDOW_S = 10_000, 60
PAPER = {"overload": {"fcfs": 439.0, "fair": 104.0}, "arena": {"fcfs": 433.0, "fair": 252.0}}
SETTINGS: dict[str, Any] = {
    "max_running": 64,
    "step_tokens": 1024,
    "admission": "all",
    "fair_slack": 0.0,
    "adapter_price": 0.0,
}


def served_by_second(
    order: str, arrivals: common.Arrivals, seconds: int
) -> tuple[dict[str, np.ndarray], SimulatedEngine]:
    """Return each client's priced service per second."""
    engine = SimulatedEngine(
        common.machine(common.A10G, POOL), prefix_cache=False, max_waiting=10**9, order=order, **SETTINGS
    )
    service: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(seconds))
    known: dict[Sequence, int] = {}
    queue = list(reversed(arrivals))
    while engine.clock.now < seconds - 1:
        while queue and queue[-1][0] <= engine.clock.now:
            at, request = queue.pop()
            engine.submit(request, at)
        if not engine.has_work():
            engine.clock.now = queue[-1][0] if queue else seconds
            continue
        now = int(engine.clock.now)
        for sequence, chunk in engine.step().items():
            begun = max(sequence.num_computed - chunk.tokens, known.get(sequence, 0))  # recomputed tokens do not count
            known[sequence] = max(begun, sequence.num_computed)
            prompt = max(0, min(sequence.num_prompt, sequence.num_computed) - begun)
            output = chunk.tokens and sequence.num_computed + 1 == len(sequence.token_ids)
            service[sequence.request.tenant][now] += prompt + 2 * output
    return service, engine


def demand_by_second(arrivals: common.Arrivals, seconds: int) -> dict[str, np.ndarray]:
    demand: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(seconds))
    for at, request in arrivals:
        if at < seconds:
            demand[request.tenant][int(at)] += len(request.prompt_token_ids) + 2 * request.sampling.max_tokens
    return demand


def gaps(service: dict[str, np.ndarray], demand: dict[str, np.ndarray], seconds: int) -> np.ndarray:
    """Return the paper's measure for each second from the first full window on."""
    clients = sorted(demand)
    zero = np.zeros(seconds)
    box = np.ones(WINDOW_S) / WINDOW_S
    got = np.array([np.convolve(service.get(c, zero), box, "valid") for c in clients])
    requested = np.array([np.convolve(demand[c], box, "valid") for c in clients])
    return np.minimum(got.max(axis=0) - got, np.abs(requested - got)).sum(axis=0)


def steady(rates: dict[str, float], seconds: float, weights: dict[str, float] | None = None) -> common.Arrivals:
    rnd, out = random.Random(0), []
    for client, rate in rates.items():
        weight = (weights or {}).get(client, 1.0)
        for n in range(int(rate * seconds)):
            at = n / rate + rnd.random() * 0.01
            out.append((at, common.request(f"{client}-{n}", 256, 256, client, weight=weight)))
    return sorted(out, key=lambda pair: pair[0])


def arena(path: Path) -> common.Arrivals:
    """Read the trace of the paper's repository: ``req_time_s,adapter,prompt_len,output_len``; an adapter is a
    client.
    """
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return [
        (
            float(r["req_time_s"]),
            common.request(str(n), max(1, int(r["prompt_len"])), max(1, int(r["output_len"])), r["adapter"]),
        )
        for n, r in enumerate(rows)
    ]


def compare(case: str, arrivals: common.Arrivals, seconds: int, plot: Any) -> list[dict[str, Any]]:
    rows = []
    demand = demand_by_second(arrivals, seconds)
    for order, colour in (("fcfs", "tab:gray"), ("fair", "tab:blue")):
        service, _ = served_by_second(order, arrivals, seconds)
        gap = gaps(service, demand, seconds)
        rate = sum(s.sum() for s in service.values()) / seconds
        plot.plot(range(WINDOW_S - 1, seconds), gap, color=colour, label=order)
        paper = PAPER[case][order]
        plot.axhline(paper, color=colour, linestyle=":", label=f"paper's mean, {order}")
        rows.append(
            common.row(
                "vtc",
                f"{case}, {order}",
                "mean_gap",
                float(gap.mean()),
                "priced tokens/s",
                paper=paper,
                max_gap=round(float(gap.max()), 1),
                service_per_s=round(rate, 1),
            )
        )
    plot.set(title=f"VTC, {case}: gap in service", xlabel="s", ylabel="priced tokens/s")
    plot.legend(fontsize=7)
    return rows


def weighted(plot: Any) -> list[dict[str, Any]]:
    weights = {f"c{n}": float(n) for n in range(1, 5)}
    arrivals = steady({"c1": 2.0, "c2": 2.0, "c3": 2.0, "c4": 2.0}, 360, weights)
    service, engine = served_by_second("fair", arrivals, 360)
    assert isinstance(engine.core.queue.foreground, Fair)
    totals = np.array([service[c].sum() for c in sorted(service)])
    shares = totals / totals.sum()
    plot.bar(range(1, 5), shares, color="tab:blue", label="ours")
    plot.plot(range(1, 5), np.arange(1, 5) / 10, "k_", markersize=30, label="by weight, as in the paper")
    plot.set(title="VTC, weights 1:2:3:4", xlabel="weight", ylabel="share of service")
    plot.legend(fontsize=7)
    worst = float(np.abs(shares / (np.arange(1, 5) / 10) - 1).max())
    return [
        common.row(
            "vtc",
            "weights 1:2:3:4",
            "worst_relative_error_of_share",
            worst,
            "",
            shares=[round(float(s), 4) for s in shares],
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", type=Path)
    path = parser.parse_args().arena
    figure, plots = common.axes(3 if path else 2)
    rows = compare("overload", steady({"light": 1.5, "heavy": 3.0}, 360), 360, plots[0])
    rows += weighted(plots[1])
    if path:
        rows += compare("arena", arena(path), 600, plots[2])
    common.write(rows)
    common.save(figure, "vtc")


if __name__ == "__main__":
    main()
