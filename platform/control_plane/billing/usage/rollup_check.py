"""Comparison of the rollups with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import reduce
from operator import or_
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Model, Q, QuerySet, Sum, UUIDField, Value
from django.db.models.functions import Coalesce, TruncDate, TruncHour
from django.utils import timezone

from control_plane.billing.archives import reading
from control_plane.billing.archives.tables import Sums, added, bounds
from control_plane.billing.usage.aggregation import first_hour, latency_counts
from control_plane.billing.usage.counters import SUMMED
from control_plane.billing.usage.ledger_archive import LEDGER_NAME, rollup_totals
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
from control_plane.billing.usage.time_series import GRAINS, WITHOUT_LATENCIES, latencies_of, minute_of, of_kind

_ROLLUPS: tuple[type[Model], ...] = (
    HourlyUsage, DailyUsage, DailyTotals, DailyActivity, DailyLatency, OverallTotals, OverallLatency,
)  # fmt: skip
Key = tuple[Any, ...]
_OF_ALL = ("start", "metric", "bucket")
_OF_STEP = ("start", "outcome", "batch")


class ArchivedLedgerError(RuntimeError):
    """The rollups of archived months cannot be made from the ledger's rows."""


def differences() -> list[str]:
    """Return a sentence for each sum and each count of latencies that differs. Reads the whole ledger.

    Archived months are compared as a whole, by the sums of their parts and of rows that came later.
    """
    mark = Watermark.objects.values_list("event_id", flat=True).first() or 0
    kept = _first_kept()
    ledger = UsageEvent.objects.filter(id__lte=mark, created_at__gte=kept)
    hours = max(kept, first_hour(timezone.now()))
    result = _archive_differences(mark)
    hour, day = TruncHour("created_at", tzinfo=UTC), TruncDate("created_at", tzinfo=UTC)
    for noun, rollup, outcome, start, apart in (
        ("hour", HourlyUsage.objects.all(), "series__outcome", hour, ("start", "tenant_id")),
        ("day", DailyUsage.objects.all(), "series__outcome", day, ("start", "tenant_id")),
        ("total of", DailyTotals.objects.all(), "outcome", day, ("start", "tenant_id")),
        ("all of", OverallTotals.objects.all(), "outcome", day, ("start",)),
    ):
        batch, base = price_columns(rollup.model)
        since = hours if noun == "hour" else kept
        dated = ledger.filter(created_at__gte=since).annotate(start=start, base=Coalesce("base_model_id", 0))
        right = _sums(dated, (*apart, "outcome", "batch", "base"), Count("id"))
        based = rollup.filter(start__gte=since if noun == "hour" else since.date()).annotate(base=Coalesce(base, 0))
        result += _compared(noun, right, _sums(based, (*apart, outcome, batch, "base"), Sum("requests")))
    counts = latency_counts(ledger.order_by())
    of_days = [row for rows in counts for row in rows.values_list("tenant_id", *_OF_ALL, "requests")]
    shown = DailyLatency.objects.filter(start__gte=kept.date()).values_list("tenant_id", *_OF_ALL, "requests")
    result += _compared("latency of", _counted(of_days), _counted(shown))
    overall = _counted(row[1:] for row in of_days)
    shown_overall = OverallLatency.objects.filter(start__gte=kept.date()).values_list(*_OF_ALL, "requests")
    result += _compared("latency of all of", overall, _counted(shown_overall))
    return result + _activity_differences() + _series_differences()


def _first_kept() -> datetime:
    """Return the first moment after the archived months."""
    until = reading.archived_until(LEDGER_NAME)
    return datetime.combine(until or date.min, time(), UTC)


def _archive_differences(mark: int) -> list[str]:
    result = []
    for month in sorted({part.month for part in reading.parts(LEDGER_NAME)}):
        first, end = bounds(month)
        totals: Sums = {}
        for part in reading.parts(LEDGER_NAME, month):
            totals = added(totals, {"requests": part.rows, **part.sums})
        # Rows of a part whose deletion was interrupted are in its file too.
        ranges = [Q(id__range=(p.first_id, p.last_id)) for p in reading.parts(LEDGER_NAME, month) if not p.deleted_at]
        later = UsageEvent.objects.filter(id__lte=mark, created_at__gte=first, created_at__lt=end)
        later = later.exclude(reduce(or_, ranges)) if ranges else later
        sums = {f"sum_{name}": Sum(name, default=0) for name in SUMMED}
        totals = added(totals, later.order_by().aggregate(requests=Count("id"), **sums))
        expected = (totals["requests"], *(totals[f"sum_{name}"] for name in SUMMED))
        for model in (DailyUsage, DailyTotals, OverallTotals):
            if (shown := rollup_totals(model, month)) != expected:
                result.append(f"{model.__name__} of {month:%Y-%m}: the archive has {expected}, the rollup {shown}")
    return result


def _activity_differences() -> list[str]:
    mark = Watermark.objects.values_list("activity_event_id", flat=True).first() or 0
    used = Coalesce("adapter_id", Value(BASE_MODEL_ITSELF), output_field=UUIDField())
    kept = _first_kept()
    rows = UsageEvent.objects.filter(id__lte=mark, created_at__gte=kept)
    ledger = rows.annotate(start=TruncDate("created_at", tzinfo=UTC), used=used)
    shown = _activity(DailyActivity.objects.filter(start__gte=kept.date()), "adapter_id", Sum("requests"))
    return _compared("activity of", _activity(ledger, "used", Count("id")), shown)


def _activity(rows: QuerySet[Any], adapter: str, requests: Count | Sum) -> dict[Key, tuple[int, ...]]:
    grouped = rows.order_by().values_list("start", "tenant_id", adapter, "outcome")
    return {row[:4]: row[4:] for row in grouped.annotate(sum_requests=requests, sum_device=Sum("device_us"))}


def _series_differences() -> list[str]:
    """Return the differences in the kept minutes, hours and days, each added up from the ledger by itself."""
    now, result = timezone.now(), []
    mark = Watermark.objects.values_list("series_event_id", flat=True).first() or 0
    ledger = UsageEvent.objects.filter(id__lte=mark).order_by()
    kept_from = max(minute_of(_first_kept()), 0) if reading.parts(LEDGER_NAME) else 0
    for kind in SeriesKind:
        for grain in GRAINS:
            first = max(grain.first(now), kept_from)
            rows = of_kind(ledger, kind, first).annotate(start=F("minute") / grain.step * grain.step)
            kept = grain.sums._default_manager.filter(series__kind=kind, start__gte=first)
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
    """Delete all rollups; the next aggregation makes them anew from the ledger's start.

    Raises ArchivedLedgerError if months of the ledger are archived: their rollups could not be made again.
    """
    if until := reading.archived_until(LEDGER_NAME):
        raise ArchivedLedgerError(
            f"The ledger before {until} is archived, so its rollups cannot be made from it again."
        )
    with transaction.atomic():
        Watermark.objects.select_for_update().get_or_create(pk=1)
        for model in _ROLLUPS:
            model._default_manager.all().delete()
        for grain in GRAINS:
            grain.sums._default_manager.all().delete()
        marks = ("event_id", "overall_event_id", "series_event_id", "activity_event_id")
        Watermark.objects.update(**dict.fromkeys(marks, 0), checked_at=None)
