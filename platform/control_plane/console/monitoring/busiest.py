"""Metrics of the busiest tenants and adapters by name: a few series, however many there are.

They come from the sums by minute, so that all web processes show the same values, and cover the last five minutes that
the rollups have read.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC

from django.db.models import F, QuerySet, Sum
from prometheus_client.core import GaugeMetricFamily

from control_plane.billing.prices.money import tokens_cost
from control_plane.billing.prices.periods import BillingPeriod, period_of, periods
from control_plane.billing.usage.models import MinuteSums, SeriesKind, Watermark
from control_plane.billing.usage.time_series import minute_of
from control_plane.console.monitoring.collectors import DatabaseState
from control_plane.core.config import current
from control_plane.core.metrics.registry import INSTALLATION

MINUTES = 5
# Seconds for which one reading serves all scrapes of a process.
KEPT_S = 10.0
_PICO = 10**12
_COUNTS = ("requests", "prompt_tokens", "cached_prompt_tokens", "completion_tokens")
Labels = tuple[str, ...]


@dataclass
class RecentUse:
    """The figures of a tenant or an adapter over the last minutes; the cost in 10^-12 of the currency."""

    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost_pico: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.cached + self.completion


class Busiest:
    """A reader of the busiest tenants and adapters, which keeps a reading for a few seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        self._gauges: list[GaugeMetricFamily] = []

    def __call__(self) -> Sequence[GaugeMetricFamily]:
        with self._lock:
            if time.monotonic() - self._read_s >= KEPT_S:
                self._gauges, self._read_s = list(_read()), time.monotonic()
            return self._gauges

    def forget(self) -> None:
        """Read again at the next scrape."""
        self._read_s = float("-inf")


def _read() -> Iterator[GaugeMetricFamily]:
    most = current().metrics_names
    checked_at = Watermark.objects.values_list("checked_at", flat=True).first()
    if not most or checked_at is None:
        return
    end = minute_of(checked_at)
    rows = MinuteSums.objects.filter(start__gte=end - MINUTES, start__lt=end).order_by()
    today = checked_at.astimezone(UTC).date()
    prices = period_of(periods(today, today), today)
    tenants = rows.filter(series__kind=SeriesKind.TENANT).annotate(tenant=F("series__tenant__slug"))
    adapters = rows.filter(series__kind=SeriesKind.VERSION, series__adapter__isnull=False).annotate(
        tenant=F("series__tenant__slug"), adapter=F("series__adapter__name")
    )
    yield from _gauges("tenant", ["tenant"], _recent_uses(tenants, ["tenant"], prices), most, prices)
    labels = ["tenant", "adapter"]
    yield from _gauges("adapter", labels, _recent_uses(adapters, labels, prices), most, prices)


def _recent_uses(rows: QuerySet[MinuteSums], by: list[str], prices: BillingPeriod) -> dict[Labels, RecentUse]:
    uses: defaultdict[Labels, RecentUse] = defaultdict(RecentUse)
    grouped = rows.values_list(*by, "outcome", "batch", "series__base_model_id")
    for row in grouped.annotate(**{f"sum_{name}": Sum(name, default=0) for name in _COUNTS}):
        key, (outcome, batch, base) = tuple(row[: len(by)]), row[len(by) : len(by) + 3]
        requests, prompt, cached, completion = row[len(by) + 3 :]
        one = uses[key]
        one.requests[outcome] += requests
        one.prompt += prompt - cached
        one.cached += cached
        one.completion += completion
        if (price := prices.price(base)) is not None:
            one.cost_pico += tokens_cost(price, prompt=prompt, cached=cached, completion=completion, batch=batch)
    return uses


def _gauges(
    noun: str, labels: list[str], uses: dict[Labels, RecentUse], most: int, prices: BillingPeriod
) -> Iterator[GaugeMetricFamily]:
    busiest = sorted(uses.items(), key=lambda item: (-item[1].tokens, item[0]))[:most]
    which = f"of the {noun}s with the most tokens, over the last five minutes."
    requests = GaugeMetricFamily(
        f"lorikeet_{noun}_requests_per_second", f"Requests that ended, {which}", labels=[*labels, "outcome"]
    )
    tokens = GaugeMetricFamily(f"lorikeet_{noun}_tokens_per_second", f"Tokens, {which}", labels=[*labels, "kind"])
    cost = GaugeMetricFamily(
        f"lorikeet_{noun}_cost_per_hour", f"Cost at this rate, {which}", labels=[*labels, "currency"]
    )
    seconds = MINUTES * 60
    for key, one in busiest:
        for outcome, count in sorted(one.requests.items()):
            requests.add_metric([*key, outcome], count / seconds)
        for kind, count in (("prompt", one.prompt), ("cached_prompt", one.cached), ("completion", one.completion)):
            tokens.add_metric([*key, kind], count / seconds)
        if prices.currency:
            cost.add_metric([*key, prices.currency], one.cost_pico / _PICO / seconds * 3600)
    yield from (requests, tokens, cost)


busiest = Busiest()
INSTALLATION.register(DatabaseState(busiest))
