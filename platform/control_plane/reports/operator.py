"""All tenants over some days: what they used, what it cost, how long they waited, whose time the devices spent."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Sum

from control_plane.prices.periods import periods
from control_plane.tenants.models import Tenant
from control_plane.usage.models import DailyLatency, DailyUsage, Metric, Outcome
from control_plane.usage.sums import Span, Sums, as_of, percentiles, summed

TOP_ADAPTERS = 20
Buckets = dict[int, int]


@dataclass(frozen=True)
class TenantRow:
    tenant: Tenant
    sums: Sums
    refused: int
    failed: int
    latency: dict[str, Buckets]

    def json(self, whole: Sums) -> dict[str, Any]:
        return {
            "tenant": self.tenant.slug,
            "name": self.tenant.name,
            **self.sums.json(),
            "refused": self.refused,
            "failed": self.failed,
            "device_share": _share(self.sums.device_us, whole.device_us),
            "latency": {metric.value: percentiles(self.latency.get(metric.value, {})) for metric in Metric},
        }


def operator_report(span: Span) -> dict[str, Any]:
    """Totals, by UTC day, by tenant (all that used anything) and the adapters that took most of the devices' time."""
    rows, prices = span.of(DailyUsage.objects.all()), periods(span.first, span.last)
    by_day = summed(rows, prices, ("start",))
    finest = summed(rows, prices, ("tenant_id", "series__adapter_id", "series__adapter__name", "series__outcome"))
    totals = Sums.total(by_day.values())
    waits = _latency(span)
    tenants = _tenants(finest, waits)
    return {
        "first": span.first,
        "last": span.last,
        "as_of": as_of(),
        "currency": prices[-1].price.currency if prices[-1].price else None,
        "totals": totals.json(),
        "outcomes": _outcomes(finest),
        "latency": {metric.value: percentiles(_merged(waits, metric)) for metric in Metric},
        "by_day": [{"date": day, **by_day.get((day,), Sums()).json()} for day in span.days()],
        "by_tenant": [row.json(totals) for row in tenants],
        "top_adapters": _top_adapters(finest, {row.tenant.pk: row.tenant.slug for row in tenants}, totals),
    }


Finest = dict[tuple[Any, ...], Sums]
Waits = dict[UUID, dict[str, Buckets]]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _latency(span: Span) -> Waits:
    counts: Waits = defaultdict(lambda: defaultdict(dict))
    grouped = span.of(DailyLatency.objects.all()).order_by().values_list("tenant_id", "metric", "bucket")
    for tenant, metric, bucket, requests in grouped.annotate(Sum("requests")):
        counts[tenant][metric][bucket] = requests
    return counts


def _merged(waits: Waits, metric: Metric) -> Buckets:
    merged: defaultdict[int, int] = defaultdict(int)
    for of_tenant in waits.values():
        for bucket, requests in of_tenant.get(metric.value, {}).items():
            merged[bucket] += requests
    return merged


def _outcomes(finest: Finest) -> dict[str, int]:
    counts = dict.fromkeys(Outcome.values, 0)
    for (*_, outcome), sums in finest.items():
        counts[outcome] += sums.requests
    return counts


def _tenants(finest: Finest, waits: Waits) -> list[TenantRow]:
    sums: defaultdict[UUID, Sums] = defaultdict(Sums)
    ended: defaultdict[tuple[UUID, str], int] = defaultdict(int)
    for (tenant, _, _, outcome), part in finest.items():
        sums[tenant].add(part)
        ended[tenant, outcome] += part.requests
    rows = [
        TenantRow(tenant, sums[tenant.pk], ended[tenant.pk, "refused"], ended[tenant.pk, "failed"], waits[tenant.pk])
        for tenant in Tenant.objects.filter(pk__in=list(sums))
    ]
    return sorted(rows, key=lambda row: (-row.sums.device_us, -row.sums.requests, row.tenant.slug))


def _top_adapters(finest: Finest, slugs: dict[UUID, str], whole: Sums) -> list[dict[str, Any]]:
    sums: defaultdict[tuple[Any, ...], Sums] = defaultdict(Sums)
    for (tenant, adapter, name, _), part in finest.items():
        sums[tenant, adapter, name].add(part)
    most = sorted(sums.items(), key=lambda item: (-item[1].device_us, -item[1].requests, str(item[0])))
    return [
        {
            "tenant": slugs[tenant],
            "adapter": name,
            **part.json(),
            "device_share": _share(part.device_us, whole.device_us),
        }
        for (tenant, _, name), part in most[:TOP_ADAPTERS]
    ]
