"""Sums of rollup rows: by any columns, with their cost, over a span of days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from django.db import connection, models, transaction
from django.db.models import Case, F, QuerySet, Sum, Value, When
from django.utils import timezone

from control_plane.billing.prices.models import PriceVersion
from control_plane.billing.prices.money import micros, tokens_cost
from control_plane.billing.prices.periods import BillingPeriod, period_number
from control_plane.billing.usage.counters import REPORTED, ReportedCounts
from control_plane.billing.usage.histogram import percentile_us
from control_plane.billing.usage.models import (
    DailyLatency,
    DailyTotals,
    DailyUsage,
    HourlyUsage,
    Metric,
    OverallLatency,
    OverallTotals,
    Watermark,
)

M = TypeVar("M", bound=models.Model)
Latencies = QuerySet[DailyLatency] | QuerySet[OverallLatency]


COUNTED = ("requests", *REPORTED)


@dataclass(frozen=True, kw_only=True)
class UsageSums(ReportedCounts):
    """The figures of many requests, the cost in 10^-12 of the currency of those that had a price, and the number of the
    others.
    """

    requests: int = 0
    cost_pico: int = 0
    unpriced: int = 0

    def __add__(self, other: UsageSums) -> UsageSums:
        added = {name: getattr(self, name) + getattr(other, name) for name in (*COUNTED, "cost_pico", "unpriced")}
        return UsageSums(**added)

    @classmethod
    def total(cls, parts: Iterable[UsageSums]) -> UsageSums:
        return sum(parts, start=cls())

    def at(self, price: PriceVersion | None, *, batch: bool) -> UsageSums:
        """Return the figures with their cost at one price; None: they have none."""
        return replace(
            self, cost_pico=cost_of(price, self, batch=batch), unpriced=self.requests if price is None else 0
        )

    def json(self) -> dict[str, int | None]:
        return {**{name: getattr(self, name) for name in COUNTED}, "cost_micros": self.cost_micros}

    @property
    def cost_micros(self) -> int | None:
        """Cost in millionths of the currency; None if none of the requests had a price."""
        return None if self.unpriced and self.unpriced == self.requests else micros(self.cost_pico)


Key = tuple[Any, ...]


def summed(rows: QuerySet[M], prices: Sequence[BillingPeriod], by: Sequence[str]) -> dict[Key, UsageSums]:
    """Return the sums of rollup rows for each combination of the columns `by`; without columns, one sum at `()`."""
    totals: defaultdict[Key, UsageSums] = defaultdict(UsageSums)
    if not by:
        totals[()] = UsageSums()
    for part in priced(rows, prices, by):
        totals[part.key] += part.sums
    return dict(totals)


@dataclass(frozen=True)
class PricedPart:
    """The sums of rollup rows that have one price, with that price."""

    key: Key
    price: PriceVersion | None
    batch: bool
    sums: UsageSums


def priced(rows: QuerySet[M], prices: Sequence[BillingPeriod], by: Sequence[str]) -> Iterator[PricedPart]:
    """Yield the sums of rollup rows for each combination of the columns `by`, split where prices differ."""
    batch_column, base_column = price_columns(rows.model)
    dated = rows.annotate(period=period_number(prices, "start"), list_of=_list_of(prices, base_column)).order_by()
    grouped = dated.values_list(*by, "period", batch_column, "list_of")
    for row in grouped.annotate(**{f"sum_{name}": Sum(name, default=0) for name in COUNTED}):
        key, (period, batch, base), counts = row[: len(by)], row[len(by) : len(by) + 3], row[len(by) + 3 :]
        sums, price = UsageSums(**dict(zip(COUNTED, counts, strict=True))), prices[period].price(base)
        yield PricedPart(key, price, batch, sums.at(price, batch=batch))


def _list_of(prices: Sequence[BillingPeriod], base_column: str) -> Case | Value:
    """Return an SQL expression for the base model whose price list applies; 0 for all without a list of their own."""
    priced_bases = sorted({base for period in prices for base in period.by_base})
    if not priced_bases:
        return Value(0)
    return Case(When(**{f"{base_column}__in": priced_bases}, then=F(base_column)), default=Value(0))


def price_columns(rollup: type[models.Model]) -> tuple[str, str]:
    """Return the columns that prices depend on: whether a row is of batches, and its base model."""
    return ("series__batch", "series__base_model_id") if rollup in (HourlyUsage, DailyUsage) else ("batch", "base_id")


def cost_of(price: PriceVersion | None, used: ReportedCounts, *, batch: bool) -> int:
    """Return the cost in 10^-12 of the currency; 0 without a price."""
    if price is None:
        return 0
    prompt, cached, completion = used.prompt_tokens, used.cached_prompt_tokens, used.completion_tokens
    return tokens_cost(price, prompt=prompt, cached=cached, completion=completion, batch=batch)


def most_first(sums: dict[Key, UsageSums]) -> list[tuple[Key, UsageSums]]:
    return sorted(sums.items(), key=lambda item: (-item[1].requests, str(item[0])))


@dataclass(frozen=True)
class Span:
    """A span of whole UTC days, both ends included."""

    first: date
    last: date

    def days(self) -> list[date]:
        return [self.first + timedelta(days=number) for number in range((self.last - self.first).days + 1)]

    def of(self, rows: QuerySet[M]) -> QuerySet[M]:
        return rows.filter(start__gte=self.first, start__lte=self.last)


def today() -> date:
    return timezone.now().astimezone(UTC).date()


def last_days(days: int) -> Span:
    return Span(today() - timedelta(days=days - 1), today())


@contextmanager
def room_for_groups() -> Iterator[None]:
    """Raise PostgreSQL's memory bound, so that some thousand groups are not sorted on disk."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL work_mem = '16MB'")
        yield


def as_of() -> datetime | None:
    """Return when the rollups last held the whole ledger; None if they never did."""
    return Watermark.objects.values_list("checked_at", flat=True).first()


# Time after the end of a day until its usage counts as complete: requests are dated by when they came in, and are in
# the ledger only when they end, or when the journal of a host that was away has been collected.
SETTLED_AFTER = timedelta(hours=1)


def is_settled(last: date) -> bool:
    """Return True once the rollups hold the usage of all days up to `last` (UTC)."""
    read_to = as_of()
    return read_to is not None and read_to >= midnight(last + timedelta(days=1)) + SETTLED_AFTER


def midnight(day: date) -> datetime:
    """Return the start of a day, UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def overall(span: Span) -> tuple[QuerySet[OverallTotals] | QuerySet[DailyTotals], Latencies]:
    """Return rows that add up to all tenants' totals and latencies: the tenants', while the overall are behind."""
    if Watermark.objects.exclude(overall_event_id=F("event_id")).exists():
        return span.of(DailyTotals.objects.all()), span.of(DailyLatency.objects.all())
    return span.of(OverallTotals.objects.all()), span.of(OverallLatency.objects.all())


def latency(rows: Latencies) -> dict[str, dict[str, float | None]]:
    """Return P50, P95 and P99 of each metric in milliseconds."""
    counts: dict[str, dict[int, int]] = {metric.value: {} for metric in Metric}
    grouped = rows.order_by().values_list("metric", "bucket").annotate(Sum("requests"))
    for metric, bucket, requests in grouped:
        counts[metric][bucket] = requests
    return {metric: percentiles(buckets) for metric, buckets in counts.items()}


def percentiles(buckets: dict[int, int]) -> dict[str, float | None]:
    return {
        name: None if (value := percentile_us(buckets, share)) is None else value / 1000
        for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99))
    }
