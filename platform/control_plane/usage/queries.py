"""Sums and pages over one tenant's usage events."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from control_plane.errors import LorikeetError
from control_plane.tenants.models import Tenant
from control_plane.usage.models import UsageEvent

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens")


@dataclass(frozen=True)
class RequestPage:
    results: list[UsageEvent]
    next_cursor: str | None


def _sums() -> dict[str, Any]:
    return {"requests": Count("id"), **{name: Coalesce(Sum(name), 0) for name in TOKENS}}


def _since(tenant: Tenant, moment: datetime) -> QuerySet[UsageEvent]:
    return UsageEvent.objects.for_tenant(tenant).filter(created_at__gte=moment).order_by()


def last_day(tenant: Tenant) -> dict[str, int]:
    """Sums over the last 24 hours."""
    return _since(tenant, timezone.now() - timedelta(hours=24)).aggregate(**_sums())


def usage(tenant: Tenant, days: int) -> dict[str, Any]:
    """Totals, by UTC day (every day, also empty ones) and by adapter, over the last `days` days with today."""
    first = timezone.now().astimezone(UTC).date() - timedelta(days=days - 1)
    events = _since(tenant, datetime.combine(first, datetime.min.time(), UTC))
    return {
        "days": days,
        "totals": events.aggregate(**_sums()),
        "by_day": _by_day(events, first, days),
        "by_adapter": _by_adapter(events),
    }


def _by_day(events: QuerySet[UsageEvent], first: date, days: int) -> list[dict[str, Any]]:
    rows = events.annotate(date=TruncDate("created_at", tzinfo=UTC)).values("date").annotate(**_sums())
    by_date: dict[date, dict[str, Any]] = {row["date"]: dict(row) for row in rows}
    dates = [first + timedelta(days=offset) for offset in range(days)]
    empty = {"requests": 0, **dict.fromkeys(TOKENS, 0)}
    return [by_date.get(day, {"date": day, **empty}) for day in dates]


def _by_adapter(events: QuerySet[UsageEvent]) -> list[dict[str, Any]]:
    rows = events.values("adapter__name").annotate(**_sums())
    summed = [{"adapter": row["adapter__name"], **row} for row in rows]
    return sorted(summed, key=lambda row: (-row["requests"], row["adapter"] or ""))


def recent_requests(tenant: Tenant, limit: int, cursor: str | None = None) -> RequestPage:
    """The newest requests first; `cursor` goes on where a page ended, unmoved by newer rows."""
    events = UsageEvent.objects.for_tenant(tenant).select_related("adapter", "version", "api_key")
    if cursor:
        events = events.filter(id__lt=_decode(cursor))
    rows = list(events.order_by("-id")[: limit + 1])
    more = len(rows) > limit
    return RequestPage(rows[:limit], _encode(rows[limit - 1].id) if more else None)


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
