"""Actions that add to the counts of refusals, and delete old ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F

from control_plane.billing.refusals.models import DailyRefusals, HourlyRefusals, Refusal
from control_plane.core.jobs import clocks
from control_plane.core.writes import announce

# Time for which rows by minute and by hour are kept.
MINUTES_KEPT = timedelta(days=30)
HOURS_KEPT = timedelta(days=91)


@dataclass(frozen=True)
class Reason:
    """The dimensions by which refusals are counted. `minute` counts from 1970."""

    tenant_id: UUID
    api_key_id: UUID | None
    endpoint: str
    status: int
    code: str
    limit: str
    minute: int

    @property
    def identity(self) -> str:
        parts = (self.tenant_id, self.api_key_id or "-", self.endpoint, self.status, self.code, self.limit, self.minute)
        return "/".join(map(str, parts))


@dataclass
class Count:
    """The number of refusals, with the model and parameter of the last one."""

    count: int = 0
    last_at: float = 0.0
    model: str = ""
    param: str = ""


def add(counts: Mapping[Reason, Count]) -> None:
    """Add `counts` to what was counted before, by this process or another.

    The rows need no audit rows: they are a record themselves.
    """
    # Sorted, so that concurrent processes lock the rows in one order and do not deadlock.
    ordered = sorted(counts.items(), key=lambda item: item[0].identity)
    with transaction.atomic():
        Refusal.objects.bulk_create([_row(reason, count) for reason, count in ordered], ignore_conflicts=True)
        for reason, count in ordered:
            Refusal.objects.filter(identity=reason.identity).update(
                count=F("count") + count.count,
                last_at=_time(count.last_at),
                model=count.model[:200],
                param=count.param[:100],
            )
        _add_hours(ordered)
        _add_days(ordered)
        for tenant_id in {reason.tenant_id for reason in counts}:
            announce(tenant_id, "refusals.updated", dict)


def _add_hours(ordered: Sequence[tuple[Reason, Count]]) -> None:
    hours: Counter[tuple[UUID, int, int, str]] = Counter()
    for reason, count in ordered:
        hours[reason.tenant_id, reason.minute // 60 * 60, reason.status, reason.code[:64]] += count.count
    ordered_hours = sorted(hours.items(), key=lambda item: (str(item[0][0]), *item[0][1:]))
    rows = [HourlyRefusals(tenant_id=at[0], start=at[1], status=at[2], code=at[3]) for at, _ in ordered_hours]
    HourlyRefusals.objects.bulk_create(rows, ignore_conflicts=True)
    for (tenant, start, status, code), number in ordered_hours:
        row = HourlyRefusals.objects.filter(tenant_id=tenant, start=start, status=status, code=code)
        row.update(count=F("count") + number)


def _add_days(ordered: Sequence[tuple[Reason, Count]]) -> None:
    days: Counter[tuple[UUID, date]] = Counter()
    failed: Counter[tuple[UUID, date]] = Counter()
    for reason, count in ordered:
        of_day = reason.tenant_id, _time(reason.minute * 60).date()
        days[of_day] += count.count
        failed[of_day] += count.count if reason.status >= 500 else 0
    ordered_days = sorted(days.items(), key=lambda item: (str(item[0][0]), item[0][1]))
    rows = [DailyRefusals(tenant_id=tenant, start=day) for (tenant, day), _ in ordered_days]
    DailyRefusals.objects.bulk_create(rows, ignore_conflicts=True)
    for (tenant, day), number in ordered_days:
        DailyRefusals.objects.filter(tenant_id=tenant, start=day).update(
            count=F("count") + number, failed=F("failed") + failed[tenant, day]
        )


def forget(now: datetime | None = None) -> int:
    """Delete old counts. Returns the number of rows. Raises DeletionPausedError."""
    at = now or clocks.deletion_time()
    oldest_hour = int((at - HOURS_KEPT).timestamp() // 60)
    deleted = HourlyRefusals.objects.filter(start__lt=oldest_hour).delete()[0]
    return deleted + Refusal.objects.filter(minute__lt=at - MINUTES_KEPT).delete()[0]


def _row(reason: Reason, count: Count) -> Refusal:
    return Refusal(
        tenant_id=reason.tenant_id,
        api_key_id=reason.api_key_id,
        endpoint=reason.endpoint,
        status=reason.status,
        code=reason.code[:64],
        limit=reason.limit,
        minute=_time(reason.minute * 60),
        last_at=_time(count.last_at),
        identity=reason.identity,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
