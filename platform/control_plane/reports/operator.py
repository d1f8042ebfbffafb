"""All tenants over some days, on all base models or one: what they used, what it cost, how long they waited, whose time
the devices spent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Sum

from control_plane.adapters.models import Adapter
from control_plane.fleet.models import BaseModel
from control_plane.prices.periods import currency_of, periods
from control_plane.refusals.models import DailyRefusals
from control_plane.tenants.models import Tenant
from control_plane.usage import series
from control_plane.usage.base_models import NamedBases
from control_plane.usage.models import DailyLatency, DailyTotals, Metric, Outcome, SeriesKind, TimeSeries
from control_plane.usage.sums import Span, UsageSums, as_of, latency, most_first, overall, percentiles, summed

TOP_ADAPTERS = 20
MOST_TENANTS = 100
Buckets = dict[int, int]
# Of a tenant and an outcome.
Parts = dict[tuple[Any, ...], UsageSums]


@dataclass(frozen=True)
class TenantRow:
    tenant: Tenant
    sums: UsageSums
    refused: int
    failed: int
    latency: dict[str, Buckets]

    def json(self, whole: UsageSums) -> dict[str, Any]:
        return {
            "tenant": self.tenant.slug,
            "name": self.tenant.name,
            **self.sums.json(),
            "refused": self.refused,
            "failed": self.failed,
            "device_share": _share(self.sums.device_us, whole.device_us),
            "latency": {metric.value: percentiles(self.latency.get(metric.value, {})) for metric in Metric},
        }


def operator_report(span: Span, bases: NamedBases | None = None) -> dict[str, Any]:
    """Totals, by UTC day and base model, the tenants and the adapters that took most of the devices' time.

    A request that no engine had is of no base model: a report of one has none of these.
    """
    prices, on = periods(span.first, span.last), None if bases is None else bases.pks
    days, latencies = overall(span)
    by_tenant = span.of(DailyTotals.objects.all())
    if on is not None:
        days, by_tenant = days.filter(base_id__in=on), by_tenant.filter(base_id__in=on)
    by_day = summed(days, prices, ("start",))
    by_base = summed(days, prices, ("base_id",))
    parts = summed(by_tenant, prices, ("tenant_id", "outcome"))
    totals = UsageSums.total(by_day.values())
    turned_away = turned_away_by_tenant(span) if on is None else {}
    tenants = _tenants(parts, span, turned_away, on)
    return {
        "first": span.first,
        "last": span.last,
        "as_of": as_of(),
        "currency": currency_of(prices),
        "totals": totals.json(),
        "outcomes": _outcomes(parts, turned_away),
        "latency": latency(latencies) if on is None else series.total_of_all(series.days(span), on).percentiles(),
        "by_day": [{"date": day, **by_day.get((day,), UsageSums()).json()} for day in span.days()],
        "by_base_model": _by_base_model(by_base),
        "tenants": len({tenant for tenant, _ in parts} | turned_away.keys()),
        "by_tenant": [row.json(totals) for row in tenants],
        "top_adapters": _top_adapters(span, totals, on),
    }


def _by_base_model(by_base: Parts) -> list[dict[str, Any]]:
    names = dict(BaseModel.objects.values_list("pk", "name"))
    named: defaultdict[tuple[Any, ...], UsageSums] = defaultdict(UsageSums)
    for (pk,), sums in by_base.items():
        named[(names.get(pk),)] += sums
    return [{"base_model": name, **sums.json()} for (name,), sums in most_first(named)]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


@dataclass(frozen=True)
class TurnedAway:
    """Requests that no engine had: these are not in the ledger."""

    refused: int
    """What the caller sent, or is allowed, was at fault."""
    failed: int
    """The platform was: no host, no database, an error."""


def turned_away_by_tenant(span: Span) -> dict[UUID, TurnedAway]:
    rows = span.of(DailyRefusals.objects.all()).order_by().values_list("tenant_id")
    sums = rows.annotate(Sum("count"), Sum("failed"))
    return {tenant: TurnedAway(count - failed, failed) for tenant, count, failed in sums}


def _outcomes(parts: Parts, turned_away: dict[UUID, TurnedAway]) -> dict[str, int]:
    """However a request ended. Refused or failed: in an engine, or before any had it."""
    counts = dict.fromkeys(Outcome.values, 0)
    counts[Outcome.REFUSED] = sum(turned.refused for turned in turned_away.values())
    counts[Outcome.FAILED] = sum(turned.failed for turned in turned_away.values())
    for (_, outcome), sums in parts.items():
        counts[outcome] += sums.requests
    return counts


def _most(sums: dict[UUID, UsageSums], count: int) -> list[tuple[UUID, UsageSums]]:
    """By device time."""
    return sorted(sums.items(), key=lambda item: (-item[1].device_us, -item[1].requests, str(item[0])))[:count]


def _tenants(
    parts: Parts, span: Span, turned_away: dict[UUID, TurnedAway], on: Collection[int] | None
) -> list[TenantRow]:
    sums: defaultdict[UUID, UsageSums] = defaultdict(UsageSums)
    ended: defaultdict[tuple[UUID, str], int] = defaultdict(int)
    for (tenant, outcome), part in parts.items():
        sums[tenant] += part
        ended[tenant, outcome] += part.requests
    for tenant, turned in turned_away.items():
        sums[tenant] += UsageSums()  # also one of whom nothing but refusals is known
        ended[tenant, Outcome.REFUSED] += turned.refused
        ended[tenant, Outcome.FAILED] += turned.failed
    most = _most(sums, MOST_TENANTS)
    known = Tenant.objects.in_bulk([tenant for tenant, _ in most])
    waits = _latency_by_tenant(span, list(known), on)
    return [
        TenantRow(known[pk], part, ended[pk, Outcome.REFUSED], ended[pk, Outcome.FAILED], waits.get(pk, {}))
        for pk, part in most
    ]


def _latency_by_tenant(span: Span, tenants: list[UUID], on: Collection[int] | None) -> dict[UUID, dict[str, Buckets]]:
    if on is not None:
        steps = series.by_tenant(tenants, series.days(span), on).items()
        return {tenant: {metric.value: step.latencies[metric] for metric in Metric} for tenant, step in steps}
    counts: defaultdict[UUID, dict[str, Buckets]] = defaultdict(dict)
    rows = span.of(DailyLatency.objects.filter(tenant__in=tenants)).order_by()
    for tenant, metric, bucket, requests in rows.values_list("tenant_id", "metric", "bucket").annotate(Sum("requests")):
        counts[tenant].setdefault(metric, {})[bucket] = requests
    return counts


def _top_adapters(span: Span, whole: UsageSums, on: Collection[int] | None) -> list[dict[str, Any]]:
    """By device time. The database finds which they are; only of those is everything added up."""
    asked = series.days(span)
    versions = TimeSeries.objects.filter(kind=SeriesKind.VERSION)
    if on is not None:
        versions = versions.filter(base_model__in=on)
    times = series.added_up(versions, asked, "device_us")
    adapter_of = {
        pk: (tenant, adapter) for pk, tenant, adapter in versions.values_list("pk", "tenant_id", "adapter_id")
    }
    used: Counter[tuple[UUID | None, UUID | None]] = Counter()
    for pk, time in times.items():
        used[adapter_of[pk]] += time
    most = sorted(used, key=lambda one: (-used[one], str(one)))[:TOP_ADAPTERS]
    sums = dict.fromkeys(most, UsageSums())
    for pk, step in series.by_series([pk for pk in times if adapter_of[pk] in sums], asked).items():
        sums[adapter_of[pk]] += step.sums
    tenants = Tenant.objects.in_bulk({tenant for tenant, _ in most})
    adapters = Adapter.objects.in_bulk({adapter for _, adapter in most if adapter})
    return [
        {
            "tenant": tenants[tenant].slug,
            "adapter": adapters[adapter].name if adapter else None,
            **part.json(),
            "device_share": _share(part.device_us, whole.device_us),
        }
        for (tenant, adapter), part in sums.items()
        if tenant
    ]
