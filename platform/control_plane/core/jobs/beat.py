"""Celery's beat on the monotonic clock: a step of the wall clock neither stops periodic tasks nor sends them early.

Celery compares the wall clock with the wall-clock time of the last run, and keeps the latter in a file. After the clock
stepped back an hour nothing was due for an hour, and a restart read the same future time from the file. Here nothing is
kept: after a start every task runs within a minute, or after its interval if that is shorter. Each of them may run at
any time and any number of times.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.beat import Scheduler
from celery.schedules import schedule

from control_plane.core.jobs.expiry import broker_clock
from control_plane.core.metrics import heartbeat

# Seconds from beat's start to the first run of tasks with a longer interval: a beat that is restarted daily must still
# send what is due once a day.
FIRST_RUN_S = 60.0
_EPOCH = datetime.fromtimestamp(0, UTC)


def monotonic_now() -> datetime:
    """Return the monotonic clock as a datetime, which is the form that Celery's schedules calculate with."""
    return _EPOCH + timedelta(seconds=time.monotonic())


class MonotonicScheduler(Scheduler):  # type: ignore[misc]
    """A scheduler whose intervals pass by the monotonic clock."""

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            if type(entry.schedule) is not schedule:
                raise TypeError(f"{entry.name}: only intervals can be scheduled, not {entry.schedule!r}.")
            entry.schedule.nowfun = monotonic_now
            early = max(timedelta(0), entry.schedule.run_every - timedelta(seconds=FIRST_RUN_S))
            entry.last_run_at = monotonic_now() - early

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        heartbeat.beat()
        return super().tick(*args, **kwargs)

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        if life_s := entry.options.get("expires"):
            expires = broker_clock.now() + timedelta(seconds=life_s)
            entry = type(entry)(**{**dict(entry), "options": {**entry.options, "expires": expires}})
        return super().apply_async(entry, producer=producer, advance=advance, **kwargs)
