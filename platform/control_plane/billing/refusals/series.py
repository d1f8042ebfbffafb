"""Refusals over time: from the counts by minute, and from those by hour beyond two days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from django.db.models import F, QuerySet, Sum

from control_plane.billing.refusals.models import HourlyRefusals, Refusal
from control_plane.billing.usage.series import Piece, Window
from control_plane.billing.usage.time_series import HOURS, MINUTES, EpochMinute, time_of
from control_plane.identity.tenants.models import Tenant

MAX_CODES = 20
OTHERS = (0, "others")


def refusal_series(window: Window, tenant: Tenant | None) -> dict[str, Any]:
    """Return the data of `RefusalSeriesSerializer` for a tenant, or for all tenants."""
    starts = window.starts()
    by_code: defaultdict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * len(starts))
    for at, status, code, count in _counts(window, tenant):
        by_code[status, code][starts.index(at)] += count
    most = sorted(by_code, key=lambda key: (-sum(by_code[key]), key))
    for key in most[MAX_CODES:]:
        by_code[OTHERS] = [one + other for one, other in zip(by_code[OTHERS], by_code[key], strict=True)]
    shown = [*most[:MAX_CODES], *([OTHERS] if len(most) > MAX_CODES else [])]
    return {
        "since": time_of(window.first),
        "until": time_of(window.end),
        "step_s": window.step * 60,
        "starts": [time_of(start) for start in starts],
        "total": sum(sum(by_code[key]) for key in most),
        "failed": sum(sum(by_code[key]) for key in most if key[0] >= 500),
        "by_code": [
            {"status": key[0], "code": key[1], "count": sum(by_code[key]), "by_step": by_code[key]} for key in shown
        ],
    }


def _counts(window: Window, tenant: Tenant | None) -> Iterator[tuple[int, int, str, int]]:
    """Yield step, status, code and count."""
    for piece in window.points((HOURS, MINUTES)):
        rows = (_by_minute if piece.grain is MINUTES else _by_hour)(piece, tenant)
        counts = rows.annotate(at=F("minutes") / window.step * window.step).values_list("at", "status", "code")
        yield from counts.annotate(Sum("count"))


def _by_minute(piece: Piece, tenant: Tenant | None) -> QuerySet[Any]:
    rows = Refusal.objects.for_tenant(tenant) if tenant else Refusal.objects.all()
    inside = rows.filter(minute__gte=time_of(piece.first), minute__lt=time_of(piece.end)).order_by()
    in_minutes: QuerySet[Any] = inside.alias(minutes=EpochMinute("minute"))
    return in_minutes


def _by_hour(piece: Piece, tenant: Tenant | None) -> QuerySet[Any]:
    rows = HourlyRefusals.objects.for_tenant(tenant) if tenant else HourlyRefusals.objects.all()
    in_minutes: QuerySet[Any] = piece.inside(rows).alias(minutes=F("start"))
    return in_minutes
