"""Beat sends every periodic task at its interval, whatever the wall clock does."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery

from control_plane.celery import app
from control_plane.jobs.beat import FIRST_RUN_S, MonotonicScheduler

STEPS = [timedelta(hours=-1), timedelta(hours=1), timedelta(days=-40), timedelta(days=40)]


class Clocks:
    """A wall clock and a monotonic clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed, self.step = 1000.0, timedelta(0)
        monkeypatch.setattr(time, "monotonic", lambda: self.passed)
        monkeypatch.setattr(Celery, "now", lambda _: datetime(2026, 3, 1, tzinfo=UTC) + self.step + self._since())

    def _since(self) -> timedelta:
        return timedelta(seconds=self.passed)


class Recorder(MonotonicScheduler):
    """Records what is sent, by the monotonic clock."""

    producer = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sent: list[tuple[str, float]] = []
        super().__init__(*args, **kwargs)

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        self.sent.append((entry.name, time.monotonic()))


def run(beat: Recorder, clocks: Clocks, seconds: float) -> Counter[str]:
    """Tick as Celery's service does, with the clock moved on in place of sleeping."""
    end, before = clocks.passed + seconds, len(beat.sent)
    while clocks.passed < end:
        clocks.passed += min(max(beat.tick(), 0.001), end - clocks.passed)
    return Counter(name for name, _ in beat.sent[before:])


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_step_of_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch, step: timedelta) -> None:
    clocks = Clocks(monkeypatch)
    beat = Recorder(app)
    run(beat, clocks, FIRST_RUN_S + 2)
    before = run(beat, clocks, 90.0)
    clocks.step = step
    run(beat, clocks, 0.5)
    after = run(beat, clocks, 90.0)
    for name, entry in app.conf.beat_schedule.items():
        wanted = 90.0 / entry["schedule"]
        assert abs(before[name] - wanted) <= 1 + wanted * 0.02, name
        assert abs(after[name] - wanted) <= 1 + wanted * 0.02, name


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_restart_after_a_step_sends_everything_within_a_minute(
    monkeypatch: pytest.MonkeyPatch, step: timedelta
) -> None:
    clocks = Clocks(monkeypatch)
    run(Recorder(app), clocks, 100.0)
    clocks.step = step
    beat = Recorder(app)
    assert run(beat, clocks, FIRST_RUN_S + 1).keys() == app.conf.beat_schedule.keys()


def test_a_restart_does_not_send_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    assert not run(Recorder(app), clocks, 2.5)


def test_production_uses_this_scheduler() -> None:
    assert app.conf.beat_scheduler == "control_plane.jobs.beat:MonotonicScheduler"
