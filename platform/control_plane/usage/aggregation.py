"""The one aggregator: ledger rows above the watermark are added to the rollups, in the transaction that moves it.

So each row is added once, whoever runs this, how often, and whenever it is killed. A row that comes late (a host's
journal was collected hours afterwards) is added to the hour and day it belongs to like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, TypeAlias, cast
from uuid import UUID

from django.db import connection, models, transaction
from django.db.models import BigIntegerField, Case, Count, F, IntegerField, QuerySet, Sum, Value, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Cast, TruncHour
from django.utils import timezone

from control_plane.usage.histogram import BOUNDS_US
from control_plane.usage.models import (
    DailyLatency,
    DailyUsage,
    HourlyUsage,
    Metric,
    Outcome,
    Series,
    UsageEvent,
    Watermark,
)
from control_plane.usage.watermark import last_settled_id

BATCH = 50_000
SUMMED = (
    "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "device_us", "queue_ms", "adapter_load_ms"
)  # fmt: skip
ADDED = ("requests", *SUMMED)
DIMENSIONS = ("tenant_id", "adapter_id", "version_id", "api_key_id", "outcome")
Field: TypeAlias = "models.Field[Any, Any]"
# SQLite takes at most 32766 parameters in a statement, PostgreSQL 65535.
ROWS_A_STATEMENT = 1000


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
    """One batch: how many rows it held, and where the watermark is now."""
    with transaction.atomic():
        mark, _ = Watermark.objects.select_for_update().get_or_create(pk=1)
        if mark.event_id >= settled:
            _touch(mark, settled)
            return 0, mark.event_id
        last = min(settled, mark.event_id + batch)
        new = _add(UsageEvent.objects.filter(id__gt=mark.event_id, id__lte=last).order_by())
        mark.event_id = last
        mark.save(update_fields=["event_id"])
        _touch(mark, settled)
        return new, last


def _touch(mark: Watermark, settled: int) -> None:
    if mark.event_id >= settled:
        mark.checked_at = timezone.now()
        mark.save(update_fields=["checked_at"])


def _add(events: QuerySet[UsageEvent]) -> int:
    groups = [_Group.of(row) for row in _grouped(events)]
    series = _series_ids({group.dimensions for group in groups})
    hours: Counter[tuple[int, UUID, datetime, str]] = Counter()
    days: Counter[tuple[int, UUID, date, str]] = Counter()
    for group in groups:
        number = series[_identity(group.dimensions)]
        for name, value in group.sums.items():
            hours[number, group.tenant, group.hour, name] += value
            days[number, group.tenant, group.hour.date(), name] += value
    _upsert(HourlyUsage, ("series", "tenant", "start"), ADDED, _rows(hours))
    _upsert(DailyUsage, ("series", "tenant", "start"), ADDED, _rows(days))
    _upsert(DailyLatency, ("tenant", "start", "metric", "bucket"), ("requests",), _latencies(events))
    return sum(group.sums["requests"] for group in groups)


def _grouped(events: QuerySet[UsageEvent]) -> Iterator[dict[str, Any]]:
    """The sums are named apart from the columns that they are sums of."""
    sums = {f"sum_{name}": Sum(name) for name in SUMMED}
    hours = events.annotate(hour=TruncHour("created_at", tzinfo=UTC)).values("hour", *DIMENSIONS)
    return iter(hours.annotate(sum_requests=Count("id"), **sums))


Dimensions = tuple[Any, ...]


@dataclass(frozen=True)
class _Group:
    """One series in one hour, as far as this batch goes."""

    dimensions: Dimensions
    hour: datetime
    sums: dict[str, int]

    @classmethod
    def of(cls, row: dict[str, Any]) -> _Group:
        sums = {name: row[f"sum_{name}"] for name in ADDED}
        return cls(tuple(row[name] for name in DIMENSIONS), row["hour"], sums)

    @property
    def tenant(self) -> UUID:
        tenant: UUID = self.dimensions[0]
        return tenant


def _identity(dimensions: Dimensions) -> str:
    return "/".join("-" if value is None else str(value) for value in dimensions)


def _series_ids(wanted: set[Dimensions]) -> dict[str, int]:
    """The number of each series, made at its first use."""
    rows = [
        Series(identity=_identity(dimensions), **dict(zip(DIMENSIONS, dimensions, strict=True)))
        for dimensions in wanted
    ]
    identities = [row.identity for row in rows]
    known = dict(_in_slices(identities))
    Series.objects.bulk_create(
        [row for row in rows if row.identity not in known], batch_size=ROWS_A_STATEMENT, ignore_conflicts=True
    )
    return dict(_in_slices(identities))


def _in_slices(identities: Sequence[str]) -> Iterable[tuple[str, int]]:
    for start in range(0, len(identities), ROWS_A_STATEMENT):
        part = identities[start : start + ROWS_A_STATEMENT]
        yield from Series.objects.filter(identity__in=part).values_list("identity", "id")


def _rows(sums: Counter[Any]) -> list[tuple[Any, ...]]:
    """`(series, tenant, start, *ADDED)`; sorted, so that rows are always locked in the same order."""
    keys = sorted({key[:3] for key in sums}, key=lambda key: (key[0], str(key[2])))
    return [(*key, *(sums[(*key, name)] for name in ADDED)) for key in keys]


def _latencies(events: QuerySet[UsageEvent]) -> list[tuple[Any, ...]]:
    answered = events.filter(outcome__in=[Outcome.FINISHED, Outcome.ABORTED], first_token_ms__gt=0)
    several = answered.filter(completion_tokens__gt=1)
    counts: Counter[tuple[Any, ...]] = Counter()
    for metric, rows, value in (
        (Metric.FIRST_TOKEN, answered, _us("first_token_ms")),
        (Metric.INTER_TOKEN, several, _us("decode_ms") / (F("completion_tokens") - 1)),
    ):
        grouped = rows.annotate(hour=TruncHour("created_at", tzinfo=UTC), value_us=value, bucket=_bucket())
        for row in grouped.values("tenant_id", "hour", "bucket").annotate(sum_requests=Count("id")):
            counts[row["tenant_id"], row["hour"].date(), metric.value, row["bucket"]] += row["sum_requests"]
    return [(*key, counts[key]) for key in sorted(counts, key=lambda key: tuple(map(str, key)))]


def _us(milliseconds: str) -> CombinedExpression:
    return Cast(milliseconds, BigIntegerField()) * 1000


def _bucket(first: int = 0, last: int = len(BOUNDS_US)) -> Case | Value:
    """`histogram.bucket_of(value_us)` in SQL, between two buckets: halved, so that a row costs seven comparisons."""
    if first == last:
        return Value(first)
    middle = (first + last) // 2
    lower = When(value_us__lte=BOUNDS_US[middle], then=_bucket(first, middle))
    return Case(lower, default=_bucket(middle + 1, last), output_field=IntegerField())


def _upsert(model: type[models.Model], keys: Sequence[str], added: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Insert rows `(*keys, *added)`; where a unique row is there already, add. The ORM's upsert can only replace."""
    fields = [_field(model, name) for name in (*keys, *added)]
    for start in range(0, len(rows), ROWS_A_STATEMENT):
        part = rows[start : start + ROWS_A_STATEMENT]
        values = [
            field.get_db_prep_save(value, connection)
            for row in part
            for field, value in zip(fields, row, strict=True)
        ]
        with connection.cursor() as cursor:
            cursor.execute(_statement(model, fields, added, len(part)), values)


def _statement(model: type[models.Model], fields: Sequence[Field], added: Sequence[str], rows: int) -> str:
    table = model._meta.db_table
    (unique,) = (rule for rule in model._meta.constraints if isinstance(rule, models.UniqueConstraint))
    columns = ", ".join(str(field.column) for field in fields)
    conflict = ", ".join(str(_field(model, name).column) for name in unique.fields)
    additions = ", ".join(f"{name} = {table}.{name} + EXCLUDED.{name}" for name in added)
    one = f"({', '.join(['%s'] * len(fields))})"
    return (
        f"INSERT INTO {table} ({columns}) VALUES {', '.join([one] * rows)} "
        f"ON CONFLICT ({conflict}) DO UPDATE SET {additions}"
    )


def _field(model: type[models.Model], name: str) -> Field:
    return cast(Field, model._meta.get_field(name))
