"""The operator's report: the usage, cost and latency of all tenants over some days, on all base models or one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet, Sum, Value
from django.db.models.functions import NullIf

from control_plane.adapters.registry.models import Adapter
from control_plane.billing.prices.periods import currency_of, periods
from control_plane.billing.refusals.models import DailyRefusals
from control_plane.billing.usage import series
from control_plane.billing.usage.base_models import NamedBases
from control_plane.billing.usage.models import (
    BASE_MODEL_ITSELF,
    DailyActivity,
    DailyLatency,
    DailyTotals,
    DailyUsage,
    Metric,
    Outcome,
    SeriesKind,
    TimeSeries,
    Watermark,
)
from control_plane.billing.usage.sums import (
    Span,
    UsageSums,
    as_of,
    latency,
    most_first,
    overall,
    percentiles,
    room_for_groups,
    summed,
)
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.tenants.models import Tenant

# Adapters that a report lists, by device time.
TOP_ADAPTERS = 20
# Maximum number of tenants that a report lists, by device time.
MAX_TENANTS = 100
Buckets = dict[int, int]
Parts = dict[tuple[Any, ...], UsageSums]


@dataclass(frozen=True)
class Activity:
    """The requests of a tenant with an adapter, or none, and one outcome, with their device time."""

    tenant: UUID
    adapter: UUID | None
    outcome: str
    requests: int
    device_us: int


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


@room_for_groups()
def operator_report(span: Span, bases: NamedBases | None = None) -> dict[str, Any]:
    """Return totals by UTC day and base model, and the tenants and adapters with most device time.

    A request that reached no engine has no base model, so the report of one base model does not count it.
    """
    prices, on = periods(span.first, span.last), None if bases is None else bases.pks
    days, latencies = overall(span)
    by_tenant = span.of(DailyTotals.objects.all())
    if on is not None:
        days, by_tenant = days.filter(base_id__in=on), by_tenant.filter(base_id__in=on)
    by_day = summed(days, prices, ("start",))
    by_base = summed(days, prices, ("base_id",))
    activities = _activities(span, on)
    totals = UsageSums.total(by_day.values())
    rejected = rejections_by_tenant(span) if on is None else {}
    most = _most(activities, rejected)
    costs = summed(by_tenant.filter(tenant__in=most), prices, ("tenant_id",))
    return {
        "first": span.first,
        "last": span.last,
        "as_of": as_of(),
        "currency": currency_of(prices),
        "totals": totals.json(),
        "outcomes": _outcomes(activities, rejected),
        "latency": latency(latencies) if on is None else series.total_of_all(series.days(span), on).percentiles(),
        "by_day": [{"date": day, **by_day.get((day,), UsageSums()).json()} for day in span.days()],
        "by_base_model": _by_base_model(by_base),
        "tenants": len({part.tenant for part in activities} | rejected.keys()),
        "by_tenant": [row.json(totals) for row in _tenants(most, costs, activities, span, rejected, on)],
        "top_adapters": _top_adapters(activities, span, totals, on),
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
class Rejections:
    """The requests of a tenant that reached no engine and so are not in the ledger.

    `refused` are the caller's fault or over a limit; `failed` are the platform's fault.
    """

    refused: int
    failed: int


def rejections_by_tenant(span: Span) -> dict[UUID, Rejections]:
    rows = span.of(DailyRefusals.objects.all()).order_by().values_list("tenant_id")
    sums = rows.annotate(Sum("count"), Sum("failed"))
    return {tenant: Rejections(count - failed, failed) for tenant, count, failed in sums}


def _activities(span: Span, on: Collection[int] | None) -> list[Activity]:
    """Return the activities. Prices are left out: each price list would be one more row, and few rows are shown."""
    rows: QuerySet[Any, Any]
    if on is None and not Watermark.objects.exclude(activity_event_id=F("event_id")).exists():
        days = span.of(DailyActivity.objects.all()).order_by()
        rows = days.values_list("tenant_id", NullIf("adapter_id", Value(BASE_MODEL_ITSELF)), "outcome")
    else:
        used = span.of(DailyUsage.objects.all()).order_by()
        used = used if on is None else used.filter(series__base_model__in=on)
        rows = used.values_list("tenant_id", "series__adapter_id", "series__outcome")
    return [Activity(*row) for row in rows.annotate(Sum("requests"), Sum("device_us"))]


def _outcomes(activities: Iterable[Activity], rejected: dict[UUID, Rejections]) -> dict[str, int]:
    """Return the requests by outcome; refused and failed ones may have reached an engine or not."""
    counts = dict.fromkeys(Outcome.values, 0)
    counts[Outcome.REFUSED] = sum(each.refused for each in rejected.values())
    counts[Outcome.FAILED] = sum(each.failed for each in rejected.values())
    for part in activities:
        counts[part.outcome] += part.requests
    return counts


def _most(activities: Iterable[Activity], rejected: dict[UUID, Rejections]) -> list[UUID]:
    """Return the listed tenants by device time, including those with only rejected requests."""
    used = dict.fromkeys(rejected, (0, 0))
    for part in activities:
        time, requests = used.get(part.tenant, (0, 0))
        used[part.tenant] = time + part.device_us, requests + part.requests
    return sorted(used, key=lambda tenant: (-used[tenant][0], -used[tenant][1], str(tenant)))[:MAX_TENANTS]


def _tenants(
    shown: Sequence[UUID],
    costs: Parts,
    activities: Iterable[Activity],
    span: Span,
    rejected: dict[UUID, Rejections],
    on: Collection[int] | None,
) -> Iterator[TenantRow]:
    counts: Counter[tuple[UUID, str]] = Counter()
    for part in activities:
        counts[part.tenant, part.outcome] += part.requests
    for tenant, each in rejected.items():
        counts[tenant, Outcome.REFUSED] += each.refused
        counts[tenant, Outcome.FAILED] += each.failed
    known, waits = Tenant.objects.in_bulk(shown), _latency_by_tenant(span, list(shown), on)
    for pk in shown:
        refused, failed = (counts[pk, outcome] for outcome in (Outcome.REFUSED, Outcome.FAILED))
        yield TenantRow(known[pk], costs.get((pk,), UsageSums()), refused, failed, waits.get(pk, {}))


def _latency_by_tenant(span: Span, tenants: list[UUID], on: Collection[int] | None) -> dict[UUID, dict[str, Buckets]]:
    if on is not None:
        steps = series.by_tenant(tenants, series.days(span), on).items()
        return {tenant: {metric.value: step.latencies[metric] for metric in Metric} for tenant, step in steps}
    counts: defaultdict[UUID, dict[str, Buckets]] = defaultdict(dict)
    rows = span.of(DailyLatency.objects.filter(tenant__in=tenants)).order_by()
    for tenant, metric, bucket, requests in rows.values_list("tenant_id", "metric", "bucket").annotate(Sum("requests")):
        counts[tenant].setdefault(metric, {})[bucket] = requests
    return counts


def _top_adapters(
    activities: Iterable[Activity], span: Span, whole: UsageSums, on: Collection[int] | None
) -> list[dict[str, Any]]:
    """Return the adapters with most device time; all other figures are read for these only."""
    used: Counter[tuple[UUID, UUID | None]] = Counter()
    for part in activities:
        used[part.tenant, part.adapter] += part.device_us
    most = sorted(used, key=lambda one: (-used[one], str(one)))[:TOP_ADAPTERS]
    series_of = TimeSeries.objects.filter(kind=SeriesKind.VERSION, tenant__in={tenant for tenant, _ in most})
    if on is not None:
        series_of = series_of.filter(base_model__in=on)
    owners = series_of.values_list("pk", "tenant_id", "adapter_id")
    adapter_of = {pk: (tenant, adapter) for pk, tenant, adapter in owners if tenant and (tenant, adapter) in most}
    sums = dict.fromkeys(most, UsageSums())
    for pk, step in series.by_series([*adapter_of], series.days(span)).items():
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
    ]
