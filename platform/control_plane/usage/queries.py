"""One tenant's usage, from the rollups, and pages of its requests."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from control_plane.errors import LorikeetError
from control_plane.prices.periods import periods
from control_plane.tenants.models import Tenant
from control_plane.usage.models import DailyLatency, DailyUsage, HourlyUsage, UsageEvent
from control_plane.usage.sums import Sums, as_of, last_days, latency, most_first, summed


@dataclass(frozen=True)
class RequestPage:
    results: list[UsageEvent]
    next_cursor: str | None


def last_day(tenant: Tenant) -> Sums:
    """Sums over this hour and the 23 before it."""
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
        "totals": Sums.total(by_day.values()),
        "by_day": [{"date": day, **by_day.get((day,), Sums()).json()} for day in span.days()],
        "by_adapter": [{"adapter": name, **sums.json()} for (name,), sums in most_first(by_adapter)],
        "by_key": [{"key": name, "prefix": prefix, **sums.json()} for (name, prefix), sums in most_first(by_key)],
        "latency": latency(span.of(DailyLatency.objects.for_tenant(tenant))),
    }


def recent_requests(tenant: Tenant, limit: int, cursor: str | None = None) -> RequestPage:
    """The newest requests first; `cursor` goes on where a page ended, unmoved by newer rows."""
    own = UsageEvent.objects.for_tenant(tenant)
    before = own.filter(id__lt=_decode(cursor)) if cursor else own
    # The ids first, which the index of tenant and id has: asked for whole rows, PostgreSQL may walk back through
    # everybody's newer ones until it meets this tenant's.
    ids = list(before.order_by("-id").values_list("id", flat=True)[: limit + 1])
    rows = own.filter(id__in=ids[:limit]).select_related("adapter", "version", "api_key").order_by("-id")
    return RequestPage(list(rows), _encode(ids[limit - 1]) if len(ids) > limit else None)


def _encode(last_id: int) -> str:
    return base64.urlsafe_b64encode(str(last_id).encode()).decode().rstrip("=")


def _decode(cursor: str) -> int:
    try:
        number = int(base64.urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        if 0 <= number < 1 << 63:
            return number
    except (ValueError, binascii.Error):
        pass
    raise LorikeetError(
        "bad_cursor",
        "The cursor is not one that this address gave out.",
        "Start again without a cursor.",
        param="cursor",
    )
