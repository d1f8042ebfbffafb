"""The time to plan migrations, and the plan's distance from the relaxation.

    python benchmarks/scheduling/migration_program.py [--requests 100 500 1000] [--problems 40]

32 hosts, of which a few have most requests; half of these wait. The product's program over four hosts of either end, on
one core: building, solving, rounding. Beside it the integer program itself with a gap of a tenth allowed, and how long
an event loop was kept from running while plans were made on a thread."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import time
from collections import Counter
from typing import Any

import common
import highspy

from control_plane.fleet.routing.migration import HostNow, Imbalance, OpenRequest, Program, Rates

HOSTS, MAX_HOSTS, GAP, PATIENCE_S = 32, 4, 0.1, 0.05


def problem(count: int, seed: int) -> tuple[list[HostNow], list[OpenRequest], dict[str, float]]:
    """Return a problem of `count` requests that wait at the busy hosts, and as many that run anywhere."""
    rnd, names = random.Random(seed), [f"h{n}" for n in range(HOSTS)]
    requests = []
    for number in range(2 * count):
        waits = number < count
        at = names[number % MAX_HOSTS] if waits else rnd.choice(names)
        hosts = frozenset({at, *rnd.sample(names, 8)})
        output = 0 if waits else rnd.randint(1, 400)
        requests.append(
            OpenRequest(f"r{number}", at, hosts, rnd.randint(10, 4000), output, rnd.lognormvariate(4.9, 0.9))
        )
    waiting = Counter(request.host for request in requests if not request.output_tokens)
    running = Counter(request.host for request in requests if request.output_tokens)
    hosts = [
        HostNow(name, waiting[name], running[name], 2000.0 + 500 * rnd.random(), 4e-5, 60 * running[name], 50_000)
        for name in names
    ]
    rates = Rates()
    rates.observe(hosts, 1.0)
    return hosts, requests, rates.of(hosts)


def integer(made: Imbalance) -> tuple[float, str]:
    """Return the milliseconds of the exact solver, and its status."""
    begun, lp = time.perf_counter(), made.program()
    placed = lp.num_col_ - 1
    lp.integrality_ = [highspy.HighsVarType.kInteger] * placed + [highspy.HighsVarType.kContinuous]
    solver = highspy.Highs()
    limits = (("output_flag", False), ("threads", 1), ("time_limit", PATIENCE_S), ("mip_rel_gap", GAP))
    for name, value in limits:
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    return 1000 * (time.perf_counter() - begun), solver.getModelStatus().name


async def longest_pause(instances: list[tuple[Any, ...]]) -> float:
    """Return the longest time, in milliseconds, that this loop stood still while plans were made on a thread."""
    longest, last = 0.0, time.perf_counter()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    looking = asyncio.create_task(watch())
    for arguments in instances:
        await asyncio.to_thread(Program(MAX_HOSTS).moves, *arguments)
    looking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    return 1000 * longest


def measure(count: int, problems: int) -> dict[str, Any]:
    took, busy, gaps, moved, whole, ended = [], [], [], [], [], Counter[str]()
    instances = [problem(count, seed) for seed in range(problems)]
    Program(MAX_HOSTS).moves(*instances[0])  # the solver is loaded
    for arguments in instances:
        begun, processor = time.perf_counter(), time.process_time()
        plan = Program(MAX_HOSTS).moves(*arguments)
        took.append(1000 * (time.perf_counter() - begun))
        busy.append(1000 * (time.process_time() - processor))
        gaps.append(plan.after_s / plan.relaxed_s - 1 if plan.relaxed_s else 0.0)
        moved.append(len(plan.to))
        made = Imbalance.of(*arguments, MAX_HOSTS)
        assert made is not None
        milliseconds, status = integer(made)
        whole.append(milliseconds)
        ended[status] += 1
    return {
        "requests": count,
        "p50_ms": round(common.percentile(took, 50), 1),
        "p99_ms": round(common.percentile(took, 99), 1),
        "processor_p50_ms": round(common.percentile(busy, 50), 1),
        "processor_p99_ms": round(common.percentile(busy, 99), 1),
        "mean_gap": round(sum(gaps) / len(gaps), 4),
        "largest_gap": round(max(gaps), 4),
        "mean_moved": round(sum(moved) / len(moved), 1),
        "loop_pause_ms": round(asyncio.run(longest_pause(instances)), 1),
        "integer_p50_ms": round(common.percentile(whole, 50), 1),
        "integer_p99_ms": round(common.percentile(whole, 99), 1),
        "integer_ended": dict(ended),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, nargs="*", default=[100, 500, 1000])
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    rows = []
    for count in options.requests:
        figures = measure(count, options.problems)
        print(figures, flush=True)
        settings = {"hosts": HOSTS, "k": MAX_HOSTS, "problems": options.problems, **figures}
        rows.append(common.row("migration program", f"{count} requests", "p99", figures["p99_ms"], "ms", **settings))
    if not options.dry:
        common.write(rows)


if __name__ == "__main__":
    main()
