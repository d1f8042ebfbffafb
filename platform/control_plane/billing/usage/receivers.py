"""Receivers of signals from packages below."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

from control_plane.billing.usage.models import DailyUsage, Series, UsageEvent, Watermark
from control_plane.fleet.base_models.models import BaseModel


def is_used_since(base: BaseModel, day: date, **_signal: Any) -> bool:
    """Return whether a request ran on the base model since that day (UTC), by the whole ledger."""
    series = list(Series.objects.filter(base_model=base).values_list("pk", flat=True))
    if series and DailyUsage.objects.filter(series__in=series, start__gte=day).exists():
        return True
    mark = Watermark.objects.values_list("event_id", flat=True).first() or 0
    fresh = UsageEvent.objects.filter(id__gt=mark, created_at__gte=datetime.combine(day, time.min, UTC))
    return fresh.filter(base_model=base).exists()
