"""Measure which branches of each package the tests take, and print a table.

    python -m scripts.coverage_by_package run [--ref COMMIT] --data FOLDER tests/engine tests/platform/test_keys.py …
    python -m scripts.coverage_by_package table --data FOLDER [--before FOLDER] [--write FILE]

A run adds to its folder, so that tests can be measured in parts. Tests run on the embedded defaults. Processes that
they start (an engine, a web process, the validation sandbox) are not measured.
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
# By package: branches taken, and all branches.
Rates = dict[str, tuple[int, int]]


def run(tree: Path, data: Path, tests: list[str], deselect: str) -> NoReturn:
    """Replace this process by pytest in `tree`. Its coverage is added to `data`, also if a SIGINT ends it early."""
    data.mkdir(parents=True, exist_ok=True)
    sources = ",".join(str(tree / folder / package) for package, folder in ROOTS.items())
    # This path comes before that of the editable install, which can be of another tree.
    path = os.pathsep.join(str(tree / root) for root in SOURCE_ROOTS)
    environment = {**os.environ, "PYTHONPATH": path, "COVERAGE_FILE": str(data / "coverage")}
    coverage = [sys.executable, "-m", "coverage", "run", "--branch", "--parallel-mode", f"--source={sources}"]
    # There is no --strict-markers: an older commit does not register all marks.
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "--timeout=400"]
    pytest = ["-m", "pytest", *options, "-m", MARKS, *tests]
    if deselect:
        pytest += ["-k", f"not ({deselect})"]
    command = [*coverage, f"--omit={NOT_COUNTED}", *pytest]
    os.chdir(tree)
    os.execve(sys.executable, command, environment)


def run_ref(ref: str, data: Path, tests: list[str], deselect: str) -> NoReturn:
    """Run tests of a commit with the sources of that commit. Their folder stays, because `table` reads it."""
    tree = data / "tree"
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", ref], cwd=REPOSITORY, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    run(tree, data, tests, deselect)


def rates(data: Path) -> Rates:
    """Return the branches taken and all branches of each package. Raises CalledProcessError without measurements."""
    with tempfile.TemporaryDirectory() as folder:
        combined, report = Path(folder) / "all", Path(folder) / "report.json"
        coverage = [sys.executable, "-m", "coverage"]
        files = [str(path) for path in data.glob("coverage.*")]
        environment = {**os.environ, "COVERAGE_FILE": str(combined)}
        subprocess.run([*coverage, "combine", "--keep", "-q", *files], env=environment, check=True)
        subprocess.run([*coverage, "json", "-i", "-q", "-o", str(report)], env=environment, check=True)
        return by_package(json.loads(report.read_text())["files"])


def by_package(files: dict[str, Any]) -> Rates:
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for file, measured in files.items():
        summary = measured["summary"]
        total = totals[package_of(Path(file))]
        total[0] += summary["covered_branches"]
        total[1] += summary["num_branches"]
    return {package: (taken, all_) for package, (taken, all_) in sorted(totals.items())}


def package_of(file: Path) -> str:
    """Return the package of a file: control_plane.identity.keys, control_plane.core, lora_engine.memory."""
    root = max(file.parts.index(name) for name in ROOTS if name in file.parts)
    inner = file.parts[root:-1]
    return ".".join(inner[: 3 if inner[0] == "control_plane" else 2])


def table(now: Rates, before: Rates | None = None) -> str:
    """Return a table in Markdown: the share of branches taken, by package."""
    lines = ["| package | branches | now |" + (" before |" if before is not None else "")]
    lines.append("|---|---:|---:|" + ("---:|" if before is not None else ""))
    for package in sorted({*now, *(before or {})}):
        row = f"| `{package}` | {now.get(package, (0, 0))[1]} | {_percent(now.get(package))} |"
        lines.append(row + (f" {_percent(before.get(package))} |" if before is not None else ""))
    whole = f"| all | {sum(all_ for _, all_ in now.values())} | {_percent(_sum(now))} |"
    lines.append(whole + (f" {_percent(_sum(before))} |" if before is not None else ""))
    return "\n".join(lines) + "\n"


def _sum(rates: Rates) -> tuple[int, int]:
    return sum(taken for taken, _ in rates.values()), sum(all_ for _, all_ in rates.values())


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
    args = parser.parse_args()
    if args.command == "run":
        data = args.data.resolve()
        if args.ref:
            run_ref(args.ref, data, args.tests, args.deselect)
        run(REPOSITORY, data, args.tests, args.deselect)
    text = table(rates(args.data), rates(args.before) if args.before else None)
    if args.write:
        args.write.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
