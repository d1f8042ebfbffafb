"""Queries of placements in progress, and why one that is not ready is not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from control_plane.fleet.hosts.models import EngineHost, HostService, HostState, StagingPhase
from control_plane.fleet.placements.models import Placement

WAITS_FOR = ["slot", "host_offline", "host_cordoned", "retry"]
_HEAVY = ("host__last_status", "host__description", "version__report")


@dataclass(frozen=True)
class StagingPage:
    """A page of placements with the number of all that match; ``phases`` counts all, whatever the search."""

    results: list[dict[str, Any]]
    total: int
    phases: dict[str, int]


def staging_page(*, phase: str, host: str, search: str, offset: int, limit: int) -> StagingPage:
    """Return placements not ready, or in `phase`: those with most failures first, then the latest changed."""
    everything = Placement.objects.filter(host__active=True)
    matches = everything.filter(phase=phase) if phase else everything.exclude(phase=StagingPhase.READY)
    if host:
        matches = matches.filter(host__name=host)
    if search:
        matches = matches.filter(
            Q(version__adapter__name__icontains=search) | Q(version__tenant__slug__icontains=search)
        )
    ordered = matches.order_by("-failures", "-updated_at", "pk").defer(*_HEAVY)
    rows = ordered.select_related("host", "version__adapter", "version__tenant")[offset : offset + limit]
    return StagingPage([_row(placement) for placement in rows], matches.count(), _phases(everything))


def _phases(placements: QuerySet[Placement]) -> dict[str, int]:
    counts = dict(placements.order_by().values_list("phase").annotate(Count("pk")))
    return {phase: counts.get(phase, 0) for phase in StagingPhase.values}


def _row(placement: Placement) -> dict[str, Any]:
    version = placement.version
    columns = (
        "phase",
        "bytes_done",
        "bytes_total",
        "bytes_per_second",
        "attempts",
        "failures",
        "next_attempt_at",
        "error",
        "updated_at",
    )
    return {
        "id": placement.pk,
        "tenant": version.tenant.slug,
        "adapter": version.adapter.name,
        "version": version.number,
        "host": placement.host.name,
        "waits_for": waits_for(placement, placement.host, timezone.now()),
        **{name: getattr(placement, name) for name in columns},
        "remaining_s": remaining_s(placement),
    }


def remaining_s(placement: Placement) -> float | None:
    """Return the seconds until all bytes are there, at the current rate; None while it does not move."""
    if not placement.bytes_per_second or placement.phase not in (StagingPhase.DOWNLOADING, StagingPhase.LOADING):
        return None
    return max(0, placement.bytes_total - placement.bytes_done) / placement.bytes_per_second


def waits_for(placement: Placement, host: EngineHost, now: datetime) -> str | None:
    """Return why a placement does not progress now; None if it does, or is ready."""
    in_hand = placement.claimed_until is not None and placement.claimed_until > now
    if placement.phase == StagingPhase.READY or in_hand:
        return None
    if host.state in (HostState.OFFLINE, HostState.UNKNOWN):
        return "host_offline"
    if host.service != HostService.SERVING:
        return "host_cordoned"
    if placement.next_attempt_at is not None and placement.next_attempt_at > now:
        return "retry"
    return "slot"
