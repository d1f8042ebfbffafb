"""`make test`: everything, on this machine, with nothing skipped.

    python scripts/test.py                  all of it
    python scripts/test.py tests/engine     only these, on SQLite, without the rest

The stages are separate processes, because the platform's tests run twice: on
SQLite with everything in memory, and on PostgreSQL with Redis.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.console import node_bin_dir
from launch.paths import FRONTEND, ROOT
from launch.progress import Progress, Stop
from launch.system import chromium, install_test_programs
from test_services import ServiceError, Services, services

NO_GPU_OR_BROWSER = "not gpu and not e2e"
NO_SERVICES = f"{NO_GPU_OR_BROWSER} and not services"
WITH_SERVICES = f"{NO_GPU_OR_BROWSER} and not embedded"
BESIDES_PLATFORM = ("tests/scripts", "tests/contract", "tests/fuzz", "tests/engine", "tests/kernels")
PLATFORM = ("tests/platform", "tests/attack")


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, junit: Path) -> None:
        """Add what one pytest run wrote; an unreadable report is a failure of its own."""
        if not junit.exists():
            self.failed += 1
            return
        for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
            total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += total - failed - skipped


@dataclass(frozen=True)
class Stage:
    name: str
    command: Sequence[str]
    cwd: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    junit: Path | None = None


def pytest_stage(name: str, *arguments: str, env: Mapping[str, str] | None = None, reports: Path) -> Stage:
    junit = reports / f"{name.replace(' ', '-')}.xml"
    # What a second try may excuse, and what not: FewSecondTries in tests/conftest.py.
    command = [sys.executable, "-m", "pytest", "--reruns=1", f"--junitxml={junit}", *arguments]
    return Stage(name, command, env={"LORIKEET_FULL_RUN": "1", **(env or {})}, junit=junit)


def stages(running: Services, reports: Path) -> list[Stage]:
    """What `make test` is made of, quickest to say no first."""
    npm_path = {"PATH": f"{node_bin_dir()}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    parallel = ("-n", "2", "--dist", "loadfile", "-m")
    browser = {"LORIKEET_CHROMIUM": chromium() or ""}
    services_env = running.environment()
    return [
        Stage("checks", [sys.executable, "scripts/check.py"]),
        Stage("console units", ["npm", "run", "test"], cwd=FRONTEND, env=npm_path),
        pytest_stage("units", *parallel, NO_SERVICES, *BESIDES_PLATFORM, reports=reports),
        pytest_stage("platform on SQLite", *parallel, NO_SERVICES, *PLATFORM, reports=reports),
        pytest_stage(
            "platform on PostgreSQL", *parallel, WITH_SERVICES, *PLATFORM, env=services_env, reports=reports
        ),
        pytest_stage("end to end", "-m", "e2e", "tests", env={**services_env, **browser}, reports=reports),
    ]


def run_stage(stage: Stage, progress: Progress) -> bool:
    progress.say(f"\n━━ {stage.name} ━━")
    started = time.monotonic()
    code = subprocess.call(stage.command, cwd=stage.cwd, env={**os.environ, **stage.env}, stdin=subprocess.DEVNULL)
    progress.say(f"{'✓' if code == 0 else '✗'} {stage.name}: {time.monotonic() - started:.0f} s")
    return code == 0


def run_all(progress: Progress) -> int:
    install_test_programs(progress)
    started = time.monotonic()
    counts, failed = Counts(), []
    with services() as running, tempfile.TemporaryDirectory() as folder:
        for stage in stages(running, Path(folder)):
            if not run_stage(stage, progress):
                failed.append(stage.name)
            if stage.junit is not None:
                counts.add(stage.junit)
    seconds = time.monotonic() - started
    progress.say(f"\nFailed: {', '.join(failed)}" if failed else "\nEvery stage passed.")
    progress.say(f"All pytest stages together, in {seconds:.0f} s:")
    progress.say(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return 1 if failed else 0


def main() -> int:
    chosen = sys.argv[1:]
    if chosen:
        return subprocess.call([sys.executable, "-m", "pytest", "-m", NO_GPU_OR_BROWSER, *chosen], cwd=ROOT)
    try:
        return run_all(Progress())
    except Stop as stop:
        print(f"\n{stop.message}\n{stop.fix}", file=sys.stderr)
    except ServiceError as error:
        print(f"\n{error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
