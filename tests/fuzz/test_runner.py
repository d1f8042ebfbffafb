"""The runner of the fuzzers notices what it is there for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st
from lorikeet_testing import fuzzing
from lorikeet_testing.fuzzing import fuzz


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORIKEET_FUZZ_CASES", "60")
    monkeypatch.setattr(fuzzing, "RESULTS", tmp_path / "results.jsonl")


def test_counts_and_writes(tmp_path: Path) -> None:
    findings = fuzz("even", st.integers(), lambda case: "even" if case % 2 == 0 else "odd")
    assert findings.cases == 60 == sum(findings.outcomes.values())
    assert '"case": "even"' in (tmp_path / "results.jsonl").read_text()


def test_a_part_is_bounded_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LORIKEET_FUZZ_CASES")
    monkeypatch.setattr(fuzzing, "PART_S", 0.2)
    monkeypatch.setattr(fuzzing, "LONG_S", 0.2)
    assert fuzz("part", st.binary(), len).cases > 0


def test_shows_the_smallest_case_that_fails() -> None:
    def run(case: int) -> None:
        assert case < 1000

    with pytest.raises(AssertionError) as found:
        fuzz("large", st.integers(), run)
    assert "The case: 1000" in "".join(found.value.__notes__)


def test_an_answer_of_the_server_itself_fails() -> None:
    with pytest.raises(AssertionError, match="answered with 503"):
        fuzz("status", st.just(b""), lambda case: 503)


def work_for(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_slow_case_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SLOWEST_S", 0.01)
    with pytest.raises(AssertionError, match="took"):
        fuzz("slow", st.just(b""), lambda case: work_for(0.02))


def test_a_case_that_waited_for_a_processor_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "SLOWEST_S", 0.04)
    fuzz("waiting", st.just(b""), lambda case: time.sleep(0.05))


GROWS = "while input() == 'grow': held = b'x' * (256 << 20); print('grew', flush=True)"


def test_growth_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a new process: the peak of this one may be higher than what a case adds."""
    monkeypatch.setattr(fuzzing, "GROWTH_BYTES", 64 << 20)
    with subprocess.Popen([sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def run(case: bytes) -> None:
            child.stdin.write(b"grow\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            child.stdout.readline()  # type: ignore[union-attr]

        with pytest.raises(AssertionError, match="grew"):
            fuzz("growth", st.just(b""), run, processes=[child.pid])
        child.kill()


def test_a_process_that_ends_fails() -> None:
    child = subprocess.Popen(["sleep", "60"])

    def run(case: bytes) -> None:
        child.kill()
        child.wait()

    with pytest.raises(AssertionError, match=str(child.pid)):
        fuzz("killed", st.just(b""), run, processes=[child.pid])
    assert child.pid != os.getpid()
