"""Time series: the ledger added up by the minute for two days, by the hour for ninety, by the day for a year, with
counts of latencies.

The aggregator fills them in the transaction that moves their watermark, so that they are exact like the other rollups.
A row that comes after its minutes or hours were deleted is in the days only; later ones are in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Case, Func, IntegerField, Q, QuerySet, TextField, Value, When

from control_plane.billing.usage.counters import SUMMED
from control_plane.billing.usage.models import (
    DaySums,
    HourSums,
    Metric,
    MinuteSums,
    Outcome,
    SeriesKind,
    SeriesSums,
    TimeSeries,
    UsageEvent,
)
from control_plane.billing.usage.rollup_sql import (
    OF_BASE,
    base_as_text,
    both_histograms,
    bucket,
    histogram,
    identity,
    measured,
)
from control_plane.core.jobs import clocks

# Time for which sums of minutes and of hours are kept, a little longer than documented: the first step of a chart
# begins before the window, and so does the first hour of a window that is read by the hour.
MINUTES_KEPT = timedelta(days=2, hours=2)
HOURS_KEPT = timedelta(days=91)
# Time for which sums of days are kept: as far as reports go back.
DAYS_KEPT = timedelta(days=400)
# Columns of the ledger that separate the series of a kind, besides the base model.
_APART: Mapping[SeriesKind, tuple[str, ...]] = {
    SeriesKind.ALL: (),
    SeriesKind.TENANT: ("tenant_id",),
    SeriesKind.VERSION: ("tenant_id", "adapter_id", "version_id"),
    SeriesKind.KEY: ("tenant_id", "api_key_id"),
    SeriesKind.TENANT_HOST: ("tenant_id", "host"),
    SeriesKind.HOST: ("host",),
}
_BASE = "base_model_id"


class EpochMinute(Func):
    """The SQL function for the whole minutes from 1970-01-01 UTC to a point in time."""

    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="FLOOR(EXTRACT(EPOCH FROM %(expressions)s) / 60)::integer", **extra_context
        )

    def as_sqlite(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # Without the fraction of the second, which SQLite would round up. Percent signs are escaped for Func and for
        # parameters.
        template = "(CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER) / 60)"
        return self.as_sql(compiler, connection, template=template, **extra_context)


def minute_of(at: datetime) -> int:
    return int(at.timestamp() // 60)


def time_of(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, tz=UTC)


@dataclass(frozen=True)
class Resolution:
    """A resolution (minutes, hours or days): a step's length in minutes, how long steps are kept, and their table."""

    step: int
    kept: timedelta
    sums: type[SeriesSums]

    def first(self, now: datetime) -> int:
        """Return the horizon: the first step that is kept whole."""
        return minute_of(now - self.kept) // self.step * self.step + self.step


MINUTES = Resolution(1, MINUTES_KEPT, MinuteSums)
HOURS = Resolution(60, HOURS_KEPT, HourSums)
DAYS = Resolution(1440, DAYS_KEPT, DaySums)
GRAINS = (MINUTES, HOURS, DAYS)

# Temporary tables: rows with the identities of their series, then rows with the ids of their series.
_ROWS, _STAGED = "usage_rows_to_add", "usage_rows_with_series"
_APART_WITHIN = ("series_id", "start", "outcome", "batch")
_COUNTED = ("requests", *SUMMED)
# Kinds whose latencies no page shows.
WITHOUT_LATENCIES = {SeriesKind.KEY}
# Factors of a packed key: sorting and grouping by one whole number takes half as long as by four columns. It has a
# series, a minute below 2^29 (the year 2990), and one of four outcomes, of a batch or not.
_A_SERIES, _A_MINUTE = 2**32, 8
# First code of each metric's buckets in `SeriesSums.latencies`.
_CODES = {Metric.FIRST_TOKEN: 0, Metric.INTER_TOKEN: 1000}


def latencies_of(counts: Mapping[str, int]) -> Iterator[tuple[Metric, int, int]]:
    """Yield metric, bucket of `histogram.BOUNDS_US` and requests from a row's `SeriesSums.latencies`."""
    for text, requests in counts.items():
        code = int(text)
        metric = Metric.FIRST_TOKEN if code < _CODES[Metric.INTER_TOKEN] else Metric.INTER_TOKEN
        yield metric, code - _CODES[metric], requests


def add(events: QuerySet[UsageEvent]) -> int:
    """Add ledger rows to the series of each kind, in a transaction. Returns the number of rows."""
    now = clocks.database_time()  # a process's clock that is ahead would drop minutes and hours as too old
    with connection.cursor() as cursor:
        _collect(cursor, events.filter(created_at__gte=time_of(min(grain.first(now) for grain in GRAINS))))
        for kind in SeriesKind:
            _name(cursor, kind)
        _stage(cursor)
        for kind in SeriesKind:
            for grain in GRAINS:
                _add(cursor, kind, grain, grain.first(now))
        cursor.execute(f"DROP TABLE {_STAGED}")
    return events.count()


def of_kind(events: QuerySet[UsageEvent], kind: SeriesKind, first: int) -> QuerySet[UsageEvent]:
    """Return the rows from the minute `first` on that are in a series of a kind, with the series' identity."""
    rows = events.filter(created_at__gte=time_of(first))
    return rows.annotate(identity=_identity(kind), minute=EpochMinute("created_at")).exclude(identity=None)


def _collect(cursor: Any, events: QuerySet[UsageEvent]) -> None:
    """Compute identities, minutes and buckets, once per row."""
    values = {f"us_of_{metric.value}": value for metric, _, value in measured()}
    buckets = {
        metric.value: Case(When(having, then=bucket(f"us_of_{metric.value}")), default=None)
        for metric, having, _ in measured()
    }
    rows = events.alias(**values).annotate(minute=EpochMinute("created_at"), **_identities(), **buckets)
    columns = {_BASE, *(name for names in _APART.values() for name in names)}
    made = rows.values(*sorted(columns), "outcome", "batch", *SUMMED, "minute", *_identities(), *buckets)
    sql, params = made.query.sql_with_params()
    cursor.execute(f"CREATE TEMPORARY TABLE {_ROWS} AS {sql}", params)


def _identities() -> dict[str, Any]:
    return {f"{kind.value}_series": _identity(kind) for kind in SeriesKind}


def _identity(kind: SeriesKind) -> Any:
    """Return a row's identity; NULL if it is in no series of this kind."""
    base = Case(When(base_model=None, then=Value("")), default=base_as_text(OF_BASE), output_field=TextField())
    text = identity(_APART[kind], before=f"{kind.value}/", after=base)
    return Case(When(~Q(host=""), then=text), default=None) if "host" in _APART[kind] else text


def _name(cursor: Any, kind: SeriesKind) -> None:
    """Insert the series that do not exist yet."""
    table, column = TimeSeries._meta.db_table, f"{kind.value}_series"
    columns = "".join(f", {name}" for name in (*_APART[kind], _BASE))
    cursor.execute(
        f"INSERT INTO {table} (kind, identity{columns})"
        f" SELECT DISTINCT '{kind.value}', {column}{columns} FROM {_ROWS} r"
        f" WHERE {column} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {table} s WHERE s.identity = r.{column})"
        " ON CONFLICT (identity) DO NOTHING"
    )


def _stage(cursor: Any) -> None:
    kept = ("minute", *SUMMED, *(metric.value for metric in Metric))
    outcomes = " ".join(f"WHEN '{outcome}' THEN {2 * number}" for number, outcome in enumerate(Outcome.values))
    how = f"CASE r.outcome {outcomes} END + CASE WHEN r.batch THEN 1 ELSE 0 END AS how"
    ids = [f"{kind.value}_s.id AS {kind.value}_id" for kind in SeriesKind]
    joins = [
        f"LEFT JOIN {TimeSeries._meta.db_table} {kind.value}_s ON {kind.value}_s.identity = r.{kind.value}_series"
        for kind in SeriesKind
    ]
    columns = ", ".join([*(f"r.{name}" for name in kept), how, *ids])
    cursor.execute(f"CREATE TEMPORARY TABLE {_STAGED} AS SELECT {columns} FROM {_ROWS} r {' '.join(joins)}")
    cursor.execute(f"DROP TABLE {_ROWS}")
    cursor.execute(f"ANALYZE {_STAGED}")  # without statistics the planner assumes a few rows


def _add(cursor: Any, kind: SeriesKind, grain: Resolution, first: int) -> None:
    """Add the staged rows from the minute `first` on."""
    table, step = grain.sums._meta.db_table, grain.step
    inside = f"FROM {_STAGED} WHERE {kind.value}_id IS NOT NULL AND minute >= {first}"
    key = f"CAST({kind.value}_id AS bigint) * {_A_SERIES} + minute / {step} * {step} * {_A_MINUTE} + how AS of"
    added_up = ", ".join(f"SUM({name}) AS {name}" for name in SUMMED)
    sums = f"SELECT {key}, COUNT(*) AS requests, {added_up} {inside} GROUP BY 1"
    codes = [
        f"SELECT {key}, {code} + {metric.value} AS code {inside} AND {metric.value} IS NOT NULL"
        for metric, code in _CODES.items()
        if kind not in WITHOUT_LATENCIES
    ]
    counts = f"SELECT of, code, COUNT(*) AS counted FROM ({' UNION ALL '.join(codes)}) c GROUP BY of, code"
    counted = f"SELECT of, {histogram('code', 'counted')} AS latencies FROM ({counts}) d GROUP BY of"
    outcomes = " ".join(f"WHEN {number} THEN '{outcome}'" for number, outcome in enumerate(Outcome.values))
    outcome = f"CASE s.of % {_A_MINUTE} / 2 {outcomes} END"
    apart = f"s.of / {_A_SERIES}, s.of % {_A_SERIES} / {_A_MINUTE}, {outcome}, s.of % 2 = 1"
    added = [f"{name} = {table}.{name} + EXCLUDED.{name}" for name in _COUNTED]
    added.append(f"latencies = {both_histograms(f'{table}.latencies', 'EXCLUDED.latencies')}")
    cursor.execute(
        f"INSERT INTO {table} ({', '.join([*_APART_WITHIN, *_COUNTED, 'latencies'])})"
        f" SELECT {apart}, {', '.join(f's.{name}' for name in _COUNTED)}, {'l.latencies' if codes else 'NULL'}"
        f" FROM ({sums}) s {f'LEFT JOIN ({counted}) l ON l.of = s.of' if codes else ''} WHERE true ORDER BY s.of"
        f" ON CONFLICT ({', '.join(_APART_WITHIN)}) DO UPDATE SET {', '.join(added)}"
    )


def forget(now: datetime | None = None) -> int:
    """Delete steps that are no longer kept. Returns the number of rows. Raises DeletionPausedError."""
    at, deleted = now or clocks.deletion_time(), 0
    for grain in GRAINS:
        deleted += grain.sums._default_manager.filter(start__lt=grain.first(at)).delete()[0]
    return deleted
