"""Queries of a tenant's usage, from the rollups, and pages of its requests."""

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
    """Return the sums of this hour and the 23 before it."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    hours = HourlyUsage.objects.for_tenant(tenant).filter(start__gt=hour - timedelta(hours=24))
    return summed(hours, periods(hour.date(), hour.date()), ())[()]


def usage(tenant: Tenant, days: int, bases: NamedBases | None = None) -> dict[str, Any]:
    """Return a tenant's usage over the last `days` UTC days with today, of all base models or of some.

    It has totals, a row for every day, also empty ones, and rows by adapter, base model and key.
    """
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


# Days that filters go back by default: without a bound they would read a tenant's whole ledger.
DEFAULT_PERIOD = timedelta(days=30)
CONSOLE = "console"
# Maximum number of rows that one page reads: a filter that matches nothing would read a month's rows with each
# request.
MAX_SCANNED = 20_000
# Adapters that a query lists by their ids. More are a subquery, because SQLite bounds the parameters of a query.
MAX_LISTED_ADAPTERS = 1000
# Time by which a row may have come in later than its neighbours by id: it may have waited in a host's journal.
MAX_DELAY = timedelta(days=1)


@dataclass(frozen=True)
class RequestFilters:
    """The filters of requests; all must match. `key` is an API key's id, or "console"; times in milliseconds."""

    id: str = ""
    model: str = ""
    adapter: str = ""
    adapter_contains: str = ""
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
    """Return the newest requests first. With filters a page may end early, after `MAX_SCANNED` rows."""
    all_rows, criteria = UsageEvent.objects.for_tenant(tenant), filters or RequestFilters()
    adapters = Adapter.objects.for_tenant(tenant)
    related = ("adapter", "version", "api_key", "base_model")
    if criteria == RequestFilters() or criteria.id:  # served by an index
        return _priced(page_of(_matching(all_rows, adapters, criteria), limit, cursor, *related))
    scanned = all_rows
    if criteria.until is not None:
        before = all_rows.filter(created_at__lt=criteria.until + MAX_DELAY).order_by("-created_at")
        if newest := before.values_list("id", flat=True).first():
            scanned = all_rows.filter(id__lte=newest)
    since = criteria.since or (criteria.until or timezone.now()) - DEFAULT_PERIOD
    matching = _matching(scanned, adapters, criteria)
    return _priced(page_of(matching, limit, cursor, *related, down_to=partial(_last_scanned, scanned, since)))


def _priced(page: Page[UsageEvent]) -> Page[UsageEvent]:
    costs = RequestCosts(page.results)
    for row in page.results:
        row.cost_micros, row.currency = costs.micros(row), costs.currency
    return page


def _last_scanned(all_rows: QuerySet[UsageEvent], since: datetime, begins: int | None) -> int | None:
    """Return the id at which a page ends; None if fewer rows are left, or no earlier row can match."""
    rows = all_rows if begins is None else all_rows.filter(id__lt=begins)
    # Only ids, which an index has.
    ids = list(rows.order_by("-id").values_list("id", flat=True)[MAX_SCANNED - 1 : MAX_SCANNED])
    last = UsageEvent.objects.filter(pk__in=ids).first()
    if last is None or last.created_at < since - MAX_DELAY:  # no row, or it was archived meanwhile
        return None
    return ids[0]


def _matching(rows: QuerySet[UsageEvent], adapters: QuerySet[Adapter], filters: RequestFilters) -> QuerySet[UsageEvent]:
    if filters == RequestFilters():
        return rows
    if filters.id:
        rows = rows.filter(request_id=filters.id)
    elif filters.since is None:
        rows = rows.filter(created_at__gte=(filters.until or timezone.now()) - DEFAULT_PERIOD)
    equal = {
        "version__number": filters.version,
        "outcome": filters.outcome,
        "error_code": filters.error,
        "host": filters.host,
        "created_at__gte": filters.since,
        "created_at__lt": filters.until,
        "first_token_ms__gte": filters.min_first_token_ms,
    }
    rows = rows.filter(**{name: value for name, value in equal.items() if value not in ("", None)})
    if filters.adapter:
        # Read first: a join would read the names of all tenants' adapters.
        rows = rows.filter(adapter__in=list(adapters.filter(name=filters.adapter).values_list("pk", flat=True)))
    if filters.adapter_contains:
        named = adapters.filter(name__icontains=filters.adapter_contains)
        listed = list(named.values_list("pk", flat=True)[: MAX_LISTED_ADAPTERS + 1])
        few = len(listed) <= MAX_LISTED_ADAPTERS
        rows = rows.filter(adapter__in=listed) if few else rows.filter(adapter__in=named)
    if filters.base_model:
        rows = rows.filter(named_bases(filters.base_model).of())
    if filters.model:
        rows = rows.filter(model__icontains=filters.model)
    if filters.key:
        rows = rows.filter(api_key=None if filters.key == CONSOLE else UUID(filters.key))
    if filters.min_ms is not None:
        rows = rows.alias(total_ms=sum(map(F, PHASES[1:]), F(PHASES[0]))).filter(total_ms__gte=filters.min_ms)
    if filters.min_tokens is not None:
        tokens = F("prompt_tokens") + F("completion_tokens")
        rows = rows.alias(tokens=tokens).filter(tokens__gte=filters.min_tokens)
    return rows
