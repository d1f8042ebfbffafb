"""Hosts as the console sees them: a tenant sees its own adapters there, an operator everybody's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from django.db.models import Count

from control_plane.adapters.models import OUT_OF_USE, AdapterVersion
from control_plane.fleet.base_model import ServedBase, quarantine, served_base, serving_hosts
from control_plane.fleet.host_status import POOL_FIELDS
from control_plane.fleet.models import EngineHost
from control_plane.placements.actions import callable_here
from control_plane.placements.models import Placement
from control_plane.tenants.models import Tenant

# A host may hold thousands of adapters: the busiest and nearest to the device come first.
MOST_ADAPTERS = 256
_TIER_ORDER = {"device": 0, "host": 1, "disk": 2}
Resident = dict[str, Any]


def names_by_digest(tenant: Tenant) -> dict[str, str]:
    """The tenant's versions that a host may hold: digest -> ``name@v<number>``, newest last."""
    rows = AdapterVersion.objects.for_tenant(tenant).order_by("created_at")
    return {
        digest: f"{name}@v{number}" for digest, name, number in rows.values_list("digest", "adapter__name", "number")
    }


def hosts_for(tenant: Tenant) -> list[dict[str, Any]]:
    """Every active host, as this tenant may see it."""
    names, base = names_by_digest(tenant), served_base()
    return [host_json(host, base, names) for host in EngineHost.objects.filter(active=True)]


def host_json(host: EngineHost, base: ServedBase | None, names: Mapping[str, str]) -> dict[str, Any]:
    """The host's load as a whole, and of its adapters only those in ``names``."""
    residents = [{**resident, "name": names[resident["digest"]]} for resident in _on(host, names)]
    return {**_figures(host, base), "adapters": residents[:MOST_ADAPTERS], "adapters_total": len(residents)}


def hosts_for_operator() -> list[dict[str, Any]]:
    """Every active host with every adapter, and whose it is."""
    hosts, base = list(EngineHost.objects.filter(active=True)), served_base()
    alone = only_on(hosts, base)
    shown = {host.pk: _on(host)[:MOST_ADAPTERS] for host in hosts}
    owners = _owners({resident["digest"] for residents in shown.values() for resident in residents})
    return [
        {
            **_figures(host, base),
            "address": host.address,
            "only_here": alone[host.pk],
            "base_digest": host.description.get("base_digest", ""),
            "adapters": [{**resident, "used_by": owners[resident["digest"]]} for resident in shown[host.pk]],
            "adapters_total": len(host.last_status.get("adapters", [])),
        }
        for host in hosts
    ]


def only_on(hosts: list[EngineHost], base: ServedBase | None) -> Counter[int]:
    """By host: versions that can be called there and on no other serving host."""
    serving = {host.pk for host in serving_hosts(base)}
    ready = Placement.objects.filter(callable_here(), host__in=serving).order_by()
    single = ready.values("version").annotate(hosts=Count("pk")).filter(hosts=1).values("version")
    counts = dict(ready.filter(version__in=single).values_list("host").annotate(Count("pk")))
    return Counter({host.pk: counts.get(host.pk, 0) for host in hosts})


def _figures(host: EngineHost, base: ServedBase | None) -> dict[str, Any]:
    status, description = host.last_status, host.description
    reason = quarantine(base, description)
    return {
        "name": host.name,
        "state": host.state,
        "service": host.service,
        "quarantine": reason.json() if reason else None,
        "boot_id": host.boot_id,
        "model": description.get("base_model", ""),
        "device": description.get("device", ""),
        "running": status.get("running", 0),
        "waiting": status.get("waiting", 0),
        "tokens_per_second": status.get("tokens_per_second", 0.0),
        "pool": status.get("pool") or dict.fromkeys(POOL_FIELDS, 0),
        "page_bytes": description.get("page_bytes", 0),
        "last_seen": host.last_seen.isoformat() if host.last_seen else None,
    }


def _on(host: EngineHost, digests: Mapping[str, str] | None = None) -> list[Resident]:
    """The host's adapters, or those among ``digests``."""
    residents = host.last_status.get("adapters", [])
    found = residents if digests is None else [resident for resident in residents if resident["digest"] in digests]
    return sorted(found, key=lambda resident: (-resident["running"], _TIER_ORDER.get(resident["tier"], 3)))


def _owners(digests: set[str]) -> Mapping[str, list[dict[str, str]]]:
    """Whose versions have these contents; nobody's is what a host has not forgotten yet."""
    owners: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    rows = AdapterVersion.objects.filter(digest__in=digests).exclude(state__in=OUT_OF_USE)
    columns = ("digest", "tenant__slug", "adapter__name", "number")
    for digest, tenant, name, number in rows.order_by("tenant__slug", "created_at").values_list(*columns):
        owners[digest].append({"tenant": tenant, "name": f"{name}@v{number}"})
    return owners
