"""Pinned adapters: their live versions stay in the device memory of the hosts that have them, as far as quotas go."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from control_plane.access.principal import Principal
from control_plane.adapters.models import LIVE, Adapter, AdapterVersion, Alias
from control_plane.adapters.versions import tell_adapter
from control_plane.audit import actions as audit
from control_plane.errors import LorikeetError
from control_plane.fleet.models import EngineHost
from control_plane.limits.queries import tenant_limits
from control_plane.placements.actions import ready_here
from control_plane.placements.models import Placement
from control_plane.tenants.models import Tenant
from control_plane.writes import enqueue

# Of a host's pool, for the pins of all tenants; an engine keeps no more either.
SHARE_FOR_PINS = 4
MIB = 2**20


class PinError(LorikeetError):
    """Waiting does not help: clients must not try again by themselves."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(code, message, fix, param="name", status=409)


@dataclass(frozen=True)
class HostPin:
    """A host that has the live version, and whether that stays in its device memory."""

    host: str
    bytes: int
    pinned: bool


@dataclass(frozen=True)
class PinState:
    """Field names are those of the JSON."""

    pinned_at: datetime | None
    bytes: int | None
    used_bytes: int
    limit_bytes: int | None
    hosts: list[HostPin]


def pin_state(adapter: Adapter) -> PinState:
    """Whether it is pinned, what that takes of each host, and what the tenant may take."""
    version = _live(adapter)
    placements = list(_ready().filter(version=version)) if version else []
    taken = _taken(adapter.tenant_id)
    return PinState(
        pinned_at=adapter.pinned_at,
        bytes=_cost(version, placements) if version else None,
        used_bytes=max(taken.values(), default=0),
        limit_bytes=tenant_limits(adapter.tenant).pinned_bytes,
        hosts=[HostPin(placement.host.name, device_bytes(placement), placement.pinned) for placement in placements],
    )


def pin_adapter(*, acting: Principal, adapter: Adapter) -> None:
    """From now on its live version, whichever that is, stays loaded. Does nothing if it is pinned.

    Raises PinError (409) beyond the tenant's quota, without a live version, or where hosts have no more room.
    """
    with transaction.atomic():
        # Of two at once, one sees the other's.
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
        adapter = _locked(acting, adapter)
        if adapter.pinned_at is not None:
            return
        version = _require_room(adapter)
        adapter.pinned_at = timezone.now()
        _save(acting, adapter, "adapter.pin")
        apply_pins_of(version)


def unpin_adapter(*, acting: Principal, adapter: Adapter) -> None:
    """It may be evicted again, as others are. Does nothing if it is not pinned."""
    with transaction.atomic():
        adapter = _locked(acting, adapter)
        if adapter.pinned_at is None:
            return
        adapter.pinned_at = None
        _save(acting, adapter, "adapter.unpin")
        if version := _live(adapter):
            apply_pins_of(version)


def apply_pins_of(version: AdapterVersion) -> None:
    """Tell the hosts of its adapter's versions what is pinned now."""
    of_adapter = Placement.objects.filter(version__adapter_id=version.adapter_id, host__active=True)
    for host in of_adapter.order_by("host__name").values_list("host__name", flat=True).distinct():
        enqueue("fleet.apply_pins", host)


def wanted_pins(host: EngineHost) -> list[Placement]:
    """What is to stay loaded there, the oldest pins first: of each tenant as much as its quota allows."""
    taken: Counter[UUID] = Counter()
    allowed: dict[UUID, int] = {}
    wanted = []
    for placement in _pinned().filter(host=host):
        tenant = placement.version.tenant
        if tenant.pk not in allowed:
            allowed[tenant.pk] = tenant_limits(tenant).pinned_bytes or 0
        size = device_bytes(placement)
        if taken[tenant.pk] + size <= allowed[tenant.pk]:
            taken[tenant.pk] += size
            wanted.append(placement)
    return wanted


def needs_pins(host: EngineHost) -> bool:
    """Whether there is anything to tell the host."""
    return _pinned().filter(host=host).exists() or Placement.objects.filter(host=host, pinned=True).exists()


def record_pins(host: EngineHost, digests: set[str]) -> None:
    """The host said which contents stay loaded there."""
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


def device_bytes(placement: Placement) -> int:
    """What the version takes of the host's device memory."""
    return placement.pool_pages * placement.host.description.get("page_bytes", 0) or placement.version.bytes


def _require_room(adapter: Adapter) -> AdapterVersion:
    """Its live version, for which there is room."""
    allowed = tenant_limits(adapter.tenant).pinned_bytes
    if not allowed:
        raise PinError(
            "pins_not_allowed",
            "This tenant may keep no adapters in device memory.",
            "Ask the operator for a quota of pinned memory (the tenant's limits).",
        )
    version = _live(adapter)
    placements = list(_ready().filter(version=version)) if version else []
    if version is None or not placements:
        raise PinError(
            "no_live_version",
            f"{adapter.name} has no live version that is ready on a host.",
            "Promote a ready version, and pin the adapter then.",
        )
    taken, size = _taken(adapter.tenant_id), _cost(version, placements)
    used = max((taken[placement.host_id] for placement in placements), default=0)
    if used + size > allowed:
        raise PinError(
            "pin_limit_reached",
            f"{adapter.name} takes {_mib(size)} of each host, and the tenant's pinned adapters {_mib(used)} of the "
            f"{_mib(allowed)} that it may.",
            "Unpin another adapter, or ask the operator for more pinned memory.",
        )
    _require_room_on_hosts(adapter, placements)
    return version


def _require_room_on_hosts(adapter: Adapter, placements: list[Placement]) -> None:
    for placement in placements:
        pages = placement.host.description.get("pages_total", 0) // SHARE_FOR_PINS
        others = sum(each.pool_pages for each in wanted_pins(placement.host))
        if pages and others + placement.pool_pages > pages:
            raise PinError(
                "pins_full",
                f"Pinned adapters may take a quarter of a host's memory pool, and with {adapter.name} they would take "
                f"more of {placement.host.name}.",
                "Unpin another adapter, or ask the operator for larger pools.",
            )


def _cost(version: AdapterVersion, placements: list[Placement]) -> int:
    """Of one host, where hosts differ of that where it takes most."""
    return max(map(device_bytes, placements), default=version.bytes)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _taken(tenant: UUID) -> Counter[int]:
    """By host: bytes of the tenant's pinned adapters."""
    taken: Counter[int] = Counter()
    for placement in _pinned().filter(version__tenant=tenant):
        taken[placement.host_id] += device_bytes(placement)
    return taken


def _ready() -> QuerySet[Placement]:
    ready = Placement.objects.filter(ready_here(), host__active=True)
    return ready.select_related("host", "version__tenant").defer("host__last_status", "version__report")


def _pinned() -> QuerySet[Placement]:
    """Live versions of pinned adapters, wherever they are ready."""
    live = Alias.objects.filter(name=LIVE, version=OuterRef("version"))
    pinned = _ready().filter(Exists(live), version__adapter__pinned_at__isnull=False)
    usable = pinned.filter(version__adapter__archived_at=None, version__tenant__suspended_at=None)
    return usable.order_by("version__adapter__pinned_at", "version__adapter_id")


def _live(adapter: Adapter) -> AdapterVersion | None:
    alias = Alias.objects.for_tenant(adapter.tenant).filter(adapter=adapter, name=LIVE).select_related("version")
    found = alias.first()
    return found.version if found else None


def _locked(acting: Principal, adapter: Adapter) -> Adapter:
    own = Adapter.objects.for_tenant(acting.tenant).select_related("tenant")
    return own.select_for_update(of=("self",)).get(pk=adapter.pk)


def _save(acting: Principal, adapter: Adapter, action: str) -> None:
    adapter.save(update_fields=["pinned_at"])
    audit.record(acting.actor, action, adapter, tenant=acting.tenant, label=adapter.name)
    tell_adapter(adapter)
