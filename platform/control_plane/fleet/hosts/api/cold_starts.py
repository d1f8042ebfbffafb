"""Predictions of how long a request waits for its adapter, by the adapter's tier, from the loads measured on a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.fleet.base_models.base_model import served_bases, serving_hosts
from control_plane.fleet.hosts.host_status import LOADS
from control_plane.fleet.hosts.models import EngineHost, HostAdapter

# Tier -> loads that bring an adapter from there to the device. "store" is the artifact store: the host has no copy.
STEPS_FROM: dict[str, tuple[str, ...]] = {
    "device": (),
    "host": ("to_device",),
    "disk": ("from_disk", "to_device"),
    "store": ("download", "from_disk", "to_device"),
}


def cold_start_ms(status: Mapping[str, Any], tier: str, num_bytes: int) -> float | None:
    """Return the predicted wait, or None until the host has measured each load at least once."""
    times = status.get("load_times") or {}
    steps = [times.get(step) for step in STEPS_FROM[tier]]
    if not all(step and step["loads"] for step in steps):
        return None
    seconds: float = sum(step["fixed_s"] + num_bytes * step["seconds_per_byte"] for step in steps if step)
    return round(seconds * 1000, 3)


def load_rates(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the measured loads that predictions are made from, for display."""
    times = status.get("load_times") or {}
    return [
        {
            "step": name,
            "loads": times[name]["loads"],
            "fixed_ms": round(times[name]["fixed_s"] * 1000, 3),
            "bytes_per_second": round(1 / times[name]["seconds_per_byte"]) if times[name]["seconds_per_byte"] else None,
        }
        for name in LOADS
        if times.get(name)
    ]


def experts_json(resident: int, total: int) -> dict[str, int] | None:
    """Return how many units of an adapter's experts are in the pool; None where none may lie outside it."""
    return {"resident": resident, "total": total} if total else None


def tiers_of(version: AdapterVersion) -> list[dict[str, Any]]:
    """Return the version's tier on each serving host, and what a request would wait there from each tier."""
    tiers = []
    serving = [host.pk for host in serving_hosts(served_bases().for_adapters_of(version.base_digest))]
    residents = {row.host_id: row for row in HostAdapter.objects.filter(host__in=serving, digest=version.digest)}
    for host in EngineHost.objects.filter(pk__in=serving):
        here = residents.get(host.pk)
        tier = here.tier if here else "store"
        num_bytes = here.bytes if here else version.bytes
        predicted = {name: cold_start_ms(host.last_status, name, num_bytes) for name in STEPS_FROM}
        tiers.append(
            {
                "host": host.name,
                "tier": tier,
                "experts": experts_json(here.experts_resident, here.experts_total) if here else None,
                "cold_start_ms": predicted[tier],
                "by_tier": predicted,
            }
        )
    return tiers
