"""Maps of hosts' page pools: read from the engine, cached for ten minutes, and reduced to what each tenant may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.cache import cache

from control_plane.adapters.registry.models import OUT_OF_USE, AdapterVersion
from control_plane.core.errors import NotFoundError
from control_plane.fleet.base_models.actions import HostAwayError
from control_plane.fleet.hosts.api.queries import names_by_digest, tenant_id_of
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.tenants.models import Tenant
from lora_engine.peft_format import digests_of
from lora_engine.wire import engine_pb2 as pb

# Seconds between two reads of an engine's map, whoever requests it.
EVERY_S = 5
# Seconds for which a map is cached.
KEPT_S = 600
OTHERS = "others"
Owner = dict[str, Any]
Describe = Callable[[pb.PageOwner], Owner]


def pages_for(tenant: Tenant, host_name: str, ago_s: int) -> dict[str, Any]:
    """Return a map in which other tenants' pages are only taken: without purpose, age, or shared pins."""
    names, tenant_id = names_by_digest(tenant), str(tenant.pk)
    pinned = AdapterVersion.objects.for_tenant(tenant).filter(adapter__pinned_at__isnull=False)
    tenant_pins = {*pinned.values_list("digest", flat=True)}

    def describe(owner: pb.PageOwner) -> Owner:
        is_unowned = owner.kind in (pb.PageOwner.FREE, pb.PageOwner.RESERVED)
        has_content = not owner.tenant and names.keys() >= {*digests_of(owner.adapter_digest)}
        if is_unowned or owner.tenant == tenant_id or has_content:
            may_show_pin = bool(owner.tenant) or owner.adapter_digest in tenant_pins
            shown = _owner(owner, _names_of(owner.adapter_digest, names), None)
            return {**shown, "pinned": owner.pinned and may_show_pin}
        return {"kind": OTHERS, "tenant": None, "adapters": [], "age_s": None, "pinned": False}

    host = _host(host_name)
    return _json(host, *_snapshot(host, ago_s), describe)


def pages_for_operator(host_name: str, ago_s: int) -> dict[str, Any]:
    host = _host(host_name)
    page_map, kept = _snapshot(host, ago_s)
    tenants = Tenant.objects.in_bulk({pk for owner in page_map.owners if (pk := tenant_id_of(owner.tenant))})
    names = _names({digest for owner in page_map.owners for digest in digests_of(owner.adapter_digest)})

    def describe(owner: pb.PageOwner) -> Owner:
        pk = tenant_id_of(owner.tenant)
        tenant = tenants.get(pk) if pk else None
        return _owner(owner, _names_of(owner.adapter_digest, names), tenant.slug if tenant else None)

    return _json(host, page_map, kept, describe)


def _host(name: str) -> EngineHost:
    host = EngineHost.objects.filter(name=name, active=True).first()
    if host is None:
        raise NotFoundError(
            f'There is no engine host "{name}".', "GET hosts lists them.", code="host_not_found", param="host"
        )
    return host


def _names(digests: set[str]) -> dict[str, list[str]]:
    rows = AdapterVersion.objects.filter(digest__in=digests - {""}).exclude(state__in=OUT_OF_USE)
    names: dict[str, list[str]] = {}
    for digest, tenant, name, number in rows.values_list("digest", "tenant__slug", "adapter__name", "number"):
        names.setdefault(digest, []).append(f"{tenant}/{name}@v{number}")
    return names


def _names_of(digest: str, names: Mapping[str, list[str]]) -> list[str]:
    """Return the names of an adapter; of a batch's combined adapters, those of each."""
    return [name for part in digests_of(digest) for name in names.get(part, [])]


def _owner(owner: pb.PageOwner, adapters: list[str], tenant: str | None) -> Owner:
    age = owner.age_s if owner.HasField("age_s") else None
    kind = pb.PageOwner.Kind.Name(owner.kind).lower()
    return {"kind": kind, "tenant": tenant, "adapters": adapters, "age_s": age, "pinned": owner.pinned}


def _snapshot(host: EngineHost, ago_s: int) -> tuple[pb.PageMap, list[int]]:
    """Return the newest map that is at least `ago_s` seconds old, else the oldest; and the times of all, oldest first.

    Raises HostAwayError (503).
    """
    now = int(time.time())
    slots = range((now - KEPT_S) // EVERY_S, now // EVERY_S + 1)
    kept: Mapping[str, bytes] = cache.get_many([_key(host.name, slot) for slot in slots])
    newest = _key(host.name, now // EVERY_S)
    if newest not in kept and not ago_s:
        kept = {**kept, newest: _read_map(host.name)}
        cache.set(newest, kept[newest], KEPT_S)
    maps = [(slot * EVERY_S, kept[key]) for slot in slots if (key := _key(host.name, slot)) in kept]
    if not maps:
        raise NotFoundError(
            f"No page map of {host.name} is cached.",
            "Repeat without `ago_s`.",
            code="page_map_not_found",
            param="ago_s",
        )
    old_enough = [row for row in maps if row[0] <= now - ago_s]
    chosen = (old_enough or maps[:1])[-1]
    return pb.PageMap.FromString(chosen[1]), [at for at, _ in maps]


def _read_map(host: str) -> bytes:
    try:
        with engine_calls(endpoint_of(host)) as calls:
            return calls.map_pages().SerializeToString()
    except HostError as failure:
        raise HostAwayError(failure) from failure


def _key(host: str, slot: int) -> str:
    return f"page-map:{host}:{slot}"


def _json(host: EngineHost, page_map: pb.PageMap, kept: list[int], describe: Describe) -> dict[str, Any]:
    """Return the map as JSON. Owners that are shown alike become one, and so do their adjacent runs."""
    owners: dict[str, int] = {}
    listed: list[Owner] = []
    number = []
    for owner in map(describe, page_map.owners):
        if (name := repr(owner)) not in owners:
            owners[name] = len(listed)
            listed.append(owner)
        number.append(owners[name])
    return {
        "at": page_map.unix_time,
        "boot_id": page_map.boot_id,
        "total": sum(page_map.lengths),
        "page_bytes": host.description.get("page_bytes", 0),
        "owners": listed,
        "runs": [value for run in _merged(page_map, number) for value in run],
        "kept": kept,
    }


def _merged(page_map: pb.PageMap, number: list[int]) -> Iterator[tuple[int, int]]:
    last, length = -1, 0
    for owner, pages in zip(page_map.owner_of, page_map.lengths, strict=True):
        if number[owner] != last and length:
            yield last, length
            length = 0
        last, length = number[owner], length + pages
    if length:
        yield last, length
