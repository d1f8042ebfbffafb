"""W5: overload. Requests per second that had their first token in time, at 1 to 4 times what the engine can do.

    python benchmarks/scheduling/w5.py

Step times of Llama-3.1-8B on an H200 (see fit.py), 20 tenants, 40 adapters, a first-token target of 6 s as in
S-LoRA's paper. Counted are requests that arrived between the 12th and the 54th second of 60."""

from __future__ import annotations

import random
from typing import Any

import common

SECONDS, TARGET_S, BATCH = 60.0, 6.0, 256
COUNTED = (12.0, 54.0)
LOADS = (1.0, 1.5, 2.0, 3.0, 4.0)
POLICIES = {
    "fair + slo": {"order": "fair", "admission": "slo"},
    "fcfs + slo": {"order": "fcfs", "admission": "slo"},
    "S-LoRA early abort": {"order": "early_abort", "admission": "early_abort", "starvation_s": 0.0},
    "lcfs": {"order": "lcfs", "admission": "all", "starvation_s": 0.0},
    "fcfs": {"order": "fcfs", "admission": "all"},
}


def arrivals(rate: float) -> common.Arrivals:
    rnd = random.Random(7)
    return [
        (
            at,
            common.request(
                f"r{n}",
                rnd.randint(64, 448),
                rnd.randint(64, 192),
                f"t{rnd.randrange(20)}",
                f"a{rnd.randrange(40)}",
                first_token_ms=round(TARGET_S * 1000),
            ),
        )
        for n, at in enumerate(common.gamma_times(rnd, rate, 1.0, SECONDS))
    ]


def machine() -> Any:
    return common.machine(common.H200, 16 * common.H200_PAGES, common.adapters(40))


def capacity() -> float:
    """Return requests per second with an endless queue."""
    engine = common.play(machine(), arrivals(150.0), 40.0, order="fcfs", admission="all", max_running=BATCH)
    return sum(1 for e in engine.ended if e.ended > 10.0) / (engine.clock.now - 10.0)


def main() -> None:
    rows: list[dict[str, Any]] = []
    figure, (goodput_plot, error_plot) = common.axes(2)
    most = capacity()
    rows.append(common.row("W5", "endless queue", "capacity", most, "1/s", model="llama-3.1-8b"))
    for name, policy in POLICIES.items():
        goodput, errors = [], []
        for load in LOADS:
            engine = common.play(machine(), arrivals(load * most), SECONDS + TARGET_S, max_running=BATCH, **policy)
            states = [s.request_state for s in engine.core.scheduler.running]
            began = [(p.submitted, p.first_token) for p in states]
            began += [(e.submitted, e.first_token) for e in engine.ended]
            waits = [first - at for at, first in began if first is not None and COUNTED[0] <= at < COUNTED[1]]
            counted = [e for e in engine.ended if COUNTED[0] <= e.submitted < COUNTED[1]]
            good = sum(1 for wait in waits if wait <= TARGET_S) / (COUNTED[1] - COUNTED[0])
            accuracy = engine.core.forecast.accuracy
            goodput.append(good)
            errors.append(accuracy.p90)
            refused = [e for e in counted if e.outcome == "refused"]
            at_once = sum(1 for e in refused if e.ended - e.submitted < 0.1) / max(1, len(refused))
            rows.append(
                common.row(
                    "W5",
                    f"{name}, {load:g} x capacity",
                    "goodput",
                    good,
                    "1/s",
                    model="llama-3.1-8b",
                    forecast_error_median=round(accuracy.median, 4),
                    forecast_error_p90=round(accuracy.p90, 4),
                    refused=len(refused),
                    refused_at_once=round(at_once, 3),
                )
            )
        goodput_plot.plot(LOADS, goodput, marker="o", markersize=3, label=name)
        if "slo" in name:
            error_plot.plot(LOADS, errors, marker="o", markersize=3, label=name)
    goodput_plot.set(title="Goodput, first token within 6 s", xlabel="load / capacity", ylabel="requests/s", ylim=0)
    goodput_plot.legend(fontsize=7)
    error_plot.axhline(0.2, color="k", linestyle=":", label="target")
    error_plot.set(title="Error of predicted first-token time, P90", xlabel="load / capacity", ylim=0)
    error_plot.legend(fontsize=7)
    common.write(rows)
    common.save(figure, "w5")


if __name__ == "__main__":
    main()
