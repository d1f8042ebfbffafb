"""What pins take of hosts, and how much they may: within each tenant's quota, and a quarter of each host's pool.

Adapters and prefixes are pinned from the same quota. A prefix counts with all its full pages, also with those that it
shares with another one; the engine keeps such pages once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from control_plane.adapters.registry.models import LIVE, AdapterVersion, Alias
from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.errors import LorikeetError
from control_plane.fleet.base_models.base_model import served_bases, serving_hosts
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements.actions import ready_here
from control_plane.fleet.placements.models import PinnedPrefix, Placement
from control_plane.identity.tenants.models import Tenant

# Of a host's pool, for the pins of all tenants; an engine keeps no more either.
SHARE_FOR_PINS = 4
MIB = 2**20


class PinError(LorikeetError):
    """Waiting does not help: clients must not try again by themselves."""

    def __init__(self, code: str, message: str, fix: str, *, status: int = 409, param: str = "name") -> None:
        super().__init__(code, message, fix, param=param, status=status)


@dataclass(frozen=True)
class AdapterPin:
    """A pinned adapter's live version on a host that has it."""

    placement: Placement

    @property
    def host(self) -> EngineHost:
        return self.placement.host

    @property
    def tenant(self) -> Tenant:
        return self.placement.version.tenant

    @property
    def order(self) -> tuple[datetime | None, UUID]:
        adapter = self.placement.version.adapter
        return adapter.pinned_at, adapter.pk

    @property
    def bytes(self) -> int:
        return device_bytes(self.placement)

    @property
    def pages(self) -> int:
        return self.placement.pool_pages


@dataclass(frozen=True)
class PrefixPin:
    """A pinned prefix on a host that answers for it, with the version that is live there; None: the base model."""

    prefix: PinnedPrefix
    host: EngineHost
    version: AdapterVersion | None

    @property
    def tenant(self) -> Tenant:
        return self.prefix.tenant

    @property
    def order(self) -> tuple[datetime | None, UUID]:
        return self.prefix.pinned_at, self.prefix.pk

    @property
    def bytes(self) -> int:
        return self.pages * int(self.host.description.get("page_bytes", 0))

    @property
    def pages(self) -> int:
        return prefix_pages(self.prefix.tokens, self.host)


Pin = AdapterPin | PrefixPin


def pins(host: EngineHost | None = None, tenant: Tenant | None = None) -> list[Pin]:
    """Of one host or of all, of one tenant or of all; the oldest first."""
    found: list[Pin] = [AdapterPin(placement) for placement in _of(_pinned_adapters(), host, tenant)]
    found += _prefix_pins(host, tenant)
    return sorted(found, key=lambda pin: pin.order)


def within_quota(found: Iterable[Pin]) -> list[Pin]:
    """Of pins in their order, those that are to stay: of each tenant as much of each host as its quota allows."""
    found = list(found)
    limits = LimitSet.objects.filter(api_key=None, tenant__in={pin.tenant.pk for pin in found})
    allowed = dict(limits.values_list("tenant", "pinned_bytes"))
    taken: Counter[tuple[UUID, int]] = Counter()
    wanted = []
    for pin in found:
        key = (pin.tenant.pk, pin.host.pk)
        if taken[key] + pin.bytes <= (allowed.get(pin.tenant.pk) or 0):
            taken[key] += pin.bytes
            wanted.append(pin)
    return wanted


def taken_by(tenant: Tenant) -> Counter[int]:
    """By host: bytes of what the tenant has pinned there."""
    taken: Counter[int] = Counter()
    for pin in pins(tenant=tenant):
        taken[pin.host.pk] += pin.bytes
    return taken


def require_quota(tenant: Tenant) -> int:
    """Bytes of each host that the tenant may pin. Raises PinError if it may none."""
    allowed = tenant_limits(tenant).pinned_bytes
    if not allowed:
        raise PinError(
            "pins_not_allowed",
            "This tenant may keep neither adapters nor prefixes in device memory.",
            "Ask the operator for a quota of pinned memory (the tenant's limits).",
        )
    return allowed


def require_room(tenant: Tenant, what: str, costs: Mapping[EngineHost, tuple[int, int]]) -> None:
    """That so many bytes and pages more of these hosts fit. Its caller's transaction pins them, and has locked the
    tenant; of several tenants at once on one host, each sees what the one before it has pinned.

    Raises PinError.
    """
    allowed = require_quota(tenant)
    # In one order, so that nobody waits in a circle.
    hosts = EngineHost.objects.select_for_update(no_key=True).filter(pk__in=[host.pk for host in costs]).order_by("pk")
    list(hosts.values_list("pk"))
    taken = taken_by(tenant)
    for host, (size, _) in costs.items():
        if taken[host.pk] + size > allowed:
            raise PinError(
                "pin_limit_reached",
                f"{what} takes {mib(size)} of each host, and what the tenant has pinned {mib(taken[host.pk])} of the "
                f"{mib(allowed)} that it may.",
                "Unpin another adapter or prefix, or ask the operator for more pinned memory.",
            )
    for host, (_, pages) in costs.items():
        most = host.description.get("pages_total", 0) // SHARE_FOR_PINS
        if most and sum(pin.pages for pin in within_quota(pins(host))) + pages > most:
            raise PinError(
                "pins_full",
                f"What is pinned may take a quarter of a host's memory pool, and with {what} it would take more of "
                f"{host.name}.",
                "Unpin another adapter or prefix, or ask the operator for larger pools.",
            )


def device_bytes(placement: Placement) -> int:
    """What the version takes of the host's device memory."""
    return placement.pool_pages * placement.host.description.get("page_bytes", 0) or placement.version.bytes


def prefix_pages(tokens: int, host: EngineHost) -> int:
    """Full pages: what is left of the last one is computed with each request."""
    return tokens // max(1, int(host.description.get("page_tokens", 1)))


def hosts_of(prefix: PinnedPrefix) -> list[EngineHost]:
    """Those that answer for its adapter's live version, or its base model."""
    if prefix.adapter_id is None:
        return hosts_of_base(prefix.base_digest)
    return [placement.host for placement in live_placements([prefix.adapter_id])]


def hosts_of_base(digest: str) -> list[EngineHost]:
    base = next((base for base in served_bases() if base.digest == digest), None)
    return [host for host in serving_hosts(base) if host.active]


def live_placements(adapters: Iterable[UUID]) -> QuerySet[Placement]:
    """Of these adapters' live versions, where they are ready."""
    live = Alias.objects.filter(name=LIVE, version=OuterRef("version"))
    return _ready().filter(Exists(live), version__adapter__in=adapters, version__adapter__archived_at=None)


def mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def ready_placements(version: AdapterVersion) -> list[Placement]:
    return list(_ready().filter(version=version))


def _ready() -> QuerySet[Placement]:
    ready = Placement.objects.filter(ready_here(), host__active=True)
    return ready.select_related("host", "version__tenant", "version__adapter").defer(
        "host__last_status", "version__report"
    )


def _pinned_adapters() -> QuerySet[Placement]:
    """Live versions of pinned adapters, wherever they are ready."""
    live = Alias.objects.filter(name=LIVE, version=OuterRef("version"))
    pinned = _ready().filter(Exists(live), version__adapter__pinned_at__isnull=False)
    return pinned.filter(version__adapter__archived_at=None, version__tenant__suspended_at=None)


def _of(placements: QuerySet[Placement], host: EngineHost | None, tenant: Tenant | None) -> QuerySet[Placement]:
    placements = placements if host is None else placements.filter(host=host)
    return placements if tenant is None else placements.filter(version__tenant=tenant)


def _prefix_pins(host: EngineHost | None, tenant: Tenant | None) -> list[Pin]:
    prefixes = PinnedPrefix.objects.filter(tenant__suspended_at=None).select_related("tenant")
    rows = list(prefixes if tenant is None else prefixes.filter(tenant=tenant))
    adapters = {row.adapter_id for row in rows if row.adapter_id is not None}
    placed: defaultdict[UUID, list[Placement]] = defaultdict(list)
    for placement in _of(live_placements(adapters), host, tenant) if adapters else ():
        placed[placement.version.adapter_id].append(placement)
    bases = {row.base_digest for row in rows if row.adapter_id is None}
    serving = {digest: [each for each in hosts_of_base(digest) if host in (None, each)] for digest in bases}
    found: list[Pin] = []
    for row in rows:
        if row.adapter_id is None:
            found += [PrefixPin(row, each, None) for each in serving[row.base_digest]]
        else:
            found += [PrefixPin(row, each.host, each.version) for each in placed[row.adapter_id]]
    return found
