"""W4: a well-behaved tenant beside 100 that flood the engine.

    python benchmarks/scheduling/w4.py

Step times of Llama-3.1-8B on an H200 (see fit.py), an adapter of rank 8 to 64 per tenant. The well-behaved tenant
asks for half of its share of what the engine can do. Its latency is compared with two kinds of quiet: alone on the
engine, where its steps are also shorter because nobody shares them, and beside 100 tenants that ask for 90 % of the
capacity in total."""

from __future__ import annotations

import random
from typing import Any

import common

from lora_engine.simulation import SimulatedEngine

SECONDS, WARM_S, FLOODS = 200.0, 20.0, 100


def modest_arrivals(rate: float) -> common.Arrivals:
    """Return evenly spaced arrivals, never faster than the tenant's share, so that it does not queue behind itself."""
    times = [(n + 0.5) / rate for n in range(int(SECONDS * rate))]
    return [(at, common.request(f"modest-{n}", 256, 128, "modest", "a100")) for n, at in enumerate(times)]


def tenant_arrivals(name: str, adapter: str, rate: float, seed: int) -> common.Arrivals:
    rnd = random.Random(seed)
    return [
        (at, common.request(f"{name}-{n}", rnd.randint(128, 384), rnd.randint(64, 192), name, adapter))
        for n, at in enumerate(common.gamma_times(rnd, rate, 1.0, SECONDS))
    ]


def play(order: str, batch: int, modest: float, others: float) -> SimulatedEngine:
    """Run the case. ``others``: requests per second of all other tenants together."""
    arrivals = modest_arrivals(modest)
    if others:
        for n in range(FLOODS):
            arrivals += tenant_arrivals(f"flood{n}", f"a{n}", others / FLOODS, 100 + n)
    arrivals.sort(key=lambda pair: pair[0])
    machine = common.machine(common.H200, 16 * common.H200_PAGES, common.adapters(FLOODS + 1))
    return common.play(machine, arrivals, SECONDS, order=order, admission="all", max_running=batch)


def capacity(batch: int) -> float:
    """Return requests per second when every tenant floods."""
    engine = play("fcfs", batch, 0.0001, 200.0)
    return sum(1 for e in engine.ended if e.ended > WARM_S) / (engine.clock.now - WARM_S)


def p99(engine: SimulatedEngine) -> tuple[float, float]:
    """Return the 99th percentiles of latency and first-token time of the modest tenant."""
    mine = [e for e in engine.ended if e.request.tenant == "modest" and e.submitted > WARM_S]
    return (
        common.percentile((e.ended - e.submitted for e in mine), 99),
        common.percentile((common.first_token_s(e) or 0.0 for e in mine), 99),
    )


def tokens_per_s(engine: SimulatedEngine) -> float:
    return sum(e.usage.completion_tokens for e in engine.ended) / engine.clock.now


def main() -> None:
    global SECONDS
    rows: list[dict[str, Any]] = []
    figure, plots = common.axes(2)
    for plot, batch in zip(plots, (64, 256), strict=True):
        whole, SECONDS = SECONDS, 60.0
        most = capacity(batch)
        SECONDS = whole
        modest = 0.5 * most / (FLOODS + 1)
        runs = {
            "alone": play("fair", batch, modest, 0.0),
            "90 % load": play("fair", batch, modest, 0.9 * most),
            "flood, fair": play("fair", batch, modest, 3.0 * most),
            "flood, fcfs": play("fcfs", batch, modest, 3.0 * most),
        }
        measured = {name: p99(engine) for name, engine in runs.items()}
        for name, (latency, first) in measured.items():
            rows.append(
                common.row(
                    "W4",
                    f"batch {batch}, {name}",
                    "p99_latency_s",
                    latency,
                    "s",
                    model="llama-3.1-8b",
                    first_token_p99_s=round(first, 4),
                    capacity_per_s=round(most, 2),
                )
            )
        fair = measured["flood, fair"][0]
        for quiet in ("alone", "90 % load"):
            rows.append(
                common.row(
                    "W4",
                    f"batch {batch}, flood over {quiet}",
                    "p99_latency_ratio",
                    fair / measured[quiet][0],
                    "",
                    model="llama-3.1-8b",
                    target=1.2,
                )
            )
        ratio = tokens_per_s(runs["flood, fair"]) / tokens_per_s(runs["flood, fcfs"])
        rows.append(
            common.row("W4", f"batch {batch}", "throughput_over_fcfs", ratio, "", model="llama-3.1-8b", target=0.97)
        )
        plot.bar(list(measured), [value[0] for value in measured.values()], color="tab:blue")
        plot.set(title=f"P99 latency, batch {batch}", ylabel="s", yscale="log")
        plot.tick_params(axis="x", rotation=20)
    common.write(rows)
    common.save(figure, "w4")


if __name__ == "__main__":
    main()
