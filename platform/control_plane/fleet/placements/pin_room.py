"""Room for pins on hosts: within each tenant's quota, and a quarter of each host's pool.

Adapters and prefixes count towards the same quota. A prefix counts with all its full pages, also with those that it
shares with another prefix; the engine stores shared pages once.
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

# The pins of all tenants take at most one part in so many of a host's pool; the engine has the same limit.
SHARE_FOR_PINS = 4
MIB = 2**20


class PinError(LorikeetError):
    """A pin that is refused. Waiting does not help, so clients must not retry."""

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
    """A pinned prefix on a host of its model, with the version that is live there; None for a base model."""

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
    """Return the pins of one host or of all, of one tenant or of all; the oldest first."""
    result: list[Pin] = [AdapterPin(placement) for placement in _of(_pinned_adapters(), host, tenant)]
    result += _prefix_pins(host, tenant)
    return sorted(result, key=lambda pin: pin.order)


def within_quota(candidates: Iterable[Pin]) -> list[Pin]:
    """Return the pins that stay: of each tenant, in order, as many on each host as its quota allows."""
    candidates = list(candidates)
    limits = LimitSet.objects.filter(api_key=None, tenant__in={pin.tenant.pk for pin in candidates})
    allowed = dict(limits.values_list("tenant", "pinned_bytes"))
    taken: Counter[tuple[UUID, int]] = Counter()
    wanted = []
    for pin in candidates:
        key = (pin.tenant.pk, pin.host.pk)
        if taken[key] + pin.bytes <= (allowed.get(pin.tenant.pk) or 0):
            taken[key] += pin.bytes
            wanted.append(pin)
    return wanted


def taken_by(tenant: Tenant) -> Counter[int]:
    """Return by host the bytes of the tenant's pins there."""
    taken: Counter[int] = Counter()
    for pin in pins(tenant=tenant):
        taken[pin.host.pk] += pin.bytes
    return taken


def require_quota(tenant: Tenant) -> int:
    """Return the bytes of each host that the tenant may pin. Raises PinError if it may pin none."""
    allowed = tenant_limits(tenant).pinned_bytes
    if not allowed:
        raise PinError(
            "pins_not_allowed",
            "This tenant may keep neither adapters nor prefixes in device memory.",
            "Ask the operator for a quota of pinned memory (the tenant's limits).",
        )
    return allowed


def require_room(tenant: Tenant, what: str, costs: Mapping[EngineHost, tuple[int, int]]) -> None:
    """Check that so many more bytes and pages fit on these hosts, and lock the hosts. Raises PinError.

    The caller's transaction has locked the tenant and stores the pin. The locks make concurrent tenants on one host see
    each other's pins.
    """
    allowed = require_quota(tenant)
    # Locked in one order, so that transactions do not deadlock.
    hosts = EngineHost.objects.select_for_update(no_key=True).filter(pk__in=[host.pk for host in costs]).order_by("pk")
    list(hosts.values_list("pk"))
    taken = taken_by(tenant)
    for host, (size, _) in costs.items():
        if taken[host.pk] + size > allowed:
            raise PinError(
                "pin_limit_reached",
                f"{what} takes {mib(size)} of each host, and the tenant's pins take {mib(taken[host.pk])} of the "
                f"{mib(allowed)} that they may.",
                "Unpin another adapter or prefix, or ask the operator for more pinned memory.",
            )
    for host, (_, pages) in costs.items():
        most = host.description.get("pages_total", 0) // SHARE_FOR_PINS
        if most and sum(pin.pages for pin in within_quota(pins(host))) + pages > most:
            raise PinError(
                "pins_full",
                f"Pins may take a quarter of a host's memory pool, and with {what} they would take more of "
                f"{host.name}.",
                "Unpin another adapter or prefix, or ask the operator for larger pools.",
            )


def device_bytes(placement: Placement) -> int:
    """Return the bytes that the version takes of the host's device memory."""
    return placement.pool_pages * placement.host.description.get("page_bytes", 0) or placement.version.bytes


def prefix_pages(tokens: int, host: EngineHost) -> int:
    """Return the number of full pages; the tokens of the last, partial page are computed with each request."""
    return tokens // max(1, int(host.description.get("page_tokens", 1)))


def hosts_of(prefix: PinnedPrefix) -> list[EngineHost]:
    """Return the hosts of a prefix's model: of its adapter's live version, or of its base model."""
    if prefix.adapter_id is None:
        return hosts_of_base(prefix.base_digest)
    return [placement.host for placement in live_placements([prefix.adapter_id])]


def hosts_of_base(digest: str) -> list[EngineHost]:
    base = next((base for base in served_bases() if base.digest == digest), None)
    return [host for host in serving_hosts(base) if host.active]


def live_placements(adapters: Iterable[UUID]) -> QuerySet[Placement]:
    """Return the placements of these adapters' live versions that are ready."""
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
    """Return the ready placements of pinned adapters' live versions."""
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
    result: list[Pin] = []
    for row in rows:
        if row.adapter_id is None:
            result += [PrefixPin(row, each, None) for each in serving[row.base_digest]]
        else:
            result += [PrefixPin(row, each.host, each.version) for each in placed[row.adapter_id]]
    return result
