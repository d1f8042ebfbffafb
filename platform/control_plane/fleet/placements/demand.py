"""Placing adapters by what they take of a device: reads demand and hosts, and brings placements towards the plan.

Only with ``LORIKEET_PLACEMENT=demand``. A copy that the plan wants is made at once; one that it does not want is taken
away when it has been so for half an hour, which its row remembers. So a process may end at any moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Max, Sum

from control_plane.adapters.registry.locks import lock_version
from control_plane.adapters.registry.models import LIVE, AdapterVersion, Alias, VersionState
from control_plane.billing.usage.models import HourlyUsage
from control_plane.core.config import current
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue
from control_plane.fleet.base_models.base_model import ServedBase, serving_hosts
from control_plane.fleet.hosts.models import EngineHost, HostState, StagingPhase
from control_plane.fleet.placements import actions
from control_plane.fleet.placements.demand_policy import Demand, HostRoom, plan
from control_plane.fleet.placements.models import Placement

LOOKS_BACK = timedelta(hours=6)
HELD = timedelta(minutes=30)
SHORTEST_S = 600.0
"""A load is taken over so long at least: the hour that has just begun says little."""
CALLED = 1e-6
"""Of a device, for each request: whoever is called at all is not cold."""
FILLED = 0.9
"""Of a host's memory for adapters."""
MOST_ADDED = 100
"""In one look; the most popular first."""


def is_on() -> bool:
    return current().placement == "demand"


def place_by_demand(base: ServedBase, now: datetime | None = None) -> tuple[int, int]:
    """How many copies it added and took away."""
    now = now or clocks.database_time()
    hosts = online_hosts(base)
    if not hosts:
        return 0, 0
    versions = {
        version.pk: version
        for version in AdapterVersion.objects.filter(
            base_digest__in=base.adapters_of, state__in=actions.PLACED_STATES
        ).defer("report")
    }
    present = _present(list(versions), hosts)
    loads = _loads(now, versions)
    demands = [
        Demand(pk, loads.get(pk, 0.0), version.bytes, version.rank, frozenset(present[pk]),
               needs_host=version.state != VersionState.READY)
        for pk, version in versions.items()
    ]  # fmt: skip
    wanted = {UUID(str(pk)): on for pk, on in plan(_rooms(hosts), demands).items()}
    missing = {pk: on - present[pk].keys() for pk, on in wanted.items() if on - present[pk].keys()}
    popular = sorted(missing, key=lambda pk: -loads.get(pk, 0.0))[:MOST_ADDED]
    by_pk = {host.pk: host for host in hosts}
    added = 0
    for pk in popular:
        # What nobody calls and is on no host stays in the store until somebody calls it.
        if present[pk] or loads.get(pk) or versions[pk].state != VersionState.READY:
            added += len(actions.place_on(versions[pk], [by_pk[host] for host in missing[pk]]))
    surplus = [present[pk][host] for pk, on in wanted.items() for host in present[pk].keys() - on]
    kept = [present[pk][host] for pk, on in wanted.items() for host in present[pk].keys() & on]
    return added, _take_away(surplus, kept, now)


def online_hosts(base: ServedBase) -> list[EngineHost]:
    """That may get adapters and answer."""
    return [host for host in serving_hosts(base) if host.state == HostState.ONLINE]


def _rooms(hosts: Sequence[EngineHost]) -> list[HostRoom]:
    """An engine of an earlier version does not say how much it holds."""
    arenas = {host.pk: int(host.description.get("host_arena_bytes", 0)) for host in hosts}
    return [HostRoom(pk, round(arena * FILLED) if arena else 1 << 50) for pk, arena in arenas.items()]


def _present(versions: list[UUID], hosts: Sequence[EngineHost]) -> defaultdict[UUID, dict[int, Placement]]:
    """Copies that are there or on their way, by version and host."""
    found: defaultdict[UUID, dict[int, Placement]] = defaultdict(dict)
    wanted = set(versions)
    for placement in Placement.objects.filter(host__in=hosts).select_related("host", "version"):
        if placement.version_id in wanted:
            found[placement.version_id][placement.host_id] = placement
    return found


def _loads(now: datetime, versions: dict[UUID, AdapterVersion]) -> dict[UUID, float]:
    """Of a device's time, in the busiest of the last hours. A version that is to follow the live one has its load."""
    sums = HourlyUsage.objects.filter(start__gte=now - LOOKS_BACK, series__version__isnull=False).order_by()
    hours = sums.values_list("series__version", "start").annotate(Sum("device_us"), Sum("requests"))
    loads: defaultdict[UUID, float] = defaultdict(float)
    for version, start, device_us, requests in hours:
        seconds = max(SHORTEST_S, min(3600.0, (now - start).total_seconds()))
        loads[version] = max(loads[version], device_us / 1e6 / seconds, requests * CALLED)
    live = dict(Alias.objects.filter(name=LIVE, version__in=loads.keys()).values_list("adapter", "version"))
    adapters = AdapterVersion.objects.filter(adapter__in=live.keys(), state__in=actions.PLACED_STATES).order_by()
    newest = dict(adapters.values_list("adapter").annotate(Max("number")))
    for version in versions.values():
        if newest.get(version.adapter_id) == version.number:
            loads[version.pk] = max(loads[version.pk], loads[live[version.adapter_id]])
    return dict(loads)


def _take_away(surplus: list[Placement], kept: list[Placement], now: datetime) -> int:
    """Those that have been too many for long enough. The last copy that answers stays until another one does, unless
    the plan leaves the version to the store."""
    with transaction.atomic():
        Placement.objects.filter(pk__in=[each.pk for each in kept if each.unneeded_since]).update(unneeded_since=None)
        new = [placement.pk for placement in surplus if placement.unneeded_since is None]
        Placement.objects.filter(pk__in=new).update(unneeded_since=now)
    answering = {each.version_id for each in kept if _answers(each)}
    stay = {each.version_id for each in kept} - answering
    due = [each for each in surplus if each.unneeded_since and each.unneeded_since <= now - HELD]
    taken = 0
    for placement in due:
        if placement.version_id not in stay:
            taken += _remove(placement)
    return taken


def _answers(placement: Placement) -> bool:
    return placement.phase == StagingPhase.READY and placement.boot_id == placement.host.boot_id


def _remove(placement: Placement) -> int:
    with transaction.atomic():
        lock_version(placement.version)
        gone, _ = Placement.objects.filter(pk=placement.pk, unneeded_since__isnull=False).delete()
        if gone:
            enqueue("fleet.drop_unwanted", placement.host.name, placement.version.digest)
    return min(1, gone)


def bring_for_request(versions: Sequence[AdapterVersion], base: ServedBase) -> bool:
    """Whether a host gets all of these now, for a request that no host could take: the one that has most of them, else
    the least busy. False if none could."""
    hosts = online_hosts(base)
    failed = Placement.objects.filter(version__in=versions, phase=StagingPhase.FAILED)
    refused = set(failed.values_list("host", flat=True))
    fit = [host for host in hosts if host.pk not in refused]
    if not fit:
        return False
    held: defaultdict[int, int] = defaultdict(int)
    for host in Placement.objects.filter(version__in=versions, host__in=fit).values_list("host", flat=True):
        held[host] += 1
    busy = dict(EngineHost.objects.filter(pk__in=[host.pk for host in fit]).values_list("pk", "last_status"))

    def order(host: EngineHost) -> tuple[int, int, str]:
        status = busy.get(host.pk) or {}
        return -held[host.pk], status.get("running", 0) + status.get("waiting", 0), host.name

    best = min(fit, key=order)
    if held[best.pk] < len(versions):
        for version in versions:
            if not Placement.objects.filter(version=version, host=best).exists():
                actions.place_on(version, [best])
    return True
