"""Measure the processor time of `make test` by stage and by test file, and print tables.

    python -m scripts.suite_cost                       every stage, one after the other
    python -m scripts.suite_cost units "end to end"    only these
    python -m scripts.suite_cost --top 60 --data cost  the most expensive files, from what an earlier run wrote

Processor time, unlike elapsed time, barely depends on what else runs on the machine. The time of a test includes its
process's and that of every process that it started, or that a fixture started earlier and that worked meanwhile. The
time of PostgreSQL and Redis is known for all stages together only.

As a plugin of pytest (`-p scripts.suite_cost` with LORIKEET_COST_FILE set), it adds a line for each test to that file.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from scripts.full_run import Stage

COST_FILE = "LORIKEET_COST_FILE"
COLLECTION = "collection, in each worker"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Return the processor time of this process, of all that it started, and of what those started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + sum(map(_seconds, _running()))


def _running() -> Iterable[int]:
    """Yield the running processes below this one."""
    waiting = [os.getpid()]
    while waiting:
        try:
            tasks = list(Path(f"/proc/{waiting.pop()}/task").iterdir())
        except OSError:  # it has just ended
            continue
        for task in tasks:
            try:
                children = [int(number) for number in (task / "children").read_text().split()]
            except OSError:
                continue
            yield from children
            waiting += children


def _seconds(process: int) -> float:
    """Return the processor time of a process and of the children that it waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S


def _add(name: str, before: float) -> None:
    if file := os.environ.get(COST_FILE):
        with Path(file).open("a") as lines:
            lines.write(json.dumps([name, round(processor_seconds() - before, 3)]) + "\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = processor_seconds()
    try:
        return (yield)
    finally:
        _add(item.nodeid, before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        _add(COLLECTION, 0.0)


def measure(stage: Stage, data: Path) -> None:
    """Run a stage. Write the time of all its processes, and of its tests, to files of `data`."""
    from scripts.full_run import environment

    command, costs = list(stage.command), data / f"{stage.name}.tests"
    costs.unlink(missing_ok=True)
    if "pytest" in command:
        at = command.index("pytest") + 1
        command[at:at] = ["-p", "scripts.suite_cost"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with (data / f"{stage.name}.log").open("w") as log:
        code = subprocess.call(
            command, cwd=stage.cwd, env={**environment(stage), COST_FILE: str(costs)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    (data / f"{stage.name}.total").write_text(f"{seconds:.1f}")
    print(f"{stage.name}: {seconds:.0f} s{'' if code == 0 else f', failed: see {log.name}'}", flush=True)


def print_tables(data: Path, top: int) -> None:
    totals = {file.stem: float(file.read_text()) for file in data.glob("*.total")}
    print("\n| stage | processor seconds |\n|---|---|")
    for name, seconds in sorted(totals.items(), key=lambda row: -row[1]):
        print(f"| {name} | {seconds:.0f} |")
    print(f"| together | {sum(totals.values()):.0f} |")
    files: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for costs in data.glob("*.tests"):
        for name, seconds in map(json.loads, costs.read_text().splitlines()):
            file = f"{costs.stem}: {name}" if name == COLLECTION else name.partition("::")[0]
            files[file] += seconds
            tests[file] += 1
    print("\n| file | processor seconds | tests |\n|---|---|---|")
    for file, seconds in files.most_common(top):
        print(f"| {file} | {seconds:.1f} | {tests[file]} |")


def main() -> int:
    from scripts.full_run import POSTGRES_SETTINGS, stages
    from scripts.test_services import services

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help="names of stages of scripts/full_run.py")
    parser.add_argument("--top", type=int, default=60, help="files in the table")
    parser.add_argument("--data", type=Path, help="folder for results; without stages, only print those in it")
    options = parser.parse_args()
    if options.data and options.data.exists() and not options.stages:
        print_tables(options.data, options.top)
        return 0
    data: Path = options.data or Path(tempfile.mkdtemp(prefix="lorikeet-cost-"))
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as reports, services(**POSTGRES_SETTINGS) as running:
        every = {stage.name: stage for stage in stages(running, Path(reports))}
        if unknown := set(options.stages) - every.keys():
            parser.error(f"There is no stage {', '.join(unknown)}. The stages are {', '.join(every)}.")
        for name in options.stages or every:
            measure(every[name], data)
        stages_end = resource.getrusage(resource.RUSAGE_CHILDREN)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"PostgreSQL and Redis: {after.ru_utime + after.ru_stime - stages_end.ru_utime - stages_end.ru_stime:.0f} s")
    print_tables(data, options.top)
    return 0


if __name__ == "__main__":
    sys.exit(main())
