"""Rules for every test of the repository."""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Generator
from pathlib import Path

import pytest

# gRPC's core answers forks of a process by stopping its threads; with an engine and clients in several threads of a
# test process it cannot, and the child, a server that a test starts under another user, died before it ran.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

FULL_RUN = "LORIKEET_FULL_RUN"
SEED = "LORIKEET_TEST_SEED"
FOUND = "LORIKEET_FOUND"  # a file for what a full run says again at its end: what failed, was skipped, tried again
STOP_AT = "LORIKEET_STOP_AT"  # of `make quick`: seconds since the epoch
SERVICES = ("LORIKEET_TEST_DATABASE_URL", "LORIKEET_TEST_REDIS_URL")


class NoSilentSkips:
    """In a full run (`make test`) a skipped test fails the run.

    A test that skips because something is missing looks like one that passed.
    Tests for a GPU, and those for services where a stage has none, are
    deselected by their mark, which pytest counts in the open.
    """

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(f"{report.nodeid}: {_reason(report)}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.section("skipped in a full run: each counts as a failure", red=True)
            for line in self.skipped:
                terminalreporter.line(line)


class FewSecondTries:
    """In a full run a test that fails is tried once more (`--reruns 1`), and of two tests in a stage that counts.

    Among thousands of tests with real processes, a stall of the machine, which may meet one test in each of two
    workers, must not refuse a change. A fault that shows now and then must not hide either: the first failure is
    printed in full, named again at the end of the run, and three of them fail it.
    """

    ALLOWED = 2

    def __init__(self) -> None:
        self.first_tries: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":
            self.first_tries.append(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.first_tries) > self.ALLOWED and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.first_tries:
            terminalreporter.section(f"needed a second try: more than {self.ALLOWED} fails the run", yellow=True)
            for report in self.first_tries:
                terminalreporter.line(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n")


class Found:
    """A line for each test that did not just pass, which `make test` says at its end: often all that is looked at."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report, "needed a second try" if report.outcome == "rerun" else report.outcome)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report, report.outcome)

    def _add(self, report: pytest.TestReport | pytest.CollectReport, outcome: str) -> None:
        if outcome == "passed" or hasattr(report, "wasxfail"):
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = " ".join((crash.message if crash else _reason(report)).split())
        with self._file.open("a") as file:
            file.write(f"{outcome}: {report.nodeid} ({getattr(report, 'when', 'collect')}): {reason[:300]}\n")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What was loaded and collected stays: the collector need not walk through it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # nobody waits for it here
        gc.enable()


@pytest.fixture
def tensor_seed() -> int:
    """Of a test's random tensors."""
    print(f"{SEED}={os.environ[SEED]}")  # shown if the test fails
    return int(os.environ[SEED])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(STOP_AT, "inf")):
        pytest.skip("the time of make quick is up; make test runs it")
    if item.get_closest_marker("services") and not all(os.environ.get(name) for name in SERVICES):
        pytest.skip("needs PostgreSQL and Redis: python -m scripts.test_services -- pytest …")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


def pytest_configure(config: pytest.Config) -> None:
    # What a full run says of a commit must not depend on what it drew; other runs look for something new.
    if os.environ.get(FULL_RUN):
        from hypothesis import settings  # a machine with a GPU need not have it

        settings.register_profile("full", derandomize=True, deadline=None)
        settings.load_profile("full")
        os.environ.setdefault(SEED, "0")
    os.environ.setdefault(SEED, str(random.randrange(10**6)))
    # The workers of pytest-xdist report to the controller, which judges.
    if os.environ.get(FULL_RUN) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(NoSilentSkips(), "no-silent-skips")
        config.pluginmanager.register(FewSecondTries(), "few-second-tries")
        if file := os.environ.get(FOUND):
            config.pluginmanager.register(Found(Path(file)), "found")
