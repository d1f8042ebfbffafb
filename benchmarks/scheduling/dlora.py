"""Merged only, unmerged only and automatic over skew, as dLoRA's paper compares them, with the crossover points.

    python benchmarks/scheduling/dlora.py

A share of the requests uses one adapter, the rest eight others; more requests wait than can be served. Two machines:
dLoRA's (its profile of Llama-7B: 15 ms a merged step, 27 ms unmerged, 20 ms to merge, 16 sequences), where LoRA costs
the same for one token or all, and Llama-3.1-8B on one H200, where it grows with tokens and ranks. "Merged only" takes
only requests for the merged adapter into a batch, as dLoRA does (order `clustered`, one adapter); the others run on
the default order. Merging on the H200 is taken to read and write all matrices (14 GB each) at 4.2 TB/s."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import common

DLORA = common.StepTimes(step=15e-3, prompt_token=2e-5, lora=12e-3, merge=20e-3)
H200 = replace(common.H200, merge=2 * 14e9 / 4.2e12)
MACHINES: dict[str, tuple[common.StepTimes, dict[str, int], int]] = {
    "dLoRA's machine": (DLORA, {"max_running": 16, "step_tokens": 1024}, 600),
    "H200, 64 sequences": (H200, {"max_running": 64, "step_tokens": 2048}, 2400),
    "H200, 256 sequences": (H200, {"max_running": 256, "step_tokens": 4096}, 6000),
}
SKEWS = (0.11, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
POLICIES: dict[str, dict[str, Any]] = {
    "unmerged": {"mode": "unmerged"},
    "merged only": {"mode": "merged", "order": "clustered", "cluster_adapters": 1, "starvation_s": 0.0},
    "dLoRA's thresholds": {"mode": "dlora"},
    "auto": {"mode": "auto"},
}
OTHERS = 8


def measure(machine: str, skew: float, policy: dict[str, Any]) -> tuple[float, float, int]:
    """Return requests per second, the 99th percentile of the first token in seconds, and merges."""
    times, settings, count = MACHINES[machine]
    rnd = random.Random(7)
    loras = common.adapters(1 + OTHERS, ranks=(16,), pages_per_rank=0.5)
    engine = common.SimulatedEngine(
        common.machine(times, 16 * common.H200_PAGES, loras),
        prefix_cache=False,
        max_waiting=10**9,
        admission="all",
        **{"order": "fair", **settings, **policy},
    )
    for number in range(count):
        adapter = "a0" if rnd.random() < skew else f"a{rnd.randint(1, OTHERS)}"
        engine.submit(
            common.request(f"r{number}", rnd.randint(32, 256), rnd.randint(32, 256), f"t{number % 8}", adapter)
        )
    engine.run([])
    waits = [common.first_token_s(e) or 0.0 for e in engine.ended]
    return count / engine.clock.now, common.percentile(waits, 99), engine.core.merged.report.merges


def crossover(skews: tuple[float, ...], first: list[float], second: list[float]) -> float | None:
    """Return the skew, interpolated, from which the first stays the faster one; None if there is none."""
    lead = [a - b for a, b in zip(first, second, strict=True)]
    if lead[-1] <= 0:
        return None
    last = max((n for n, by in enumerate(lead) if by <= 0), default=-1)
    if last < 0:
        return skews[0]
    part = -lead[last] / (lead[last + 1] - lead[last])
    return skews[last] + part * (skews[last + 1] - skews[last])


def main() -> None:
    rows = []
    figure, plots = common.axes(len(MACHINES))
    for plot, machine in zip(plots, MACHINES, strict=True):
        speeds: dict[str, list[float]] = {}
        for name, policy in POLICIES.items():
            measured = [measure(machine, skew, policy) for skew in SKEWS]
            speeds[name] = [speed for speed, _, _ in measured]
            plot.plot(SKEWS, speeds[name], marker="o", label=name)
            for skew, (speed, wait, merges) in zip(SKEWS, measured, strict=True):
                settings = {"p99_first_token_s": round(wait, 3), "merges": merges}
                case = f"{machine}, {name}, skew {skew:g}"
                rows.append(common.row("dlora_modes", case, "requests_per_s", speed, "requests/s", **settings))
        for name in ("merged only", "auto"):
            at = crossover(SKEWS, speeds[name], speeds["unmerged"])
            rows.append(common.row("dlora_modes", f"{machine}, {name}", "crossover_skew", -1 if at is None else at, ""))
        best = [max(speeds["unmerged"][n], speeds["merged only"][n]) for n in range(len(SKEWS))]
        worst = min(auto / other for auto, other in zip(speeds["auto"], best, strict=True))
        rows.append(common.row("dlora_modes", machine, "auto_over_better_of_both_at_worst", worst, ""))
        plot.set(title=machine, xlabel="share of one adapter", ylabel="requests/s")
        plot.legend(frameon=False, fontsize=8)
    common.write(rows)
    common.save(figure, "dlora")


if __name__ == "__main__":
    main()
