"""SQL of the rollups: rows are grouped and added in the database and never pass through Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from django.db import connection, models
from django.db.models import BigIntegerField, F, Func, IntegerField, Q, QuerySet, TextField, Value
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Cast, Coalesce, Concat, Greatest

from control_plane.billing.usage.histogram import BOUNDS_US
from control_plane.billing.usage.models import Metric, Outcome, Series, UsageEvent

# Microseconds that a first token of 0 rounded milliseconds can have taken at most.
LEAST_US = 500
# Prefix of the identities of series with a known base model; the other identities are older than that column.
OF_BASE = "base/"


def identity(names: Sequence[str], *, before: str = "", after: Any = None) -> Concat:
    """Return an expression that joins columns to one text; a null column becomes "-"."""
    text = TextField()
    parts = [Coalesce(Cast(name, text), Value("-", text)) for name in names]
    pieces = (piece for part in parts for piece in (part, Value("/", text)))
    return Concat(Value(before, text), *pieces, after or Value(""), output_field=text)


def base_as_text(before: str) -> Func:
    """Return the base model's id as text, without nesting, which SQLite limits."""
    return Func("base_model_id", template=f"'{before}' || %(expressions)s", output_field=TextField())


def measured() -> list[tuple[Metric, Q, Any]]:
    """Return for each metric the condition for its rows, and its value in microseconds."""
    # Milliseconds are rounded: with a token, 0 means a first token within half a millisecond.
    had_a_token = Q(completion_tokens__gt=0) | Q(first_token_ms__gt=0)
    # Batches run in the background: their latencies do not tell how soon other requests are answered.
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
    """Return for each metric its rows and its value in microseconds."""
    return [(metric, events.filter(having), value) for metric, having, value in measured()]


def _us(milliseconds: str) -> CombinedExpression:
    return Cast(milliseconds, BigIntegerField()) * 1000


class Bucket(Func):
    """The SQL function of `histogram.bucket_of`."""

    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # Counts the bounds up to its argument; the bucket is the number of bounds below the value.
        bounds = ",".join(map(str, BOUNDS_US))
        template = f"width_bucket((%(expressions)s)::bigint - 1, ARRAY[{bounds}]::bigint[])"
        return self.as_sql(compiler, connection, template=template, **extra_context)

    def as_sqlite(self, compiler: Any, connection: Any, **extra_context: Any) -> Any:
        # As text: compiling a tree of eighty cases takes Django ten times as long as SQLite takes to run it.
        value, params = compiler.compile(self.source_expressions[0])
        return _HALVED.replace("?", f"({value})"), tuple(params) * _HALVED.count("?")


def _halved(first: int = 0, last: int = len(BOUNDS_US)) -> str:
    """Return the bucket of "?" between two bounds by bisection: a row costs seven comparisons."""
    if first == last:
        return str(first)
    middle = (first + last) // 2
    lower, upper = _halved(first, middle), _halved(middle + 1, last)
    return f"CASE WHEN ? <= {BOUNDS_US[middle]} THEN {lower} ELSE {upper} END"


_HALVED = _halved()


def bucket(name: str = "value_us") -> Bucket:
    return Bucket(F(name))


def histogram(code: str, requests: str) -> str:
    """Return an aggregate of the number of requests of each code, as JSON."""
    function = "jsonb_object_agg" if connection.vendor == "postgresql" else "json_group_object"
    return f"{function}({code}, {requests})"


def both_histograms(one: str, other: str) -> str:
    """Return an expression that adds two histograms up."""
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
    """Insert the rows of `groups` (`g`, each with its `series` as `s`, if it has one), or add to existing rows.

    The ORM's own upsert can only replace. `columns` gives the source of each column of `model`.
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
