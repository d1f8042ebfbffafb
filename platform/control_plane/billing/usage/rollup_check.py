"""Comparison of the rollups with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Model, QuerySet, Sum, UUIDField, Value
from django.db.models.functions import Coalesce, TruncDate, TruncHour
from django.utils import timezone

from control_plane.billing.usage.aggregation import latency_counts
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
    SeriesKind,
    UsageEvent,
    Watermark,
)
from control_plane.billing.usage.rollup_sql import bucket, latencies
from control_plane.billing.usage.sums import price_columns
from control_plane.billing.usage.time_series import GRAINS, WITHOUT_LATENCIES, latencies_of, of_kind

_ROLLUPS: tuple[type[Model], ...] = (
    HourlyUsage, DailyUsage, DailyTotals, DailyActivity, DailyLatency, OverallTotals, OverallLatency,
)  # fmt: skip
Key = tuple[Any, ...]
_OF_ALL = ("start", "metric", "bucket")
_OF_STEP = ("start", "outcome", "batch")


def differences() -> list[str]:
    """Return a sentence for each sum and each count of latencies that differs. Reads the whole ledger."""
    mark = Watermark.objects.values_list("event_id", flat=True).first() or 0
    ledger = UsageEvent.objects.filter(id__lte=mark)
    result = []
    hour, day = TruncHour("created_at", tzinfo=UTC), TruncDate("created_at", tzinfo=UTC)
    for noun, rollup, outcome, start, apart in (
        ("hour", HourlyUsage.objects.all(), "series__outcome", hour, ("start", "tenant_id")),
        ("day", DailyUsage.objects.all(), "series__outcome", day, ("start", "tenant_id")),
        ("total of", DailyTotals.objects.all(), "outcome", day, ("start", "tenant_id")),
        ("all of", OverallTotals.objects.all(), "outcome", day, ("start",)),
    ):
        batch, base = price_columns(rollup.model)
        dated = ledger.annotate(start=start, base=Coalesce("base_model_id", 0))
        right = _sums(dated, (*apart, "outcome", "batch", "base"), Count("id"))
        based = rollup.annotate(base=Coalesce(base, 0))
        result += _compared(noun, right, _sums(based, (*apart, outcome, batch, "base"), Sum("requests")))
    counts = latency_counts(ledger.order_by())
    of_days = [row for rows in counts for row in rows.values_list("tenant_id", *_OF_ALL, "requests")]
    shown = DailyLatency.objects.values_list("tenant_id", *_OF_ALL, "requests")
    result += _compared("latency of", _counted(of_days), _counted(shown))
    overall = _counted(row[1:] for row in of_days)
    result += _compared(
        "latency of all of", overall, _counted(OverallLatency.objects.values_list(*_OF_ALL, "requests"))
    )
    return result + _activity_differences() + _series_differences()


def _activity_differences() -> list[str]:
    mark = Watermark.objects.values_list("activity_event_id", flat=True).first() or 0
    used = Coalesce("adapter_id", Value(BASE_MODEL_ITSELF), output_field=UUIDField())
    ledger = UsageEvent.objects.filter(id__lte=mark).annotate(start=TruncDate("created_at", tzinfo=UTC), used=used)
    shown = _activity(DailyActivity.objects.all(), "adapter_id", Sum("requests"))
    return _compared("activity of", _activity(ledger, "used", Count("id")), shown)


def _activity(rows: QuerySet[Any], adapter: str, requests: Count | Sum) -> dict[Key, tuple[int, ...]]:
    grouped = rows.order_by().values_list("start", "tenant_id", adapter, "outcome")
    return {row[:4]: row[4:] for row in grouped.annotate(sum_requests=requests, sum_device=Sum("device_us"))}


def _series_differences() -> list[str]:
    """Return the differences in the kept minutes, hours and days, each added up from the ledger by itself."""
    now, result = timezone.now(), []
    mark = Watermark.objects.values_list("series_event_id", flat=True).first() or 0
    ledger = UsageEvent.objects.filter(id__lte=mark).order_by()
    for kind in SeriesKind:
        for grain in GRAINS:
            rows = of_kind(ledger, kind, grain.first(now)).annotate(start=F("minute") / grain.step * grain.step)
            kept = grain.sums._default_manager.filter(series__kind=kind, start__gte=grain.first(now))
            noun = grain.sums._meta.verbose_name
            result += _compared(f"{noun} of", _sums(rows, ("identity", *_OF_STEP), Count("id")), _shown(kept))
            if kind not in WITHOUT_LATENCIES:
                result += _compared(f"latency in {noun} of", _latencies_of(rows), _latencies_shown(kept))
    return result


def _shown(rows: QuerySet[Any]) -> dict[Key, tuple[int, ...]]:
    columns = ("series__identity", *_OF_STEP, "requests", *SUMMED)
    return {row[:4]: row[4:] for row in rows.values_list(*columns)}


def _latencies_of(rows: QuerySet[UsageEvent]) -> Counter[Key]:
    counted = [
        answered.annotate(metric=Value(metric.value), value_us=value, bucket=bucket())
        .values_list("identity", *_OF_STEP, "metric", "bucket")
        .annotate(requests=Count("id"))
        for metric, answered, value in latencies(rows)
    ]
    return _counted(row for part in counted for row in part)


def _latencies_shown(rows: QuerySet[Any]) -> Counter[Key]:
    return Counter(
        {
            (*row, metric.value, bucket): requests
            for *row, counts in rows.exclude(latencies=None).values_list("series__identity", *_OF_STEP, "latencies")
            for metric, bucket, requests in latencies_of(counts)
        }
    )


def _compared(noun: str, right: Mapping[Key, object], shown: Mapping[Key, object]) -> list[str]:
    return [
        f"{noun} {', '.join(map(str, key))}: the ledger has {right.get(key)}, the rollup {shown.get(key)}"
        for key in sorted(right.keys() | shown.keys(), key=str)
        if right.get(key) != shown.get(key)
    ]


def _counted(rows: Iterable[tuple[Any, ...]]) -> Counter[Key]:
    """Add up the last value of each row by the values before it."""
    sums: Counter[Key] = Counter()
    for *key, requests in rows:
        sums[tuple(key)] += requests
    return sums


def _sums(rows: QuerySet[Any], by: Sequence[str], requests: Count | Sum) -> dict[Key, tuple[int, ...]]:
    sums = {f"sum_{name}": Sum(name) for name in SUMMED}
    grouped = rows.order_by().values_list(*by).annotate(sum_requests=requests, **sums)
    return {row[: len(by)]: row[len(by) :] for row in grouped}


def forget_rollups() -> None:
    """Delete all rollups; the next aggregation makes them anew from the ledger's start."""
    with transaction.atomic():
        Watermark.objects.select_for_update().get_or_create(pk=1)
        for model in _ROLLUPS:
            model._default_manager.all().delete()
        for grain in GRAINS:
            grain.sums._default_manager.all().delete()
        marks = ("event_id", "overall_event_id", "series_event_id", "activity_event_id")
        Watermark.objects.update(**dict.fromkeys(marks, 0), checked_at=None)
