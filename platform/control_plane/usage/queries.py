"""One tenant's usage, from the rollups, and pages of its requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from control_plane.http.cursors import Page, page_of
from control_plane.prices.periods import periods
from control_plane.tenants.models import Tenant
from control_plane.usage.models import DailyLatency, DailyUsage, HourlyUsage, UsageEvent
from control_plane.usage.sums import UsageSums, as_of, last_days, latency, most_first, summed


def last_day(tenant: Tenant) -> UsageSums:
    """UsageSums over this hour and the 23 before it."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    hours = HourlyUsage.objects.for_tenant(tenant).filter(start__gt=hour - timedelta(hours=24))
    return summed(hours, periods(hour.date(), hour.date()), ())[()]


def usage(tenant: Tenant, days: int) -> dict[str, Any]:
    """Totals, by UTC day (every day, also empty ones), by adapter and by key, over the last `days` days with today."""
    span = last_days(days)
    rows, prices = span.of(DailyUsage.objects.for_tenant(tenant)), periods(span.first, span.last)
    by_day = summed(rows, prices, ("start",))
    by_adapter = summed(rows, prices, ("series__adapter__name",))
    by_key = summed(rows, prices, ("series__api_key__name", "series__api_key__prefix"))
    return {
        "days": days,
        "as_of": as_of(),
        "currency": prices[-1].price.currency if prices[-1].price else None,
        "totals": UsageSums.total(by_day.values()),
        "by_day": [{"date": day, **by_day.get((day,), UsageSums()).json()} for day in span.days()],
        "by_adapter": [{"adapter": name, **sums.json()} for (name,), sums in most_first(by_adapter)],
        "by_key": [{"key": name, "prefix": prefix, **sums.json()} for (name, prefix), sums in most_first(by_key)],
        "latency": latency(span.of(DailyLatency.objects.for_tenant(tenant))),
    }


def recent_requests(tenant: Tenant, limit: int, cursor: str | None = None) -> Page[UsageEvent]:
    """The newest requests first."""
    return page_of(UsageEvent.objects.for_tenant(tenant), limit, cursor, "adapter", "version", "api_key")
