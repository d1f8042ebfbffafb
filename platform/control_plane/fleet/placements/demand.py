"""Placement by demand: reads the adapters' load and the hosts, and changes placements towards the plan.

Only with ``LORIKEET_PLACEMENT=demand``. A copy that the plan adds is made at once; a copy that it does not want is
removed after half an hour. Its row stores since when, so the process may end at any moment.
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

# Time before now in which an adapter's load is read: its busiest hour counts.
LOAD_WINDOW = timedelta(hours=6)
# Time after which a copy that the plan does not want is removed.
REMOVE_AFTER = timedelta(minutes=30)
# Shortest time in seconds over which a load is computed: an hour that has just begun has few requests.
MIN_LOAD_S = 600.0
# Least load of one request, as a share of a device: an adapter that is called at all is not cold.
REQUEST_LOAD = 1e-6
# Share of a host's memory for adapters that the plan fills.
FILL_SHARE = 0.9
# Versions that get copies in one run, the most popular first.
MAX_ADDED = 100


def is_on() -> bool:
    return current().placement == "demand"


def place_by_demand(base: ServedBase, now: datetime | None = None) -> tuple[int, int]:
    """Add and remove copies of a base model's adapters. Returns how many were added and removed."""
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
    popular = sorted(missing, key=lambda pk: -loads.get(pk, 0.0))[:MAX_ADDED]
    by_pk = {host.pk: host for host in hosts}
    added = 0
    for pk in popular:
        # A version without requests and without a host stays in the store until the first request for it.
        if present[pk] or loads.get(pk) or versions[pk].state != VersionState.READY:
            added += len(actions.place_version(versions[pk], [by_pk[host] for host in missing[pk]]))
    surplus = [present[pk][host] for pk, on in wanted.items() for host in present[pk].keys() - on]
    kept = [present[pk][host] for pk, on in wanted.items() for host in present[pk].keys() & on]
    return added, _take_away(surplus, kept, now)


def online_hosts(base: ServedBase) -> list[EngineHost]:
    """Return the hosts that may get adapters and are online."""
    return [host for host in serving_hosts(base) if host.state == HostState.ONLINE]


def _rooms(hosts: Sequence[EngineHost]) -> list[HostRoom]:
    """Return the room for adapters of each host; an older engine reports none and counts as unlimited."""
    arenas = {host.pk: int(host.description.get("host_arena_bytes", 0)) for host in hosts}
    return [HostRoom(pk, round(arena * FILL_SHARE) if arena else 1 << 50) for pk, arena in arenas.items()]


def _present(versions: list[UUID], hosts: Sequence[EngineHost]) -> defaultdict[UUID, dict[int, Placement]]:
    """Return the copies that are there or being staged, by version and host."""
    placements: defaultdict[UUID, dict[int, Placement]] = defaultdict(dict)
    wanted = set(versions)
    for placement in Placement.objects.filter(host__in=hosts).select_related("host", "version"):
        if placement.version_id in wanted:
            placements[placement.version_id][placement.host_id] = placement
    return placements


def _loads(now: datetime, versions: dict[UUID, AdapterVersion]) -> dict[UUID, float]:
    """Return each version's load as a share of a device's time, in the busiest hour of the window.

    A version that is to follow the live one has the live version's load.
    """
    sums = HourlyUsage.objects.filter(start__gte=now - LOAD_WINDOW, series__version__isnull=False).order_by()
    hours = sums.values_list("series__version", "start").annotate(Sum("device_us"), Sum("requests"))
    loads: defaultdict[UUID, float] = defaultdict(float)
    for version, start, device_us, requests in hours:
        seconds = max(MIN_LOAD_S, min(3600.0, (now - start).total_seconds()))
        loads[version] = max(loads[version], device_us / 1e6 / seconds, requests * REQUEST_LOAD)
    live = dict(Alias.objects.filter(name=LIVE, version__in=loads.keys()).values_list("adapter", "version"))
    adapters = AdapterVersion.objects.filter(adapter__in=live.keys(), state__in=actions.PLACED_STATES).order_by()
    newest = dict(adapters.values_list("adapter").annotate(Max("number")))
    for version in versions.values():
        if newest.get(version.adapter_id) == version.number:
            loads[version.pk] = max(loads[version.pk], loads[live[version.adapter_id]])
    return dict(loads)


def _take_away(surplus: list[Placement], kept: list[Placement], now: datetime) -> int:
    """Remove copies that have been surplus for long enough. Returns their number.

    The last copy that answers stays until another one does, unless the plan leaves the version to the store.
    """
    with transaction.atomic():
        Placement.objects.filter(pk__in=[each.pk for each in kept if each.unneeded_since]).update(unneeded_since=None)
        new = [placement.pk for placement in surplus if placement.unneeded_since is None]
        Placement.objects.filter(pk__in=new).update(unneeded_since=now)
    answering = {each.version_id for each in kept if _answers(each)}
    stay = {each.version_id for each in kept} - answering
    due = [each for each in surplus if each.unneeded_since and each.unneeded_since <= now - REMOVE_AFTER]
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
            enqueue("placements.drop_unwanted", placement.host.name, placement.version.digest)
    return min(1, gone)


def bring_for_request(versions: Sequence[AdapterVersion], base: ServedBase) -> bool:
    """Place these versions on one host, for a request that no host could take. Returns False if none could.

    The host is the one that has most of them, else the least busy.
    """
    hosts = online_hosts(base)
    failed = Placement.objects.filter(version__in=versions, phase=StagingPhase.FAILED)
    refused = set(failed.values_list("host", flat=True))
    fit = [host for host in hosts if host.pk not in refused]
    if not fit:
        return False
    copies: defaultdict[int, int] = defaultdict(int)
    for host in Placement.objects.filter(version__in=versions, host__in=fit).values_list("host", flat=True):
        copies[host] += 1
    busy = dict(EngineHost.objects.filter(pk__in=[host.pk for host in fit]).values_list("pk", "last_status"))

    def order(host: EngineHost) -> tuple[int, int, str]:
        status = busy.get(host.pk) or {}
        return -copies[host.pk], status.get("running", 0) + status.get("waiting", 0), host.name

    best = min(fit, key=order)
    if copies[best.pk] < len(versions):
        for version in versions:
            if not Placement.objects.filter(version=version, host=best).exists():
                actions.place_version(version, [best])
    return True
