"""Statements that the rollups are made with: what is grouped and added never passes through Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from django.db import connection, models
from django.db.models import BigIntegerField, F, Func, IntegerField, Q, QuerySet, TextField, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Cast, Coalesce, Concat, Greatest

from control_plane.billing.usage.histogram import BOUNDS_US
from control_plane.billing.usage.models import Metric, Outcome, Series, UsageEvent

# The most that a first token of 0 rounded milliseconds can have taken.
LEAST_US = 500
# The mark of series of a base model that is known; the others have their names of before it was written down.
OF_BASE = "base/"


def identity(names: Sequence[str], *, before: str = "", after: Any = None) -> Concat:
    """Columns as one text, in which nothing is unlike nothing else."""
    text = TextField()
    parts = [Coalesce(Cast(name, text), Value("-", text)) for name in names]
    pieces = (piece for part in parts for piece in (part, Value("/", text)))
    return Concat(Value(before, text), *pieces, after or Value(""), output_field=text)


def base_as_text(before: str) -> Func:
    """Flat, as SQLite reads no deeply nested expressions."""
    return Func("base_model_id", template=f"'{before}' || %(expressions)s", output_field=TextField())


def measured() -> list[tuple[Metric, Q, Any]]:
    """Of each metric: which rows have it, and what it is, in microseconds."""
    # Milliseconds are rounded: where there was a token, 0 is a first one within half a millisecond.
    had_a_token = Q(completion_tokens__gt=0) | Q(first_token_ms__gt=0)
    # Nobody waits for a batch: how long its lines took says nothing of how soon others are answered.
    answered = had_a_token & Q(batch=False, outcome__in=[Outcome.FINISHED, Outcome.ABORTED])
    return [
        (Metric.FIRST_TOKEN, answered, Greatest(_us("first_token_ms"), Value(LEAST_US))),
        (
            Metric.INTER_TOKEN,
            answered & Q(completion_tokens__gt=1),
            _us("decode_ms") / (F("completion_tokens") - 1),
        ),
    ]


def latencies(events: QuerySet[UsageEvent]) -> list[tuple[Metric, QuerySet[UsageEvent], Any]]:
    """What is measured of which rows, in microseconds."""
    return [(metric, events.filter(having), value) for metric, having, value in measured()]


def _us(milliseconds: str) -> CombinedExpression:
    return Cast(milliseconds, BigIntegerField()) * 1000


class Bucket(Func):
    """`histogram.bucket_of` in SQL."""

    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # Counts the bounds that are at most what it is given; the bucket is the number of those below the value.
        bounds = ",".join(map(str, BOUNDS_US))
        template = f"width_bucket((%(expressions)s)::bigint - 1, ARRAY[{bounds}]::bigint[])"
        return self.as_sql(compiler, connection, template=template, **extra_context)

    def as_sqlite(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # As text: a tree of eighty cases would take Django ten times as long to compile as SQLite to run.
        value, params = compiler.compile(self.source_expressions[0])
        return _HALVED.replace("?", f"({value})"), tuple(params) * _HALVED.count("?")


def _halved(first: int = 0, last: int = len(BOUNDS_US)) -> str:
    """The bucket of "?" between two: halved, so that a row costs seven comparisons."""
    if first == last:
        return str(first)
    middle = (first + last) // 2
    lower, upper = _halved(first, middle), _halved(middle + 1, last)
    return f"CASE WHEN ? <= {BOUNDS_US[middle]} THEN {lower} ELSE {upper} END"


_HALVED = _halved()


def bucket(name: str = "value_us") -> Bucket:
    return Bucket(F(name))


def histogram(code: str, requests: str) -> str:
    """An aggregate: how many requests of each code, as JSON."""
    function = "jsonb_object_agg" if connection.vendor == "postgresql" else "json_group_object"
    return f"{function}({code}, {requests})"


def both_histograms(one: str, other: str) -> str:
    """Two of them added up."""
    of_one = "jsonb_each_text" if connection.vendor == "postgresql" else "json_each"
    rows = [f"SELECT key, CAST(value AS bigint) AS value FROM {of_one}({each})" for each in (one, other)]
    added = f"SELECT key, SUM(value) AS value FROM ({' UNION ALL '.join(rows)}) b GROUP BY key"
    return (
        f"CASE WHEN {one} IS NULL THEN {other} WHEN {other} IS NULL THEN {one}"
        f" ELSE (SELECT {histogram('key', 'value')} FROM ({added}) c) END"
    )


def upsert(
    model: type[models.Model],
    groups: Any,
    columns: Mapping[str, str],
    *,
    added: Sequence[str],
    series: type[models.Model] = Series,
) -> None:
    """Insert what `groups` selects (`g`, each with its `series` as `s`, if it has one); where a row is there already,
    add.

    The ORM's own upsert can only replace. `columns` says where each column of `model` comes from.
    """
    sql, params = groups.query.sql_with_params()
    table = model._meta.db_table
    join = f" JOIN {series._meta.db_table} s ON s.identity = g.identity" if "series_id" in columns else ""
    additions = ", ".join(f"{name} = {table}.{name} + EXCLUDED.{name}" for name in added)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM ({sql}) g{join} "
            f"WHERE true ON CONFLICT ({', '.join(_unique_columns(model))}) DO "
            + (f"UPDATE SET {additions}" if added else "NOTHING"),
            params,
        )


def _unique_columns(model: type[models.Model]) -> list[str]:
    rules = [rule for rule in model._meta.constraints if isinstance(rule, models.UniqueConstraint)]
    if not rules:
        return ["identity"]
    (unique,) = rules
    return [str(cast("models.Field[Any, Any]", model._meta.get_field(name)).column) for name in unique.fields]
