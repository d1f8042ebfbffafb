"""One tenant's usage, from the rollups, and pages of its requests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.utils import timezone

from control_plane.adapters.registry.models import Adapter
from control_plane.billing.prices.periods import currency_of, periods
from control_plane.billing.usage import series
from control_plane.billing.usage.base_models import BASE_COLUMNS, NamedBases, by_named_base, named_bases
from control_plane.billing.usage.costs import RequestCosts
from control_plane.billing.usage.counters import PHASES
from control_plane.billing.usage.models import DailyLatency, DailyUsage, HourlyUsage, UsageEvent
from control_plane.billing.usage.sums import Span, UsageSums, as_of, last_days, latency, most_first, summed
from control_plane.core.http.cursors import Page, page_of
from control_plane.identity.tenants.models import Tenant


def last_day(tenant: Tenant) -> UsageSums:
    """UsageSums over this hour and the 23 before it."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    hours = HourlyUsage.objects.for_tenant(tenant).filter(start__gt=hour - timedelta(hours=24))
    return summed(hours, periods(hour.date(), hour.date()), ())[()]


def usage(tenant: Tenant, days: int, bases: NamedBases | None = None) -> dict[str, Any]:
    """Totals, by UTC day (every day, also empty ones), by adapter, base model and key, over the last `days` days with
    today; of all base models or of some."""
    span = last_days(days)
    rows, prices = span.of(DailyUsage.objects.for_tenant(tenant)), periods(span.first, span.last)
    if bases is not None:
        rows = rows.filter(bases.of("series__"))
    by_day = summed(rows, prices, ("start",))
    by_adapter = summed(rows, prices, ("series__adapter__name",))
    by_base = summed(rows, prices, BASE_COLUMNS)
    by_key = summed(rows, prices, ("series__api_key__name", "series__api_key__prefix"))
    return {
        "days": days,
        "as_of": as_of(),
        "currency": currency_of(prices),
        "totals": UsageSums.total(by_day.values()),
        "by_day": [{"date": day, **by_day.get((day,), UsageSums()).json()} for day in span.days()],
        "by_adapter": [{"adapter": name, **sums.json()} for (name,), sums in most_first(by_adapter)],
        "by_base_model": [{"base_model": name, **sums.json()} for (name,), sums in most_first(by_named_base(by_base))],
        "by_key": [{"key": name, "prefix": prefix, **sums.json()} for (name, prefix), sums in most_first(by_key)],
        "latency": _latency(tenant, span, bases),
    }


def _latency(tenant: Tenant, span: Span, bases: NamedBases | None) -> dict[str, Any]:
    if bases is None:
        return latency(span.of(DailyLatency.objects.for_tenant(tenant)))
    return series.total(tenant, series.days(span), bases.pks).percentiles()


# How far filters look back where they do not say: without an end they would read a tenant's whole ledger.
LOOK_BACK = timedelta(days=30)
CONSOLE = "console"
# A page reads no more of them than this: a filter that nothing fits would read a month, with each request that ends.
MOST_LOOKED_AT = 20_000
# Rows come in the order of their ids, but for those that a host's journal still held, up to so much later.
LATEST = timedelta(days=1)


@dataclass(frozen=True)
class RequestFilters:
    """All must hold. `key` is an API key's id, or "console"; times in milliseconds."""

    id: str = ""
    model: str = ""
    adapter: str = ""
    version: int | None = None
    base_model: str = ""
    key: str = ""
    outcome: str = ""
    error: str = ""
    host: str = ""
    min_ms: int | None = None
    min_first_token_ms: int | None = None
    min_tokens: int | None = None
    since: datetime | None = None
    until: datetime | None = None


def recent_requests(
    tenant: Tenant, limit: int, cursor: str | None = None, filters: RequestFilters | None = None
) -> Page[UsageEvent]:
    """The newest requests first. With filters a page ends where `MOST_LOOKED_AT` have been looked through."""
    own, asked = UsageEvent.objects.for_tenant(tenant), filters or RequestFilters()
    adapters = Adapter.objects.for_tenant(tenant)
    related = ("adapter", "version", "api_key", "base_model")
    if asked == RequestFilters() or asked.id:  # an index leads there
        return _priced(page_of(_matching(own, adapters, asked), limit, cursor, *related))
    walked = own
    if asked.until is not None and (top := _newest_before(own, asked.until + LATEST)):
        walked = own.filter(id__lte=top)
    since = asked.since or (asked.until or timezone.now()) - LOOK_BACK
    matching = _matching(walked, adapters, asked)
    return _priced(page_of(matching, limit, cursor, *related, down_to=partial(_last_looked_at, walked, since)))


def _priced(page: Page[UsageEvent]) -> Page[UsageEvent]:
    costs = RequestCosts(page.results)
    for row in page.results:
        row.cost_micros, row.currency = costs.micros(row), costs.currency
    return page


def _newest_before(own: QuerySet[UsageEvent], moment: datetime) -> int | None:
    return own.filter(created_at__lt=moment).order_by("-created_at").values_list("id", flat=True).first()


def _last_looked_at(own: QuerySet[UsageEvent], since: datetime, begins: int | None) -> int | None:
    """None where all that are left, or that can be of this time, are fewer."""
    rows = own if begins is None else own.filter(id__lt=begins)
    # Ids alone, which an index has.
    found = list(rows.order_by("-id").values_list("id", flat=True)[MOST_LOOKED_AT - 1 : MOST_LOOKED_AT])
    if not found or UsageEvent.objects.get(pk=found[0]).created_at < since - LATEST:
        return None
    return found[0]


def _matching(rows: QuerySet[UsageEvent], adapters: QuerySet[Adapter], asked: RequestFilters) -> QuerySet[UsageEvent]:
    if asked == RequestFilters():
        return rows
    if asked.id:
        rows = rows.filter(request_id=asked.id)
    elif asked.since is None:
        rows = rows.filter(created_at__gte=(asked.until or timezone.now()) - LOOK_BACK)
    equal = {
        "version__number": asked.version,
        "outcome": asked.outcome,
        "error_code": asked.error,
        "host": asked.host,
        "created_at__gte": asked.since,
        "created_at__lt": asked.until,
        "first_token_ms__gte": asked.min_first_token_ms,
    }
    rows = rows.filter(**{name: value for name, value in equal.items() if value not in ("", None)})
    if asked.adapter:
        # Looked up first: joined, the names of everybody's adapters would be read.
        rows = rows.filter(adapter__in=list(adapters.filter(name=asked.adapter).values_list("pk", flat=True)))
    if asked.base_model:
        rows = rows.filter(named_bases(asked.base_model).of())
    if asked.model:
        rows = rows.filter(model__icontains=asked.model)
    if asked.key:
        rows = rows.filter(api_key=None if asked.key == CONSOLE else UUID(asked.key))
    if asked.min_ms is not None:
        rows = rows.alias(total_ms=sum(map(F, PHASES[1:]), F(PHASES[0]))).filter(total_ms__gte=asked.min_ms)
    if asked.min_tokens is not None:
        tokens = F("prompt_tokens") + F("completion_tokens")
        rows = rows.alias(tokens=tokens).filter(tokens__gte=asked.min_tokens)
    return rows
