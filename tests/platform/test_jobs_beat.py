"""Beat sends every periodic task at its interval, whatever the wall clock does."""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.utils.imports import symbol_by_name

from control_plane.celery import app
from control_plane.core.jobs import expiry
from control_plane.core.jobs.beat import FIRST_RUN_S, MonotonicScheduler
from control_plane.core.jobs.task import PatientTask

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


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_worker_whose_clock_differs_from_beats_runs_what_it_sent(
    monkeypatch: pytest.MonkeyPatch, step: timedelta
) -> None:
    """What a message says of its end is by the broker's clock, and so is what the worker compares it with."""
    broker = SimpleNamespace(at=datetime(2026, 3, 1, tzinfo=UTC) + step)
    monkeypatch.setattr(expiry.broker_clock, "now", lambda: broker.at)
    sent: dict[str, Any] = {}
    monkeypatch.setattr(Scheduler, "send_task", lambda _beat, *_, **options: sent.update(options))
    beat = MonotonicScheduler(app)
    entry = beat.add(name="x", task="no.such_task", schedule=30.0, options={"expires": 30})
    beat.apply_async(entry, advance=False)
    assert sent["expires"] == broker.at + timedelta(seconds=30)
    assert entry.options["expires"] == 30, "the entry itself stays as it is"

    assert symbol_by_name(PatientTask.Request) is expiry.ExpiringRequest
    request = expiry.ExpiringRequest.__new__(expiry.ExpiringRequest)
    request.expires, request.id = sent["expires"], "t"
    assert not request.maybe_expire()
    broker.at += timedelta(seconds=31)
    assert request.maybe_expire()


@pytest.mark.services
def test_the_brokers_clock_is_that_of_redis(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    url = os.environ["LORIKEET_TEST_REDIS_URL"]
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"redis_url": url})
    clock = expiry.BrokerClock()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=30)
    passed = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: passed() + 20)
    assert clock.now() - datetime.now(UTC) > timedelta(seconds=15), "carried on by the monotonic clock"


def test_production_uses_this_scheduler() -> None:
    assert app.conf.beat_scheduler == "control_plane.core.jobs.beat:MonotonicScheduler"
