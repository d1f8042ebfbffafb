"""Adding up rollup rows: by any columns, with what it cost, over a span of days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self, TypeVar

from django.db import models
from django.db.models import F, QuerySet, Sum
from django.utils import timezone

from control_plane.prices.money import micros, tokens_cost
from control_plane.prices.periods import BillingPeriod, period_number
from control_plane.usage.histogram import percentile_us
from control_plane.usage.models import DailyLatency, DailyTotals, Metric, OverallLatency, OverallTotals, Watermark

M = TypeVar("M", bound=models.Model)
Latencies = QuerySet[DailyLatency] | QuerySet[OverallLatency]


@dataclass
class Sums:
    """Counts, the device's time in microseconds, and the cost in 10^-12 of the currency."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    device_us: int = 0
    cost_pico: int = 0

    def add(self, other: Sums) -> None:
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.cached_prompt_tokens += other.cached_prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.device_us += other.device_us
        self.cost_pico += other.cost_pico

    @classmethod
    def total(cls, parts: Iterable[Sums]) -> Self:
        whole = cls()
        for part in parts:
            whole.add(part)
        return whole

    def json(self) -> dict[str, int]:
        return {
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "cached_prompt_tokens": self.cached_prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "device_us": self.device_us,
            "cost_micros": self.cost_micros,
        }

    @property
    def cost_micros(self) -> int:
        return micros(self.cost_pico)


COUNTED = ("requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "device_us")
Key = tuple[Any, ...]


def summed(rows: QuerySet[M], prices: Sequence[BillingPeriod], by: Sequence[str]) -> dict[Key, Sums]:
    """The sums of rollup rows for each combination of the columns `by`; without columns, one sum at `()`."""
    totals: defaultdict[Key, Sums] = defaultdict(Sums)
    if not by:
        totals[()] = Sums()
    grouped = rows.annotate(period=period_number(prices, "start")).order_by().values_list(*by, "period")
    for row in grouped.annotate(**{f"sum_{name}": Sum(name, default=0) for name in COUNTED}):
        key, period, counts = row[: len(by)], row[len(by)], row[len(by) + 1 :]
        sums = Sums(*counts)
        if price := prices[period].price:
            sums.cost_pico = tokens_cost(
                price,
                prompt=sums.prompt_tokens,
                cached=sums.cached_prompt_tokens,
                completion=sums.completion_tokens,
            )
        totals[key].add(sums)
    return dict(totals)


def most_first(sums: dict[Key, Sums]) -> list[tuple[Key, Sums]]:
    return sorted(sums.items(), key=lambda item: (-item[1].requests, str(item[0])))


@dataclass(frozen=True)
class Span:
    """Whole UTC days, both ends included."""

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


def as_of() -> datetime | None:
    """When the rollups last held the whole ledger; None if they never did."""
    return Watermark.objects.values_list("checked_at", flat=True).first()


def overall(span: Span) -> tuple[QuerySet[OverallTotals] | QuerySet[DailyTotals], Latencies]:
    """Rows that add up to all tenants' totals and latencies: the tenants' own, while the rollups of all are behind."""
    if Watermark.objects.exclude(overall_event_id=F("event_id")).exists():
        return span.of(DailyTotals.objects.all()), span.of(DailyLatency.objects.all())
    return span.of(OverallTotals.objects.all()), span.of(OverallLatency.objects.all())


def latency(rows: Latencies) -> dict[str, dict[str, float | None]]:
    """P50, P95 and P99 of each metric in milliseconds."""
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
