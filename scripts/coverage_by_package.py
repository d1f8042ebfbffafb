"""Measure which branches of each package the tests take, and print a table.

    python -m scripts.coverage_by_package run [--ref COMMIT] --data FOLDER tests/engine tests/platform/test_keys.py …
    python -m scripts.coverage_by_package table --data FOLDER [--before FOLDER] [--write FILE]

A run adds to its folder, so that tests can be measured in parts. Tests run on the embedded defaults, in this process
only: what they start as other processes (an engine, a web process, the validation sandbox) is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NoReturn

REPOSITORY = Path(__file__).resolve().parents[1]
ROOTS = {
    "control_plane": "platform",
    "lorikeet_cli": "platform",
    "lora_engine": "inference_engine",
    "lora_kernels": "kernels",
}
SOURCE_ROOTS = ("platform", "inference_engine", "kernels")
MARKS = "not gpu and not e2e and not services and not long"
NOT_COUNTED = "*/migrations/*,*_pb2*"
Rates = dict[str, tuple[int, int]]


def run(tree: Path, data: Path, tests: list[str], deselect: str) -> NoReturn:
    """Becomes pytest below `tree`, whose coverage is added to `data`, also when a SIGINT ends it early."""
    data.mkdir(parents=True, exist_ok=True)
    sources = ",".join(str(tree / folder / package) for package, folder in ROOTS.items())
    # Before the editable install, which is another tree's.
    path = os.pathsep.join(str(tree / root) for root in SOURCE_ROOTS)
    environment = {**os.environ, "PYTHONPATH": path, "COVERAGE_FILE": str(data / "coverage")}
    coverage = [sys.executable, "-m", "coverage", "run", "--branch", "--parallel-mode", f"--source={sources}"]
    # Without --strict-markers: an older commit does not know all marks.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "--timeout=400"]
    pytest = ["-m", "pytest", *options, "-m", MARKS, *tests]
    if deselect:
        pytest += ["-k", f"not ({deselect})"]
    command = [*coverage, f"--omit={NOT_COUNTED}", *pytest]
    os.chdir(tree)
    os.execve(sys.executable, command, environment)


def run_ref(ref: str, data: Path, tests: list[str], deselect: str) -> NoReturn:
    """The tests of a commit, with its own source, in a folder that is kept for the table."""
    tree = data / "tree"
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", ref], cwd=REPOSITORY, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    run(tree, data, tests, deselect)


def rates(data: Path) -> Rates:
    """Package -> branches taken, and all branches. Raises CalledProcessError if nothing was measured."""
    with tempfile.TemporaryDirectory() as folder:
        combined, report = Path(folder) / "all", Path(folder) / "report.json"
        coverage = [sys.executable, "-m", "coverage"]
        files = [str(path) for path in data.glob("coverage.*")]
        environment = {**os.environ, "COVERAGE_FILE": str(combined)}
        subprocess.run([*coverage, "combine", "--keep", "-q", *files], env=environment, check=True)
        subprocess.run([*coverage, "json", "-i", "-q", "-o", str(report)], env=environment, check=True)
        return by_package(json.loads(report.read_text())["files"])


def by_package(files: dict[str, Any]) -> Rates:
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, measured in files.items():
        summary = measured["summary"]
        total = found[package_of(Path(file))]
        total[0] += summary["covered_branches"]
        total[1] += summary["num_branches"]
    return {package: (taken, all_) for package, (taken, all_) in sorted(found.items())}


def package_of(file: Path) -> str:
    """Return the package of a file: control_plane.identity.keys, control_plane.core, lora_engine.memory."""
    root = max(file.parts.index(name) for name in ROOTS if name in file.parts)
    inner = file.parts[root:-1]
    return ".".join(inner[: 3 if inner[0] == "control_plane" else 2])


def table(now: Rates, before: Rates | None = None) -> str:
    """Markdown: branches taken of all, by package."""
    lines = ["| package | branches | now |" + (" before |" if before is not None else "")]
    lines.append("|---|---:|---:|" + ("---:|" if before is not None else ""))
    for package in sorted({*now, *(before or {})}):
        row = f"| `{package}` | {now.get(package, (0, 0))[1]} | {_percent(now.get(package))} |"
        lines.append(row + (f" {_percent(before.get(package))} |" if before is not None else ""))
    whole = f"| all | {sum(all_ for _, all_ in now.values())} | {_percent(_sum(now))} |"
    lines.append(whole + (f" {_percent(_sum(before))} |" if before is not None else ""))
    return "\n".join(lines) + "\n"


def _sum(found: Rates) -> tuple[int, int]:
    return sum(taken for taken, _ in found.values()), sum(all_ for _, all_ in found.values())


def _percent(pair: tuple[int, int] | None) -> str:
    return "–" if pair is None or not pair[1] else f"{100 * pair[0] / pair[1]:.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--ref", help="a commit instead of the working tree")
    runs.add_argument("--data", type=Path, required=True)
    runs.add_argument("--deselect", default="", help="an expression of pytest's -k: tests to leave out")
    runs.add_argument("tests", nargs="+")
    shows = commands.add_parser("table")
    shows.add_argument("--data", type=Path, required=True)
    shows.add_argument("--before", type=Path)
    shows.add_argument("--write", type=Path)
    asked = parser.parse_args()
    if asked.command == "run":
        data = asked.data.resolve()
        if asked.ref:
            run_ref(asked.ref, data, asked.tests, asked.deselect)
        run(REPOSITORY, data, asked.tests, asked.deselect)
    text = table(rates(asked.data), rates(asked.before) if asked.before else None)
    if asked.write:
        asked.write.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
