"""The database's time, its distance from this process's, and the rules that pause deletion by age.

What was deleted because it is old cannot be restored, and a clock that is 40 days ahead makes everything old. So age
is measured by one clock, the database's, and deletion is paused while that clock cannot be trusted:

* while the database's clock and that of this process, or of one that reported so in the last two minutes, differ by
  more than a minute: one of the two is wrong;
* for an hour after the database's clock stepped: it moved otherwise than this process's monotonic clock, went back
  behind the last time that was read from it, or was not read for ten minutes. The last case also covers an installation
  that was stopped; deletion resumes by itself, and until then an operator can set the clock right.

On SQLite the database's clock is this process's, so the first rule is always met and the second one protects.
"""

from __future__ import annotations

import logging
import socket
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from control_plane.core.errors import DeletionPausedError
from control_plane.core.jobs.models import ClockRecord

logger = logging.getLogger(__name__)

# Largest difference between two clocks that are both trusted.
MAX_CLOCK_DIFFERENCE = timedelta(minutes=1)
# Pause of deletion after a step of the database's clock.
SETTLE = timedelta(hours=1)
# Longest time without a reading, above which a step is assumed. The clock is read every half minute
# (`jobs.check_clocks`).
MAX_UNREAD = timedelta(minutes=10)
# Time for which a problem reported by one process pauses the others too.
REPORTED_FOR = timedelta(minutes=2)
REPORT_EVERY_S = 600.0  # between two log lines about the same problem
_ZERO = timedelta(0)


@dataclass(frozen=True)
class ClockReading:
    """The database's time, and this process's clocks before and after the reading."""

    at: datetime
    before: datetime
    after: datetime
    steady_before: float
    steady_after: float

    @property
    def ahead(self) -> timedelta:
        """The time by which this process's clock is ahead of the database's; negative if it is behind."""
        if self.before > self.at:
            return self.before - self.at
        return min(_ZERO, self.after - self.at)

    def step_since(self, last: ClockReading) -> timedelta:
        """Return how far the database's clock moved more than this process's monotonic clock; negative if less."""
        moved = self.at - last.at
        least = timedelta(seconds=self.steady_before - last.steady_after)
        most = timedelta(seconds=self.steady_after - last.steady_before)
        return max(moved - most, _ZERO) + min(moved - least, _ZERO)


_last: ClockReading | None = None
_reported_s: float | None = None


def database_time() -> datetime:
    """Return the time by the database's clock, also within a transaction; on SQLite by this process's."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
    return now


def now() -> datetime:
    """Return the database's time without a query: that of the last reading, and the monotonic time since then."""
    if _last is None or connection.vendor != "postgresql":
        return timezone.now()
    return _last.at + timedelta(seconds=_steady_s() - _last.steady_after)


def read_clock() -> ClockReading:
    steady_before, before = _steady_s(), timezone.now()
    at = database_time()
    after, steady_after = timezone.now(), _steady_s()
    return ClockReading(at, before, after, steady_before, steady_after)


def deletion_time() -> datetime:
    """Return the database's time, for deletion by age. Raises DeletionPausedError."""
    at, problem = check()
    if problem:
        raise DeletionPausedError(problem)
    return at


def is_trusted() -> bool:
    """Return True if clocks are trusted, so that work may be ended because its time is over."""
    return not check()[1]


def due(column: str, at: datetime, longest: timedelta) -> Q:
    """Return the filter of rows whose time has come.

    A time further ahead than the longest pause was set before a clock stepped back, and counts as over.
    """
    return Q(**{f"{column}__lte": at}) | Q(**{f"{column}__gt": at + longest})


def last_ahead() -> float | None:
    """Return how many seconds this process's clock was ahead at the last reading; None before the first."""
    return None if _last is None else _last.ahead.total_seconds()


def require_near(at: datetime, clock: str, other: datetime) -> None:
    """Raise DeletionPausedError if the time `other` of a third clock is more than a minute from the database's."""
    if abs(other - at) > MAX_CLOCK_DIFFERENCE:
        problem = f"{clock} is {_length(other - at)} {_side(other - at)} of the database's clock. Set it right."
        _report(problem)
        raise DeletionPausedError(problem)


def check() -> tuple[datetime, str]:
    """Read the database's clock and record its problems. Returns its time, and the reason why deletion is paused.

    The reason is "" while deletion is allowed.
    """
    global _last
    reading, last = read_clock(), _last
    _last = reading
    with transaction.atomic():
        record, created = ClockRecord.objects.select_for_update().get_or_create(
            pk=ClockRecord.ONLY, defaults={"read_at": reading.at}
        )
        stepped = "" if created else _step(reading, last, record.read_at)
        if stepped:
            record.settling_since, record.step = reading.at, stepped
        elif record.settling_since is not None and reading.at >= record.settling_since + SETTLE:
            record.settling_since, record.step = None, ""
        if problem := _difference(reading) or record.step:
            record.problem, record.problem_at = problem, reading.at
        elif record.problem_at is not None and not _ZERO <= reading.at - record.problem_at < REPORTED_FOR:
            record.problem, record.problem_at = "", None
        record.read_at = reading.at
        record.save()
        problem = record.problem
    _report(problem)
    return reading.at, problem


def _report(problem: str) -> None:
    """Log a problem when it begins and every ten minutes, and its end."""
    global _reported_s
    if problem and (_reported_s is None or _steady_s() - _reported_s >= REPORT_EVERY_S):
        logger.error("Deletion by age is paused: %s", problem)
        _reported_s = _steady_s()
    elif not problem and _reported_s is not None:
        logger.warning("Deletion by age has resumed.")
        _reported_s = None


def _difference(reading: ClockReading) -> str:
    ahead = reading.ahead
    if abs(ahead) <= MAX_CLOCK_DIFFERENCE:
        return ""
    return (
        f"the clock of {socket.gethostname()} is {_length(ahead)} {_side(ahead)} of the database's. Synchronise "
        "both machines with NTP; deletion resumes once they agree within a minute."
    )


def _step(reading: ClockReading, last: ClockReading | None, read_at: datetime) -> str:
    """Return how the database's clock stepped since any process last read it; "" if it did not."""
    step = reading.step_since(last) if last is not None else _ZERO
    if abs(step) > MAX_CLOCK_DIFFERENCE:
        return f"the database's clock stepped {_length(step)} {'forward' if step > _ZERO else 'back'}. {_WAIT}"
    if reading.at < read_at - MAX_CLOCK_DIFFERENCE:
        return f"the database's clock went {_length(read_at - reading.at)} back since it was last read. {_WAIT}"
    if reading.at > read_at + MAX_UNREAD:
        return (
            f"the database's clock is {_length(reading.at - read_at)} later than at its last reading, which is normal "
            f"after the workers were stopped. {_WAIT}"
        )
    return ""


_WAIT = f"Set it right if it is wrong; deletion resumes after {SETTLE // timedelta(minutes=1)} minutes without a step."


def _length(difference: timedelta) -> str:
    return str(timedelta(seconds=round(abs(difference).total_seconds())))


def _side(ahead: timedelta) -> str:
    return "ahead" if ahead > _ZERO else "behind"


def _steady_s() -> float:
    """Return a clock that cannot be set. On Linux it also runs while the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
