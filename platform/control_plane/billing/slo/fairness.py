"""Gaps between the service of tenants over time, for operators."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

from django.db.models import F

from control_plane.billing.usage import series
from control_plane.billing.usage.time_series import HOURS, MINUTES, time_of
from control_plane.fleet.hosts.models import EngineHost, HostState, ServiceGap
from control_plane.identity.tenants.models import Tenant

Gap = dict[str, Any]


def service_gaps(window: series.Window) -> dict[str, Any]:
    """Return the data of `FairnessSerializer`: each host's gap nearest to its bound by step, and the current gap."""
    widest: defaultdict[str, dict[int, Gap]] = defaultdict(dict)
    for piece in window.points((HOURS, MINUTES)):
        rows = piece.inside(ServiceGap.objects.filter(step=piece.grain.step, host__active=True))
        rows = rows.annotate(at=F("start") / window.step * window.step)
        for row in rows.values("host__name", "at", "share", "gap", "bound", "ahead", "behind"):
            steps, at = widest[row.pop("host__name")], row.pop("at")
            if at not in steps or row["share"] > steps[at]["share"]:
                steps[at] = row
    now = {
        host.name: _now(host) for host in EngineHost.objects.filter(active=True).only("name", "state", "last_status")
    }
    slugs = _slugs([*now.values(), *(gap for steps in widest.values() for gap in steps.values())])
    return {
        "since": time_of(window.first),
        "until": time_of(window.end),
        "step_s": window.step * 60,
        "hosts": [
            {
                "name": name,
                "now": _named(gap, slugs),
                "points": [
                    {"at": time_of(start), "widest": _named(widest[name].get(start), slugs)}
                    for start in window.starts()
                ],
            }
            for name, gap in now.items()
            if gap or widest.get(name)
        ],
    }


def _now(host: EngineHost) -> Gap | None:
    gap = host.last_status.get("service_gap") if host.state != HostState.OFFLINE else None
    return {**gap, "share": gap["gap"] / gap["bound"]} if gap else None


def _slugs(gaps: list[Gap | None]) -> dict[str, str]:
    ids = {gap[side] for gap in gaps if gap for side in ("ahead", "behind")}
    known = Tenant.objects.in_bulk({pk for name in ids if (pk := _id_of(name))})
    return {name: tenant.slug if (pk := _id_of(name)) and (tenant := known.get(pk)) else name for name in ids}


def _id_of(text: str) -> UUID | None:
    """Return a tenant's id; None for another text, as an engine may serve callers besides the platform."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _named(gap: Gap | None, slugs: dict[str, str]) -> Gap | None:
    return {**gap, "ahead": slugs[gap["ahead"]], "behind": slugs[gap["behind"]]} if gap else None
