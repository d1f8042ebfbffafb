"""Adds to the counts, and deletes old ones."""

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

KEPT = timedelta(days=30)
HOURS_KEPT = timedelta(days=91)


@dataclass(frozen=True)
class Reason:
    """What refusals are counted by. `minute` is of the epoch."""

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
    """How many, and what the last of them asked for."""

    count: int = 0
    last_at: float = 0.0
    model: str = ""
    param: str = ""


def add(counts: Mapping[Reason, Count]) -> None:
    """Add `counts` to what was counted before, by this process or another.

    The rows tell of themselves and have no audit rows.
    """
    # In one order everywhere, so that two processes never wait for each other.
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
    found = sorted(hours.items(), key=lambda item: (str(item[0][0]), *item[0][1:]))
    rows = [HourlyRefusals(tenant_id=at[0], start=at[1], status=at[2], code=at[3]) for at, _ in found]
    HourlyRefusals.objects.bulk_create(rows, ignore_conflicts=True)
    for (tenant, start, status, code), number in found:
        row = HourlyRefusals.objects.filter(tenant_id=tenant, start=start, status=status, code=code)
        row.update(count=F("count") + number)


def _add_days(ordered: Sequence[tuple[Reason, Count]]) -> None:
    days: Counter[tuple[UUID, date]] = Counter()
    failed: Counter[tuple[UUID, date]] = Counter()
    for reason, count in ordered:
        of_day = reason.tenant_id, _time(reason.minute * 60).date()
        days[of_day] += count.count
        failed[of_day] += count.count if reason.status >= 500 else 0
    found = sorted(days.items(), key=lambda item: (str(item[0][0]), item[0][1]))
    rows = [DailyRefusals(tenant_id=tenant, start=day) for (tenant, day), _ in found]
    DailyRefusals.objects.bulk_create(rows, ignore_conflicts=True)
    for (tenant, day), number in found:
        DailyRefusals.objects.filter(tenant_id=tenant, start=day).update(
            count=F("count") + number, failed=F("failed") + failed[tenant, day]
        )


def forget(now: datetime | None = None) -> int:
    """Delete counts of long ago. Returns how many rows. Raises DeletionPausedError."""
    at = now or clocks.deletion_time()
    oldest_hour = int((at - HOURS_KEPT).timestamp() // 60)
    deleted = HourlyRefusals.objects.filter(start__lt=oldest_hour).delete()[0]
    return deleted + Refusal.objects.filter(minute__lt=at - KEPT).delete()[0]


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
