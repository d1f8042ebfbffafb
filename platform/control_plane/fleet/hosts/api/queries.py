"""Hosts as the console shows them: a tenant sees its own adapters there, an operator everybody's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import Case, Count, QuerySet, When, Window
from django.db.models.functions import RowNumber

from control_plane.adapters.registry.models import OUT_OF_USE, AdapterVersion
from control_plane.fleet.base_models.base_model import ServedBases, host_quarantine, served_bases, serving_hosts
from control_plane.fleet.hosts.api.cold_starts import cold_start_ms, experts_json, load_rates
from control_plane.fleet.hosts.host_status import message_json, shown_figures
from control_plane.fleet.hosts.models import EngineHost, HostAdapter, HostState
from control_plane.fleet.placements.actions import callable_here
from control_plane.fleet.placements.models import Placement
from control_plane.identity.tenants.models import Tenant
from lora_engine.wire import engine_pb2 as pb

# Adapters listed of one host, which may hold thousands: the busiest and nearest to the device come first.
MAX_ADAPTERS = 256
_TIER_ORDER = Case(When(tier="device", then=0), When(tier="host", then=1), default=2)
Resident = dict[str, Any]


def names_by_digest(tenant: Tenant) -> dict[str, list[str]]:
    """Return the names of a tenant's versions by content digest: each is ``name@v<number>``, newest first."""
    rows = AdapterVersion.objects.for_tenant(tenant).order_by("-created_at")
    names: defaultdict[str, list[str]] = defaultdict(list)
    for digest, name, number in rows.values_list("digest", "adapter__name", "number"):
        names[digest].append(f"{name}@v{number}")
    return names


def hosts_for(tenant: Tenant) -> list[dict[str, Any]]:
    """Return every active host as this tenant may see it: its total load, and only the tenant's own adapters."""
    return _as_seen_by(tenant, EngineHost.objects.filter(active=True), served_bases())


def host_for(tenant: Tenant, host: EngineHost, bases: ServedBases) -> dict[str, Any]:
    """Return one host as this tenant may see it."""
    (visible,) = _as_seen_by(tenant, [host], bases)
    return visible


def _as_seen_by(tenant: Tenant, hosts: Iterable[EngineHost], bases: ServedBases) -> list[dict[str, Any]]:
    names, tenant_id = names_by_digest(tenant), str(tenant.pk)
    shown = _residents([*hosts], AdapterVersion.objects.for_tenant(tenant).values("digest"))
    return [
        {
            **_figures(host, bases),
            "share": next(
                (_share(row) for row in host.last_status.get("tenants", []) if row["tenant"] == tenant_id), None
            ),
            "adapters": [
                {**_resident(host, resident), "name": names[resident["digest"]][0], "names": names[resident["digest"]]}
                for resident in shown[host.pk].adapters
                if resident["digest"] in names  # it may have been added after `names` was read
            ],
            "adapters_total": shown[host.pk].total,
        }
        for host in hosts
    ]


def _resident(host: EngineHost, resident: Resident) -> Resident:
    return {
        **{name: resident[name] for name in ("digest", "tier", "running", "bytes", "rank")},
        "experts": experts_json(resident["experts_resident"], resident["experts_total"]),
        "cold_start_ms": cold_start_ms(host.last_status, resident["tier"], resident["bytes"]),
    }


def _share(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("tenant", "counter")}


def _shares(host: EngineHost, tenants: Mapping[UUID, Tenant]) -> list[dict[str, Any]]:
    """Return the share of each tenant in the engine. ``ahead`` is its service per weight above the lowest tenant's."""
    rows = [row for row in host.last_status.get("tenants", []) if tenant_id_of(row["tenant"]) in tenants]
    least = min((row["counter"] for row in rows), default=0.0)
    return [
        {
            **_share(row),
            "tenant": tenants[UUID(row["tenant"])].slug,
            "name": tenants[UUID(row["tenant"])].name,
            "ahead": row["counter"] - least,
        }
        for row in rows
    ]


def tenant_id_of(text: str) -> UUID | None:
    """Return a tenant's id; None for another text, as an engine may serve callers besides the platform."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _in_engines(hosts: list[EngineHost]) -> dict[UUID, Tenant]:
    ids = {tenant_id_of(row["tenant"]) for host in hosts for row in host.last_status.get("tenants", [])}
    return Tenant.objects.in_bulk([pk for pk in ids if pk])


def hosts_for_operator() -> list[dict[str, Any]]:
    """Return every active host with all adapters and their owners."""
    hosts, bases = list(EngineHost.objects.filter(active=True)), served_bases()
    alone = only_on(hosts, bases)
    shown = _residents(hosts)
    tenants = _in_engines(hosts)
    owners = _owners({resident["digest"] for residents in shown.values() for resident in residents.adapters})
    return [
        {
            **_figures(host, bases),
            "address": host.address,
            "zone": host.description.get("zone", ""),
            "adapter_readers": host.last_status.get("adapter_readers", 0),
            "joined": _joined(host),
            "clock_ahead_s": clock_ahead_s(host),
            "engine_version": host.description.get("engine_version", ""),
            "only_here": alone[host.pk],
            "last_end": _last_end(host),
            "base_digest": host.description.get("base_digest", ""),
            "adapters": [
                {**_resident(host, resident), "used_by": owners[resident["digest"]]}
                for resident in shown[host.pk].adapters
            ],
            "adapters_total": shown[host.pk].total,
            "shares": _shares(host, tenants),
        }
        for host in hosts
    ]


def only_on(hosts: list[EngineHost], bases: ServedBases) -> Counter[int]:
    """Return by host the number of versions that can be called there and on no other serving host."""
    serving = {host.pk for host in serving_hosts(bases)}
    ready = Placement.objects.filter(callable_here(), host__in=serving).order_by()
    single = ready.values("version").annotate(hosts=Count("pk")).filter(hosts=1).values("version")
    counts = dict(ready.filter(version__in=single).values_list("host").annotate(Count("pk")))
    return Counter({host.pk: counts.get(host.pk, 0) for host in hosts})


def _figures(host: EngineHost, bases: ServedBases) -> dict[str, Any]:
    status, description = host.last_status, host.description
    reason, base = host_quarantine(bases, host), bases.of_host(description)
    return {
        "name": host.name,
        "state": host.state,
        "service": host.service,
        "restart": _restart(host),
        "quarantine": reason.json() if reason else None,
        "boot_id": host.boot_id,
        "model": base.name if base else description.get("base_model", ""),
        "device": description.get("device", ""),
        **shown_figures(status),
        "pool": status.get("pool") or message_json(pb.PoolPages()),
        "page_bytes": description.get("page_bytes", 0),
        "load_times": load_rates(status),
        "last_seen": host.last_seen.isoformat() if host.last_seen else None,
    }


def clock_ahead_s(host: EngineHost) -> float | None:
    """Return how far a host's clock is ahead of the database's; None if it does not answer, or was not measured."""
    return host.last_status.get("clock_ahead_s") if host.state in (HostState.ONLINE, HostState.DRAINING) else None


def _joined(host: EngineHost) -> dict[str, Any] | None:
    """Return when a host joined and its certificate; None for a host of the settings."""
    if host.joined_at is None or not (host.credential or host.revoked_at):
        return None
    expires, revoked = host.certificate_expires_at, host.revoked_at
    return {
        "at": host.joined_at.isoformat(),
        "certificate_expires_at": expires and expires.isoformat(),
        "revoked_at": revoked and revoked.isoformat(),
    }


def _last_end(host: EngineHost) -> dict[str, Any] | None:
    """Return why the engine before the running one ended; None if it ended normally, or none runs."""
    end = host.description.get("last_end")
    if end is None or host.state == HostState.OFFLINE:
        return None
    at = datetime.fromtimestamp(end["unix_time"], UTC).isoformat() if end["unix_time"] else None
    return {"reason": end["reason"], "at": at}


def _restart(host: EngineHost) -> dict[str, Any] | None:
    """Return the progress of a requested restart; None if none was requested, or it is done."""
    if not host.restarts:
        return None
    if host.state == HostState.OFFLINE:
        phase = "starting"
    else:
        phase = "ending" if host.last_status.get("restarting") else "asked"
    return {
        "phase": phase,
        "asked_at": host.restart_asked_at and host.restart_asked_at.isoformat(),
        "wait_s": host.restart_wait_s,
    }


@dataclass
class _Residents:
    """A host's first adapters in display order, and the number of all."""

    adapters: list[Resident] = field(default_factory=list)
    total: int = 0


def _residents(hosts: Sequence[EngineHost], digests: QuerySet[Any] | None = None) -> Mapping[int, _Residents]:
    """Return the hosts' adapters, or those among ``digests``, by the host's key."""
    rows = HostAdapter.objects.filter(host__in=[host.pk for host in hosts])
    if digests is not None:
        rows = rows.filter(digest__in=digests)
    place = Window(RowNumber(), partition_by="host", order_by=("-running", "order", "digest"))
    rows = rows.annotate(order=_TIER_ORDER).annotate(place=place, total=Window(Count("pk"), partition_by="host"))
    residents = defaultdict[int, _Residents](_Residents)
    columns = ("digest", "tier", "running", "bytes", "rank", "experts_resident", "experts_total")
    for row in rows.filter(place__lte=MAX_ADAPTERS).order_by("place").values("host", "total", *columns):
        entry = residents[row["host"]]
        entry.adapters.append({name: row[name] for name in columns})
        entry.total = row["total"]
    return residents


def _owners(digests: set[str]) -> Mapping[str, list[dict[str, str]]]:
    """Return by digest the versions with this content. A digest without one is yet to be dropped by the host."""
    owners: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    rows = AdapterVersion.objects.filter(digest__in=digests).exclude(state__in=OUT_OF_USE)
    columns = ("digest", "tenant__slug", "adapter__name", "number")
    for digest, tenant, name, number in rows.order_by("tenant__slug", "created_at").values_list(*columns):
        owners[digest].append({"tenant": tenant, "name": f"{name}@v{number}"})
    return owners
