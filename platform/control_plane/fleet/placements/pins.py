"""Pinned adapters: their live versions stay in the device memory of the hosts that have them, up to the quota."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from control_plane.adapters.registry.models import LIVE, Adapter, AdapterVersion, Alias
from control_plane.adapters.registry.versions import tell_adapter
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.writes import enqueue
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements.models import PinnedPrefix, Placement, PrefixOnHost
from control_plane.fleet.placements.pin_room import (
    AdapterPin,
    PinError,
    device_bytes,
    pins,
    ready_placements,
    require_quota,
    require_room,
    taken_by,
    within_quota,
)
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant


@dataclass(frozen=True)
class HostPin:
    """A host that has the live version, and whether that stays in its device memory."""

    host: str
    bytes: int
    pinned: bool


@dataclass(frozen=True)
class PinState:
    """The pin of an adapter, with the field names of the JSON."""

    pinned_at: datetime | None
    bytes: int | None
    used_bytes: int
    limit_bytes: int | None
    hosts: list[HostPin]


def pin_state(adapter: Adapter) -> PinState:
    """Return whether an adapter is pinned, what that takes of each host, and the tenant's quota."""
    version = _live(adapter)
    placements = ready_placements(version) if version else []
    return PinState(
        pinned_at=adapter.pinned_at,
        bytes=_cost(version, placements) if version else None,
        used_bytes=max(taken_by(adapter.tenant).values(), default=0),
        limit_bytes=tenant_limits(adapter.tenant).pinned_bytes,
        hosts=[HostPin(placement.host.name, device_bytes(placement), placement.pinned) for placement in placements],
    )


def pin_adapter(*, acting: Principal, adapter: Adapter) -> None:
    """Keep an adapter's live version loaded, also after a promotion. Does nothing if it is pinned.

    Raises PinError (409) beyond the tenant's quota, without a live version, or where hosts have no more room.
    """
    with transaction.atomic():
        # Serialise concurrent pins of a tenant, so that both count towards the quota.
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
        adapter = _locked(acting, adapter)
        if adapter.pinned_at is not None:
            return
        version = _require_room(adapter)
        adapter.pinned_at = timezone.now()
        _save(acting, adapter, "adapter.pin")
        apply_pins_of(version)


def unpin_adapter(*, acting: Principal, adapter: Adapter) -> None:
    """Let hosts evict an adapter again. Does nothing if it is not pinned."""
    with transaction.atomic():
        adapter = _locked(acting, adapter)
        if adapter.pinned_at is None:
            return
        adapter.pinned_at = None
        _save(acting, adapter, "adapter.unpin")
        if version := _live(adapter):
            apply_pins_of(version)


def is_pinned(adapter: Adapter) -> bool:
    """Return whether hosts keep anything of the adapter: itself, or prefixes of its prompts."""
    return adapter.pinned_at is not None or PinnedPrefix.objects.filter(adapter=adapter).exists()


def apply_pins_of(version: AdapterVersion) -> None:
    """Send the current pins to the hosts of all versions of this version's adapter."""
    of_adapter = Placement.objects.filter(version__adapter_id=version.adapter_id, host__active=True)
    apply_pins_on(of_adapter.values_list("host__name", flat=True))


def apply_pins_on(hosts: Iterable[str]) -> None:
    for host in sorted(set(hosts)):
        enqueue("placements.apply_pins", host)


def wanted_pins(host: EngineHost) -> list[Placement]:
    """Return the placements whose adapters are to stay loaded on a host, the oldest pins first."""
    return [pin.placement for pin in within_quota(pins(host)) if isinstance(pin, AdapterPin)]


def needs_pins(host: EngineHost) -> bool:
    """Return whether the host has pins, or may still have some of before."""
    if Placement.objects.filter(host=host, pinned=True).exists() or PrefixOnHost.objects.filter(host=host).exists():
        return True
    return bool(pins(host))


def record_pins(host: EngineHost, digests: set[str]) -> None:
    """Store which contents a host reports as pinned."""
    wanted = [placement.pk for placement in wanted_pins(host) if placement.version.digest in digests]
    with transaction.atomic():
        placements = Placement.objects.filter(host=host).select_related("version__adapter__tenant")
        changed = [
            *placements.filter(pinned=False, pk__in=wanted),
            *placements.filter(pinned=True).exclude(pk__in=wanted),
        ]
        Placement.objects.filter(host=host, pinned=True).exclude(pk__in=wanted).update(pinned=False)
        Placement.objects.filter(pinned=False, pk__in=wanted).update(pinned=True)
        for adapter in {placement.version.adapter for placement in changed}:
            tell_adapter(adapter)


def _require_room(adapter: Adapter) -> AdapterVersion:
    """Return the live version of an adapter after checking that its pin fits."""
    require_quota(adapter.tenant)
    version = _live(adapter)
    placements = ready_placements(version) if version else []
    if version is None or not placements:
        raise no_live_version(adapter.name)
    costs = {placement.host: (device_bytes(placement), placement.pool_pages) for placement in placements}
    require_room(adapter.tenant, adapter.name, costs)
    return version


def no_live_version(name: str) -> PinError:
    return PinError(
        "no_live_version",
        f"{name} has no live version that is ready on a host.",
        "Promote a ready version, and pin the adapter then.",
    )


def _cost(version: AdapterVersion, placements: list[Placement]) -> int:
    """Return the bytes that a version takes of one host, the largest where hosts differ."""
    return max(map(device_bytes, placements), default=version.bytes)


def _live(adapter: Adapter) -> AdapterVersion | None:
    alias = Alias.objects.for_tenant(adapter.tenant).filter(adapter=adapter, name=LIVE).select_related("version")
    live = alias.first()
    return live.version if live else None


def _locked(acting: Principal, adapter: Adapter) -> Adapter:
    adapters = Adapter.objects.for_tenant(acting.tenant).select_related("tenant")
    return adapters.select_for_update(of=("self",), no_key=True).get(pk=adapter.pk)


def _save(acting: Principal, adapter: Adapter, action: str) -> None:
    adapter.save(update_fields=["pinned_at"])
    audit.record(acting.actor, action, adapter, tenant=acting.tenant, label=adapter.name)
    tell_adapter(adapter)
