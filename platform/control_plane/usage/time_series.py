"""Time series: the ledger added up by the minute for two days and by the hour for ninety, with counts of latencies.

Filled by the aggregator, in the transaction that moves their watermark, so that they are exact like the other rollups.
A row that comes later than its minutes or hours are kept is in the days only: from the horizon on, everything is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, F, Func, IntegerField, QuerySet, Sum, Value
from django.utils import timezone

from control_plane.usage.counters import SUMMED
from control_plane.usage.models import (
    HourLatency,
    HourSums,
    MinuteLatency,
    MinuteSums,
    SeriesKind,
    SeriesLatency,
    SeriesSums,
    TimeSeries,
    UsageEvent,
)
from control_plane.usage.rollup_sql import bucket, identity, latencies, upsert

# A little more than is promised: the first step of a chart begins before it.
MINUTES_KEPT = timedelta(days=2, hours=1)
HOURS_KEPT = timedelta(days=91)
# By kind: which columns of the ledger keep its series apart.
_APART: Mapping[SeriesKind, tuple[str, ...]] = {
    SeriesKind.TENANT: ("tenant_id",),
    SeriesKind.VERSION: ("tenant_id", "adapter_id", "version_id"),
    SeriesKind.KEY: ("tenant_id", "api_key_id"),
    SeriesKind.TENANT_HOST: ("tenant_id", "host"),
    SeriesKind.HOST: ("host",),
}
_SUMS = {
    "series_id": "s.id",
    **{name: f"g.{name}" for name in ("start", "outcome", "batch", "requests")},
    **{name: f"g.sum_{name}" for name in SUMMED},
}
_COUNTS = {"series_id": "s.id", **{name: f"g.{name}" for name in ("start", "metric", "bucket", "requests")}}


class EpochMinute(Func):
    """Whole minutes from 1970-01-01 UTC to a point in time."""

    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="FLOOR(EXTRACT(EPOCH FROM %(expressions)s) / 60)::integer", **extra_context
        )

    def as_sqlite(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # Without the fraction of the second, which SQLite would round up. Doubled twice: for Func, for parameters.
        template = "(CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER) / 60)"
        return self.as_sql(compiler, connection, template=template, **extra_context)


def minute_of(at: datetime) -> int:
    return int(at.timestamp() // 60)


def time_of(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, tz=UTC)


@dataclass(frozen=True)
class Resolution:
    """Minutes or hours: how long a step is, in minutes, how long it is kept, and in which tables."""

    step: int
    kept: timedelta
    sums: type[SeriesSums]
    latency: type[SeriesLatency]

    def first(self, now: datetime) -> int:
        """The horizon: the first step that is kept whole."""
        return minute_of(now - self.kept) // self.step * self.step + self.step


MINUTES = Resolution(1, MINUTES_KEPT, MinuteSums, MinuteLatency)
HOURS = Resolution(60, HOURS_KEPT, HourSums, HourLatency)
GRAINS = (MINUTES, HOURS)


def add(events: QuerySet[UsageEvent]) -> int:
    """Add ledger rows to the series of each kind. Returns how many rows there were."""
    now = timezone.now()
    for kind in SeriesKind:
        for grain in GRAINS:
            _add(of_kind(events, kind, grain.first(now)), kind, grain)
    return events.count()


def of_kind(events: QuerySet[UsageEvent], kind: SeriesKind, first: int) -> QuerySet[UsageEvent]:
    """Those from the minute `first` on that belong into a series of a kind, each with the series' identity."""
    rows = events.filter(created_at__gte=time_of(first))
    if "host" in _APART[kind]:
        rows = rows.exclude(host="")
    of = identity(_APART[kind], before=f"{kind.value}/")
    return rows.annotate(kind=Value(kind.value), identity=of, minute=EpochMinute("created_at"))


def sums_of(rows: QuerySet[UsageEvent], step: int) -> QuerySet[Any, Any]:
    """What `of_kind` found, added up by series and step."""
    grouped = rows.annotate(start=F("minute") / step * step).values("identity", "start", "outcome", "batch")
    return grouped.annotate(requests=Count("id"), **{f"sum_{name}": Sum(name) for name in SUMMED})


def counts_of(rows: QuerySet[UsageEvent], step: int) -> list[QuerySet[Any, Any]]:
    """Of each metric: how many of them fell into which bucket, by series and step."""
    return [
        answered.annotate(start=F("minute") / step * step, metric=Value(metric.value), value_us=value, bucket=bucket())
        .values("identity", "start", "metric", "bucket")
        .annotate(requests=Count("id"))
        for metric, answered, value in latencies(rows)
    ]


def _add(rows: QuerySet[UsageEvent], kind: SeriesKind, grain: Resolution) -> None:
    named = ("kind", *_APART[kind], "identity")
    upsert(TimeSeries, rows.values(*named).distinct(), {name: f"g.{name}" for name in named}, added=())
    sums = sums_of(rows, grain.step)
    upsert(grain.sums, sums, _SUMS, added=("requests", *SUMMED), series=TimeSeries)
    for counts in counts_of(rows, grain.step):
        upsert(grain.latency, counts, _COUNTS, added=("requests",), series=TimeSeries)


def forget(now: datetime | None = None) -> int:
    """Delete what is older than it is kept. Returns how many rows."""
    at, deleted = now or timezone.now(), 0
    for grain in GRAINS:
        for model in (grain.sums, grain.latency):
            deleted += model._default_manager.filter(start__lt=grain.first(at)).delete()[0]
    return deleted
