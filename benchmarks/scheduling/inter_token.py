"""Objectives for the time between tokens: what they do for their tenant, and what they cost the others.

    python benchmarks/scheduling/inter_token.py

Step times of Llama-3.1-8B on an H200 (see fit.py). A chat tenant always has 16 requests of 256 + 200 tokens; others
always have 64 of 2,048 + 64. With and without the chat tenant's objective, for several objectives. The first seconds
are left out. `benchmarks/inter_token.py` runs the same on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import common

from lora_engine.simulation import SimulatedEngine

SECONDS, WARM_S = 60.0, 10.0
OBJECTIVES_MS = (0, 50, 30, 20, 10)
CHAT, OTHERS = (16, 256, 200), (64, 2048, 64)  # requests at once, prompt, output


class Tenant:
    """A tenant that sends a request whenever one of its requests ends."""

    def __init__(self, name: str, at_once: int, prompt: int, output: int, inter_token_ms: int = 0) -> None:
        self.name, self._at_once, self._sizes, self._slo = name, at_once, (prompt, output), inter_token_ms
        self._sent = 0

    def refill(self, ended: int, submit: Callable[[Any], object]) -> None:
        while self._sent - ended < self._at_once:
            submit(common.request(f"{self.name}-{self._sent}", *self._sizes, self.name, inter_token_ms=self._slo))
            self._sent += 1


def play(objective_ms: int) -> tuple[SimulatedEngine, dict[str, list[float]]]:
    """Run the engine; return it, and each request's token times."""
    machine = common.machine(common.H200, 16 * common.H200_PAGES)
    engine = SimulatedEngine(machine, prefix_cache=False, admission="all", max_running=256, step_tokens=4096)
    tenants = (Tenant("chat", *CHAT, objective_ms), Tenant("others", *OTHERS))
    times: dict[str, list[float]] = {}
    ended = dict.fromkeys(("chat", "others"), 0)
    seen = 0
    while engine.clock.now < SECONDS:
        for tenant in tenants:
            tenant.refill(ended[tenant.name], engine.submit)
        before = {s: s.request_state.usage.completion_tokens for s in engine.core.scheduler.running}
        for sequence in engine.step():
            if sequence.request_state.usage.completion_tokens > before.get(sequence, 0):
                times.setdefault(sequence.request.request_id, []).append(engine.clock.now)
        for end in engine.ended[seen:]:
            ended[end.request.tenant] += 1
        seen = len(engine.ended)
    return engine, times


def main() -> None:
    rows = []
    for objective in OBJECTIVES_MS:
        engine, times = play(objective)
        done = [e for e in engine.ended if e.submitted > WARM_S]
        chat = [times[e.request.request_id] for e in done if e.request.tenant == "chat"]
        gaps = [1e3 * (b - a) for times in chat for a, b in pairwise(times)]
        means = [1e3 * (times[-1] - times[0]) / (len(times) - 1) for times in chat]
        first = [common.first_token_s(e) or 0.0 for e in done if e.request.tenant == "others"]
        case = f"objective {objective} ms" if objective else "no objective"
        rate = sum(e.request.tenant == "others" and e.ended > WARM_S for e in engine.ended) / (SECONDS - WARM_S)
        figures = [
            ("p50_inter_token_ms", common.percentile(gaps, 50), "ms"),
            ("p99_inter_token_ms", common.percentile(gaps, 99), "ms"),
            ("p99_mean_of_a_request_ms", common.percentile(means, 99), "ms"),
            ("others_requests_per_s", rate, "1/s"),
            ("others_p50_first_token_s", common.percentile(first, 50), "s"),
            ("others_p99_first_token_s", common.percentile(first, 99), "s"),
        ]  # fmt: skip
        if objective:
            figures.append(("attainment", sum(mean <= objective for mean in means) / len(means), ""))
        for metric, value, unit in figures:
            rows.append(
                common.row("inter_token", case, metric, value, unit, model="llama-3.1-8b", chat=CHAT, others=OTHERS)
            )
    common.write(rows)


if __name__ == "__main__":
    main()
