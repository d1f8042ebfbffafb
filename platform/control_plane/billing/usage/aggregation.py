"""The aggregator: ledger rows above the watermark are added to the rollups, in the transaction that moves it.

So each row is added once, whatever process runs this, how often, and whenever it is killed. A late row (from a host's
journal that was collected hours afterwards) is added to its hour and day like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, models, transaction
from django.db.models import Case, Count, Q, QuerySet, Sum, TextField, UUIDField, Value, When
from django.db.models.functions import Coalesce, Concat, TruncDate, TruncHour
from django.utils import timezone

from control_plane.billing.usage import time_series
from control_plane.billing.usage.counters import SUMMED
from control_plane.billing.usage.models import (
    BASE_MODEL_ITSELF,
    DailyActivity,
    DailyLatency,
    DailyTotals,
    DailyUsage,
    HourlyUsage,
    OverallLatency,
    OverallTotals,
    Series,
    UsageEvent,
    Watermark,
)
from control_plane.billing.usage.rollup_sql import OF_BASE, base_as_text, bucket, identity, latencies, upsert
from control_plane.billing.usage.watermark import last_settled_id
from control_plane.core.config import current
from control_plane.core.jobs import clocks

# Ledger rows of one transaction.
BATCH = 100_000
# Old hours that one transaction deletes.
FORGOTTEN = 10_000
# Settings with which PostgreSQL groups a batch in memory; its defaults suit short queries. Statistics of the temporary
# tables need few samples.
_FOR_A_BATCH = "SET LOCAL work_mem = '64MB'; SET LOCAL default_statistics_target = 10"
DIMENSIONS = ("tenant_id", "adapter_id", "version_id", "api_key_id", "outcome")
# Prefix of the identities of batches' series; the other identities are older than batches.
OF_BATCHES = "batch/"
# Columns of the written tables, and their sources in `upsert`.
_SERIES = {name: f"g.{name}" for name in (*DIMENSIONS, "base_model_id", "batch", "identity")}
_SUMS = {
    "tenant_id": "g.tenant_id",
    "series_id": "s.id",
    "start": "g.start",
    "requests": "g.requests",
    **{name: f"g.sum_{name}" for name in SUMMED},
}
_TOTALS = {
    **{name: source for name, source in _SUMS.items() if name != "series_id"},
    "outcome": "g.outcome",
    "batch": "g.batch",
    "base_id": "g.base_id",
}
_ACTIVITY = {
    **{name: f"g.{name}" for name in ("start", "tenant_id", "outcome", "requests")},
    "adapter_id": "g.used",
    "device_us": "g.sum_device_us",
}
_COUNTS = {name: f"g.{name}" for name in ("tenant_id", "start", "metric", "bucket", "requests")}
# Rollups of all tenants: the target, its source, the columns that separate rows, and those that are summed.
_OVERALL: tuple[tuple[type[models.Model], type[models.Model], tuple[str, ...], tuple[str, ...]], ...] = (
    (OverallTotals, DailyTotals, ("start", "outcome", "batch", "base_id"), ("requests", *SUMMED)),
    (OverallLatency, DailyLatency, ("start", "metric", "bucket"), ("requests",)),
)


@dataclass(frozen=True)
class _Rollups:
    """Rollups that are filled together, and the column of the watermark that tells how far."""

    column: str
    add: Callable[[QuerySet[UsageEvent]], int]
    done: Callable[[Watermark], None]


def aggregate(batch: int = BATCH) -> int:
    """Bring the rollups up to date. Returns how many ledger rows were added.

    Safe to run concurrently: the watermark's row is locked, and the second run has nothing left to add.
    """
    settled = last_settled_id()
    # Each has its own position: rollups that an earlier version did not have begin at the ledger's start.
    _catch_up(_Rollups("series_event_id", time_series.add, lambda mark: None), settled, batch)
    added = _catch_up(_Rollups("event_id", _add, _finish), settled, batch)
    # Last, and quick: while it is behind, reports search larger rollups for the tenants that used most.
    _catch_up(_Rollups("activity_event_id", _add_activity, lambda mark: None), settled, batch)
    return added


def _catch_up(rollups: _Rollups, settled: int, batch: int) -> int:
    added = 0
    while True:
        new, at = _advance(rollups, settled, batch)
        added += new
        if at >= settled:
            return added


def _advance(rollups: _Rollups, settled: int, batch: int) -> tuple[int, int]:
    """Add one batch. Returns the number of its rows, and the id up to which the ledger has been read."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(_FOR_A_BATCH)
        mark, _ = Watermark.objects.select_for_update().get_or_create(pk=1)
        reached = getattr(mark, rollups.column)
        rows = UsageEvent.objects.filter(id__gt=reached, id__lte=settled).order_by("id")
        # From the first existing id: ids have gaps, and a new ledger's need not begin at one.
        first = rows.values_list("id", flat=True).first()
        last = settled if first is None else min(settled, first + batch - 1)
        new = 0 if first is None else rollups.add(rows.filter(id__lte=last).order_by())
        if new:
            setattr(mark, rollups.column, last)
            mark.save(update_fields=[rollups.column])
        if last >= settled:
            rollups.done(mark)
        return new, last


def _finish(mark: Watermark) -> None:
    _add_up_tenants(mark)
    mark.checked_at = timezone.now()
    mark.save(update_fields=["checked_at", "overall_event_id"])


def _add_up_tenants(mark: Watermark) -> None:
    """Recompute all tenants' changed days, also those that a version without these rollups changed."""
    if mark.overall_event_id == mark.event_id:
        return
    events = UsageEvent.objects.filter(id__gt=mark.overall_event_id, id__lte=mark.event_id).order_by()
    days = list(events.values_list(TruncDate("created_at", tzinfo=UTC), flat=True).distinct())
    for model, tenants, apart, added in _OVERALL:
        model._default_manager.filter(start__in=days).delete()
        rows = tenants._default_manager.filter(start__in=days).order_by().values(*apart)
        columns = {**{name: f"g.{name}" for name in apart}, **{name: f"g.sum_{name}" for name in added}}
        upsert(model, rows.annotate(**{f"sum_{name}": Sum(name) for name in added}), columns, added=())
    mark.overall_event_id = mark.event_id


def _add(events: QuerySet[UsageEvent]) -> int:
    """Add ledger rows to the rollups. The database groups them; they never pass through this process."""
    named = events.annotate(identity=_identity())
    upsert(Series, named.values(*_SERIES).distinct(), _SERIES, added=())
    counted = {"requests": Count("id"), **{f"sum_{name}": Sum(name) for name in SUMMED}}
    for model, start in (
        (HourlyUsage, TruncHour("created_at", tzinfo=UTC)),
        (DailyUsage, TruncDate("created_at", tzinfo=UTC)),
    ):
        groups = named.annotate(start=start).values("tenant_id", "start", "identity").annotate(**counted)
        upsert(model, groups, _SUMS, added=("requests", *SUMMED))
    by_day = events.annotate(start=TruncDate("created_at", tzinfo=UTC), base_id=Coalesce("base_model_id", 0))
    totals = by_day.values("tenant_id", "start", "outcome", "batch", "base_id")
    upsert(DailyTotals, totals.annotate(**counted), _TOTALS, added=("requests", *SUMMED))
    for counts in latency_counts(events):
        upsert(DailyLatency, counts, _COUNTS, added=("requests",))
    return events.count()


def first_hour(now: datetime) -> datetime:
    """Return the first hour that is kept, at the beginning of a day."""
    day = (now - timedelta(days=current().hourly_usage_days)).replace(hour=0, minute=0, second=0, microsecond=0)
    return day.astimezone(UTC)


def forget_hours() -> int:
    """Delete hours that are no longer kept; their days stay. Returns their number. Raises DeletionPausedError."""
    oldest, deleted = first_hour(clocks.deletion_time()), 0
    while True:
        old = list(HourlyUsage.objects.filter(start__lt=oldest).values_list("id", flat=True)[:FORGOTTEN])
        deleted += HourlyUsage.objects.filter(id__in=old).delete()[0]
        if len(old) < FORGOTTEN:
            return deleted


def _add_activity(events: QuerySet[UsageEvent]) -> int:
    used = Coalesce("adapter_id", Value(BASE_MODEL_ITSELF), output_field=UUIDField())
    by_day = events.annotate(start=TruncDate("created_at", tzinfo=UTC), used=used)
    groups = by_day.values("start", "tenant_id", "used", "outcome")
    counted = groups.annotate(requests=Count("id"), sum_device_us=Sum("device_us"))
    upsert(DailyActivity, counted, _ACTIVITY, added=("requests", "device_us"))
    return events.count()


def latency_counts(events: QuerySet[UsageEvent]) -> list[QuerySet[Any, Any]]:
    """Return for each metric the number of rows by tenant, day and bucket, as ``requests``."""
    return [
        rows.annotate(
            start=TruncDate("created_at", tzinfo=UTC), metric=Value(metric.value), value_us=value, bucket=bucket()
        )
        .values("tenant_id", "start", "metric", "bucket")
        .annotate(requests=Count("id"))
        for metric, rows, value in latencies(events)
    ]


def _identity() -> Concat:
    """Return an expression for a series' dimensions as one text."""
    unknown = Q(base_model=None)
    mark = Case(
        When(unknown & Q(batch=False), then=Value("")),
        When(unknown, then=Value(OF_BATCHES)),
        When(batch=False, then=base_as_text(OF_BASE)),
        default=base_as_text(OF_BATCHES + OF_BASE),
        output_field=TextField(),
    )
    return identity(DIMENSIONS, after=mark)
