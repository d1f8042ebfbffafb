"""LoRAX's cycle time: how long an active adapter keeps its place, against throughput and the slowest first token.

    python benchmarks/scheduling/lorax.py

Llama-2-7B on one A10G, a pool of 14,500 tokens, 32 adapters of rank 64 used alike, 8 active at a time and 12
sequences in a batch, twice as many requests as can be served for two minutes. LoRAX publishes no figures; its
documentation says that a longer cycle favours throughput and a shorter one fairness between adapters."""

from __future__ import annotations

import random
from typing import Any

import common

CYCLES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
SECONDS, ADAPTERS, ACTIVE, POOL = 120.0, 32, 8, 14_500


def arrivals(seed: int) -> common.Arrivals:
    rnd = random.Random(seed)
    return [
        (at, common.request(f"r{n}", rnd.randint(32, 256), rnd.randint(16, 128), "", f"a{rnd.randrange(ADAPTERS)}"))
        for n, at in enumerate(common.gamma_times(rnd, 6.0, 1.0, SECONDS))
    ]


def main() -> None:
    rows: list[dict[str, Any]] = []
    throughput, slowest = [], []
    for cycle in CYCLES_S:
        per_s, p99 = [], []
        for seed in (1, 2, 3):
            loras = common.adapters(ADAPTERS, ranks=(64,), pages_per_rank=0.5)
            machine = common.machine(common.A10G, POOL, loras, copy_page_s=4 * common.A10G_COPY_PAGE_S)
            engine = common.play(
                machine,
                arrivals(seed),
                order="lorax",
                admission="all",
                lorax_active=ACTIVE,
                lorax_cycle_s=cycle,
                starvation_s=0.0,
                max_running=12,
                step_tokens=1024,
            )
            per_s.append(len(engine.ended) / engine.clock.now)
            p99.append(common.percentile((common.first_token_s(e) or 0.0 for e in engine.ended), 99))
        throughput.append(sum(per_s) / 3)
        slowest.append(sum(p99) / 3)
        rows.append(
            common.row(
                "lorax_cycle",
                f"cycle {cycle:g} s",
                "requests_per_s",
                throughput[-1],
                "1/s",
                first_token_p99_s=round(slowest[-1], 3),
            )
        )
    figure, (left, right) = common.axes(2)
    left.plot(CYCLES_S, throughput, marker="o")
    left.set(title="LoRAX: throughput", xlabel="cycle time, s", xscale="log", ylabel="requests/s")
    right.plot(CYCLES_S, slowest, marker="o")
    right.set(title="LoRAX: P99 first token", xlabel="cycle time, s", xscale="log", ylabel="s")
    common.write(rows)
    common.save(figure, "lorax")


if __name__ == "__main__":
    main()
