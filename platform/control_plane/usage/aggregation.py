"""The one aggregator: ledger rows above the watermark are added to the rollups, in the transaction that moves it.

So each row is added once, whoever runs this, how often, and whenever it is killed. A row that comes late (a host's
journal was collected hours afterwards) is added to the hour and day it belongs to like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, cast

from django.db import connection, models, transaction
from django.db.models import BigIntegerField, Case, Count, F, IntegerField, Q, QuerySet, Sum, TextField, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Cast, Coalesce, Concat, Greatest, TruncDate, TruncHour
from django.utils import timezone

from control_plane.usage.counters import SUMMED
from control_plane.usage.histogram import BOUNDS_US
from control_plane.usage.models import (
    DailyLatency,
    DailyTotals,
    DailyUsage,
    HourlyUsage,
    Metric,
    Outcome,
    OverallLatency,
    OverallTotals,
    Series,
    UsageEvent,
    Watermark,
)
from control_plane.usage.watermark import last_settled_id

BATCH = 50_000
# The most that a first token of 0 rounded milliseconds can have taken.
LEAST_US = 500
DIMENSIONS = ("tenant_id", "adapter_id", "version_id", "api_key_id", "outcome")
# Marks the series of batches; the others' names are those from before there were any.
OF_BATCHES = "batch/"
# Columns of the tables that are written, and where `_upsert` finds them.
_SERIES = {name: f"g.{name}" for name in (*DIMENSIONS, "batch", "identity")}
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
}
_COUNTS = {name: f"g.{name}" for name in ("tenant_id", "start", "metric", "bucket", "requests")}
# Of all tenants: from which rollup, what is kept apart, what is added up.
_OVERALL: tuple[tuple[type[models.Model], type[models.Model], tuple[str, ...], tuple[str, ...]], ...] = (
    (OverallTotals, DailyTotals, ("start", "outcome", "batch"), ("requests", *SUMMED)),
    (OverallLatency, DailyLatency, ("start", "metric", "bucket"), ("requests",)),
)


def aggregate(batch: int = BATCH) -> int:
    """Bring the rollups up to date. Returns how many ledger rows were added.

    Two at once do no harm: the row of the watermark is locked, and the second finds nothing left.
    """
    settled, added = last_settled_id(), 0
    while True:
        new, at = _advance(settled, batch)
        added += new
        if at >= settled:
            return added


def _advance(settled: int, batch: int) -> tuple[int, int]:
    """One batch: how many rows it held, and up to which id the ledger has been read now."""
    with transaction.atomic():
        mark, _ = Watermark.objects.select_for_update().get_or_create(pk=1)
        rows = UsageEvent.objects.filter(id__gt=mark.event_id, id__lte=settled).order_by("id")
        # From the first that is there: ids have gaps, and a new ledger's need not begin at one.
        if (first := rows.values_list("id", flat=True).first()) is None:
            _touch(mark, settled)
            return 0, settled
        last = min(settled, first + batch - 1)
        new = _add(rows.filter(id__lte=last).order_by())
        mark.event_id = last
        mark.save(update_fields=["event_id"])
        _touch(mark, settled)
        return new, last


def _touch(mark: Watermark, settled: int) -> None:
    if mark.event_id >= settled:
        _add_up_tenants(mark)
        mark.checked_at = timezone.now()
        mark.save(update_fields=["checked_at", "overall_event_id"])


def _add_up_tenants(mark: Watermark) -> None:
    """All tenants' days that have changed are made anew: also those that a version without these rollups changed."""
    if mark.overall_event_id == mark.event_id:
        return
    events = UsageEvent.objects.filter(id__gt=mark.overall_event_id, id__lte=mark.event_id).order_by()
    days = list(events.values_list(TruncDate("created_at", tzinfo=UTC), flat=True).distinct())
    for model, tenants, apart, added in _OVERALL:
        model._default_manager.filter(start__in=days).delete()
        rows = tenants._default_manager.filter(start__in=days).order_by().values(*apart)
        columns = {**{name: f"g.{name}" for name in apart}, **{name: f"g.sum_{name}" for name in added}}
        _upsert(model, rows.annotate(**{f"sum_{name}": Sum(name) for name in added}), columns, added=())
    mark.overall_event_id = mark.event_id


def _add(events: QuerySet[UsageEvent]) -> int:
    """All by the database: what is grouped never passes through this process."""
    named = events.annotate(identity=_identity())
    _upsert(Series, named.values(*_SERIES).distinct(), _SERIES, added=())
    counted = {"requests": Count("id"), **{f"sum_{name}": Sum(name) for name in SUMMED}}
    for model, start in (
        (HourlyUsage, TruncHour("created_at", tzinfo=UTC)),
        (DailyUsage, TruncDate("created_at", tzinfo=UTC)),
    ):
        groups = named.annotate(start=start).values("tenant_id", "start", "identity").annotate(**counted)
        _upsert(model, groups, _SUMS, added=("requests", *SUMMED))
    totals = events.annotate(start=TruncDate("created_at", tzinfo=UTC)).values("tenant_id", "start", "outcome", "batch")
    _upsert(DailyTotals, totals.annotate(**counted), _TOTALS, added=("requests", *SUMMED))
    for counts in latency_counts(events):
        _upsert(DailyLatency, counts, _COUNTS, added=("requests",))
    return events.count()


def latency_counts(events: QuerySet[UsageEvent]) -> list[QuerySet[Any, Any]]:
    """Of each metric: how many rows of which tenant and day fell into which bucket, as ``requests``."""
    return [
        rows.annotate(
            start=TruncDate("created_at", tzinfo=UTC), metric=Value(metric.value), value_us=value, bucket=_bucket()
        )
        .values("tenant_id", "start", "metric", "bucket")
        .annotate(requests=Count("id"))
        for metric, rows, value in _latencies(events)
    ]


def _identity() -> Concat:
    """A series' dimensions as one text, in which nothing is unlike nothing else."""
    text = TextField()
    parts = [Coalesce(Cast(name, text), Value("-", text)) for name in DIMENSIONS]
    mark = Case(When(batch=True, then=Value(OF_BATCHES)), default=Value(""), output_field=text)
    return Concat(*(piece for part in parts for piece in (part, Value("/", text))), mark, output_field=text)


def _latencies(events: QuerySet[UsageEvent]) -> list[tuple[Metric, QuerySet[UsageEvent], Any]]:
    """What is measured of which rows, in microseconds."""
    # Milliseconds are rounded: where there was a token, 0 is a first one within half a millisecond.
    had_a_token = Q(completion_tokens__gt=0) | Q(first_token_ms__gt=0)
    # Nobody waits for a batch: how long its lines took says nothing of how soon others are answered.
    answered = events.filter(had_a_token, batch=False, outcome__in=[Outcome.FINISHED, Outcome.ABORTED])
    several = answered.filter(completion_tokens__gt=1)
    return [
        (Metric.FIRST_TOKEN, answered, Greatest(_us("first_token_ms"), Value(LEAST_US))),
        (Metric.INTER_TOKEN, several, _us("decode_ms") / (F("completion_tokens") - 1)),
    ]


def _us(milliseconds: str) -> CombinedExpression:
    return Cast(milliseconds, BigIntegerField()) * 1000


def _bucket(first: int = 0, last: int = len(BOUNDS_US)) -> Case | Value:
    """`histogram.bucket_of(value_us)` in SQL, between two buckets: halved, so that a row costs seven comparisons."""
    if first == last:
        return Value(first)
    middle = (first + last) // 2
    lower = When(value_us__lte=BOUNDS_US[middle], then=_bucket(first, middle))
    return Case(lower, default=_bucket(middle + 1, last), output_field=IntegerField())


def _upsert(model: type[models.Model], groups: Any, columns: Mapping[str, str], *, added: Sequence[str]) -> None:
    """Insert what `groups` selects (`g`, each with its series `s`, if it has one); where a row is there already, add.

    The ORM's own upsert can only replace. `columns` says where each column of `model` comes from.
    """
    sql, params = groups.query.sql_with_params()
    table = model._meta.db_table
    join = f" JOIN {Series._meta.db_table} s ON s.identity = g.identity" if "series_id" in columns else ""
    additions = ", ".join(f"{name} = {table}.{name} + EXCLUDED.{name}" for name in added)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM ({sql}) g{join} "
            f"WHERE true ON CONFLICT ({', '.join(_unique_columns(model))}) DO "
            + (f"UPDATE SET {additions}" if added else "NOTHING"),
            params,
        )


def _unique_columns(model: type[models.Model]) -> list[str]:
    if model is Series:
        return ["identity"]
    (unique,) = (rule for rule in model._meta.constraints if isinstance(rule, models.UniqueConstraint))
    return [str(cast("models.Field[Any, Any]", model._meta.get_field(name)).column) for name in unique.fields]
