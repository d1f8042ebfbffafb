"""Scheduling's cost on the host: seconds of one core per step, at 256 running and 10,000 waiting requests.

    python benchmarks/scheduling/step_cost.py [--profile]

1,000 tenants, 1,000 adapters, the default policies (fair, slo). Everything that scheduling adds to a step is timed:
what arrived is judged and queued, waiting requests are judged again, the step is planned, charged and learned from.
As many requests come as end, so that the queue stays as long."""

from __future__ import annotations

import argparse
import cProfile
import gc
import random
import time

import common
import numpy as np

from lora_engine.simulation import SimulatedEngine

RUNNING, WAITING, TENANTS = 256, 10_000, 1_000


def submit(engine: SimulatedEngine, rnd: random.Random, number: int, target_ms: int) -> float:
    new = common.request(
        f"r{number}",
        rnd.randint(64, 512),
        rnd.randint(64, 256),
        f"t{rnd.randrange(TENANTS)}",
        f"a{rnd.randrange(TENANTS)}",
        first_token_ms=target_ms,
        weight=rnd.choice([1.0, 2.0]),
    )
    began = time.thread_time()
    engine.submit(new)
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    rnd = random.Random(0)
    machine = common.machine(common.H200, 16 * common.H200_PAGES, common.adapters(TENANTS, pages_per_rank=0.5))
    engine = SimulatedEngine(machine, max_running=RUNNING, max_waiting=20_000, prefix_cache=False)
    number = 0
    while number < RUNNING + WAITING:
        # Far targets: they are judged again and again, but not refused.
        submit(engine, rnd, number, 10_000_000)
        number += 1
    for _ in range(2000):  # until the adapters are on the device, and the first judgements are over
        engine.step()
        while len(engine.core.queue) < WAITING:
            submit(engine, rnd, number, 10_000_000)
            number += 1
    first = number
    arriving: list[float] = []
    planning: list[float] = []
    profiler = cProfile.Profile()
    gc.collect()
    gc.freeze()
    for _ in range(arguments.steps):
        spent = 0.0
        while len(engine.core.queue) < WAITING:
            spent += submit(engine, rnd, number, 10_000_000)
            number += 1
        arriving.append(spent)
        if arguments.profile:
            profiler.enable()
        began = time.thread_time()
        plan = engine.core.schedule()
        engine.core.forecast.launched(plan.work)
        engine.core.forecast.measured(plan.work, 0.02)
        planning.append(time.thread_time() - began)
        profiler.disable()
        assert not any(ended.error for ended in engine.ended)
        engine.clock.now += 0.02
        engine.ended.clear()
        sampling = [chunk.sequence for chunk in plan.chunks.values() if chunk.samples]
        for chunk in plan.chunks.values():
            chunk.sequence.advance(chunk.tokens)
        engine.take_tokens(sampling)
    if arguments.profile:
        profiler.print_stats("tottime")
    whole = (np.array(arriving) + np.array(planning)) * 1e3
    settings = {
        "running": len(engine.core.scheduler.running),
        "waiting": len(engine.core.queue),
        "tenants": TENANTS,
        "steps": len(planning),
        "p99_ms": round(float(np.percentile(whole, 99)), 3),
        "planning_mean_ms": round(float(np.mean(planning)) * 1e3, 3),
        "arrivals_mean_ms": round(float(np.mean(arriving)) * 1e3, 3),
        "arrivals_per_step": round((number - first) / arguments.steps, 2),
    }
    common.write(
        [
            common.row(
                "scheduler_cost",
                "256 running, 10,000 waiting",
                "step_cost_mean_ms",
                float(whole.mean()),
                "ms",
                **settings,
            ),
            common.row(
                "scheduler_cost",
                "256 running, 10,000 waiting",
                "step_cost_p50_ms",
                float(np.median(whole)),
                "ms",
                **settings,
            ),
        ]
    )


if __name__ == "__main__":
    main()
