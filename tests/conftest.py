"""Rules of pytest for every test of the repository."""

from __future__ import annotations

import functools
import gc
import os
import random
import ssl
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

# gRPC's core stops its threads when the process forks. With an engine and clients in several threads it cannot, and the
# child, such as a server that a test starts under another user, died before it ran.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

FULL_RUN = "LORIKEET_FULL_RUN"
SEED = "LORIKEET_TEST_SEED"
# The file in which a full run collects tests that failed, were skipped or ran twice; it prints them at its end.
OUTCOMES = "LORIKEET_OUTCOMES"
# The time, in seconds since the epoch, after which `make quick` starts no test.
STOP_AT = "LORIKEET_STOP_AT"
SERVICES = ("LORIKEET_TEST_DATABASE_URL", "LORIKEET_TEST_REDIS_URL")


class NoSilentSkips:
    """A plugin of full runs (`make test`), in which a skipped test fails the run.

    A test that skips because something is missing would look like one that passed. Tests for a GPU, and tests for
    services in stages without them, are deselected by their mark, which pytest reports.
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


class LimitedReruns:
    """A plugin of full runs, which run a failed test once more (`--reruns 1`), and fail if that happens too often.

    Among thousands of tests with real processes, a stall of the machine can fail one test in each of two workers, which
    must not refuse a change. An intermittent fault must not hide either: the first failure is printed in full and
    listed at the end of the run.
    """

    # Tests of a stage that may pass in their second run.
    MAX_RERUNS = 2

    def __init__(self) -> None:
        self.reruns: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":
            self.reruns.append(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.reruns) > self.MAX_RERUNS and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.reruns:
            terminalreporter.section(
                f"passed or failed in a second run: more than {self.MAX_RERUNS} fails the run", yellow=True
            )
            for report in self.reruns:
                terminalreporter.line(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n")


class OutcomesFile:
    """A plugin that lists the tests that failed, were skipped or ran twice; `make test` prints the list at its end."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report, "ran twice" if report.outcome == "rerun" else report.outcome)

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
    """Exclude modules and collected tests from garbage collection: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # tests do not measure pauses of the collector
        gc.enable()


def _read_certificates_once() -> None:
    """Let all clients that trust the usual authorities share a TLS context.

    httpx makes a context for each client, also for one without TLS, and reading the authorities takes 15 ms.
    """
    try:
        import certifi  # httpx needs it; a machine with a GPU need not have httpx
    except ImportError:
        return
    make = ssl.create_default_context
    of_authorities = functools.cache(lambda file: make(cafile=file))

    def create_default_context(*purpose: ssl.Purpose, cafile: str | None = None, **others: Any) -> ssl.SSLContext:
        usual = cafile is not None and cafile in (certifi.where(), os.environ.get("SSL_CERT_FILE"))
        if usual and not purpose and not others:
            return of_authorities(cafile)
        return make(*purpose, cafile=cafile, **others)

    ssl.create_default_context = create_default_context


@pytest.fixture
def tensor_seed() -> int:
    """Return the seed of a test's random tensors."""
    print(f"{SEED}={os.environ[SEED]}")  # shown if the test fails
    return int(os.environ[SEED])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > float(os.environ.get(STOP_AT, "inf")):
        pytest.skip("the time of make quick is over; make test runs this test")
    if item.get_closest_marker("services") and not all(os.environ.get(name) for name in SERVICES):
        pytest.skip("needs PostgreSQL and Redis: python -m scripts.test_services -- pytest …")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _set_up_hypothesis() -> None:
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:  # a machine with a GPU need not have it
        return
    # The result of a full run must not depend on random inputs; other runs try new ones. No run depends on how slow
    # the machine is: with others' work beside it, 200 ms for an example and a second for its data failed sound tests.
    full = bool(os.environ.get(FULL_RUN))
    unhurried = settings(derandomize=full, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("unhurried", unhurried)
    settings.load_profile("unhurried")


def pytest_configure(config: pytest.Config) -> None:
    _read_certificates_once()
    _set_up_hypothesis()
    if os.environ.get(FULL_RUN):
        os.environ.setdefault(SEED, "0")
    os.environ.setdefault(SEED, str(random.randrange(10**6)))
    # The workers of pytest-xdist report to the controller, which decides about the run.
    if os.environ.get(FULL_RUN) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(NoSilentSkips(), "no-silent-skips")
        config.pluginmanager.register(LimitedReruns(), "limited-reruns")
        if file := os.environ.get(OUTCOMES):
            config.pluginmanager.register(OutcomesFile(Path(file)), "outcomes-file")
