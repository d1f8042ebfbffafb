"""Hosts as the console sees them. Other tenants' adapters are shown without name or digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_plane.adapters.models import AdapterVersion
from control_plane.fleet.models import EngineHost
from control_plane.fleet.observed import POOL_FIELDS
from control_plane.tenants.models import Tenant

# A host may hold thousands of adapters. The caller's own come first, then the busiest and nearest to the device.
MOST_ADAPTERS = 256
_TIER_ORDER = {"device": 0, "host": 1, "disk": 2}


def names_by_digest(tenant: Tenant) -> dict[str, str]:
    """The tenant's versions that a host may hold: digest -> ``name@v<number>``, newest last."""
    rows = AdapterVersion.objects.for_tenant(tenant).order_by("created_at")
    return {
        digest: f"{name}@v{number}" for digest, name, number in rows.values_list("digest", "adapter__name", "number")
    }


def hosts_for(tenant: Tenant) -> list[dict[str, Any]]:
    """Every active host, as this tenant may see it."""
    names = names_by_digest(tenant)
    return [host_json(host, names) for host in EngineHost.objects.filter(active=True)]


def host_json(host: EngineHost, names: Mapping[str, str]) -> dict[str, Any]:
    status, description = host.last_status, host.description
    return {
        "name": host.name,
        "state": host.state,
        "boot_id": host.boot_id,
        "model": description.get("base_model", ""),
        "device": description.get("device", ""),
        "running": status.get("running", 0),
        "waiting": status.get("waiting", 0),
        "tokens_per_second": status.get("tokens_per_second", 0.0),
        "pool": status.get("pool") or dict.fromkeys(POOL_FIELDS, 0),
        "page_bytes": description.get("page_bytes", 0),
        "adapters": _adapters(status.get("adapters", []), names),
        "adapters_total": len(status.get("adapters", [])),
        "last_seen": host.last_seen.isoformat() if host.last_seen else None,
    }


def _adapters(residents: list[dict[str, Any]], names: Mapping[str, str]) -> list[dict[str, Any]]:
    shown = sorted(residents, key=lambda r: (r["digest"] not in names, -r["running"], _TIER_ORDER.get(r["tier"], 3)))
    return [_adapter(resident, names.get(resident["digest"])) for resident in shown[:MOST_ADAPTERS]]


def _adapter(resident: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {**resident, "name": name, "digest": resident["digest"] if name else None}
