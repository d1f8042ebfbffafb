"""Pinned prefixes: beginnings of a tenant's prompts that stay in the KV cache of their model's hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.adapters.registry.resolve import ModelKind, resolve_model
from control_plane.billing.limits.queries import tenant_limits
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.writes import announce
from control_plane.fleet.base_models.actions import HostAwayError
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.placements.models import PinnedPrefix, PrefixOnHost, PrefixState
from control_plane.fleet.placements.pin_room import (
    PinError,
    PrefixPin,
    hosts_of,
    pins,
    prefix_pages,
    require_quota,
    require_room,
    taken_by,
    within_quota,
)
from control_plane.fleet.placements.pins import apply_pins_on, no_live_version
from control_plane.fleet.transport.blocking_client import EngineCalls, engine_calls
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant
from lora_engine.wire import engine_pb2 as pb

# Maximum number of prefixes of a tenant, whatever its quota: a host is sent all of them in one call.
MAX_PREFIXES = 100
# Calls to a host whose prefixes are being computed, before the reconciler checks it again.
MAX_PIN_CALLS = 3

_STATES = {
    pb.PrefixState.KEPT: PrefixState.KEPT,
    pb.PrefixState.COMPUTING: PrefixState.COMPUTING,
    pb.PrefixState.NO_ROOM: PrefixState.NO_ROOM,
    pb.PrefixState.FAILED: PrefixState.FAILED,
    pb.PrefixState.OFF: PrefixState.OFF,
}


@dataclass(frozen=True)
class HostPrefix:
    """A host of a prefix's model with its report. Field names here and below are those of the JSON."""

    host: str
    state: PrefixState
    bytes: int
    error: Mapping[str, Any] | None


@dataclass(frozen=True)
class PrefixDetails:
    name: str
    model: str
    cache_salt: str
    tokens: int
    bytes: int
    pinned_at: datetime
    hosts: list[HostPrefix]


@dataclass(frozen=True)
class PinnedAdapter:
    name: str
    bytes: int
    pinned_at: datetime


@dataclass(frozen=True)
class TenantPins:
    used_bytes: int
    limit_bytes: int | None
    adapters: list[PinnedAdapter]
    prefixes: list[PrefixDetails]


def tenant_pins(tenant: Tenant) -> TenantPins:
    """Return all pins of a tenant, and how much of its quota they take on the host where they take most."""
    prefixes = PinnedPrefix.objects.for_tenant(tenant).select_related("adapter", "tenant")
    return TenantPins(
        used_bytes=max(taken_by(tenant).values(), default=0),
        limit_bytes=tenant_limits(tenant).pinned_bytes,
        adapters=_pinned_adapters(tenant),
        prefixes=_details(tenant, prefixes),
    )


def get_prefix(tenant: Tenant, name: str) -> PinnedPrefix:
    """Return a pinned prefix. Raises NotFoundError (404)."""
    prefix = PinnedPrefix.objects.for_tenant(tenant).filter(name=name).select_related("adapter", "tenant").first()
    if prefix is None:
        raise NotFoundError(
            f'There is no pinned prefix "{name}".', "GET pins lists them.", code="prefix_not_found", param="name"
        )
    return prefix


def prefix_details(prefix: PinnedPrefix) -> PrefixDetails:
    return _details(prefix.tenant, PinnedPrefix.objects.filter(pk=prefix.pk).select_related("adapter", "tenant"))[0]


def pin_prefix(
    *, acting: Principal, name: str, model: str, prompt: Mapping[str, Any], cache_salt: str = ""
) -> PinnedPrefix:
    """Keep a prefix in the KV cache of every host of `model`: an adapter, by its live version, or a base model.

    Raises PinError (409, 400), ModelNotFoundError, ModelNotReadyError, or HostAwayError (503) if no host can count its
    tokens.
    """
    tenant = acting.tenant
    require_quota(tenant)
    prefix, version = _of_model(tenant, model)
    prefix.name, prefix.cache_salt, prefix.pinned_at = name, cache_salt, timezone.now()
    prefix.prompt = json.dumps(prompt)
    hosts = hosts_of(prefix)
    if not hosts:
        raise no_live_version(model)
    prefix.tokens = measured(prefix, version, hosts)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        _require_new(tenant, name)
        require_room(tenant, f'"{name}"', {host: _cost(prefix, host) for host in hosts})
        prefix.save()
        audit.record(acting.actor, "prefix.pin", prefix, tenant=tenant, label=name, model=model, tokens=prefix.tokens)
        _changed(tenant, hosts)
    return prefix


def unpin_prefix(*, acting: Principal, prefix: PinnedPrefix) -> None:
    """Delete a prefix with its text, and let hosts evict it. Running requests that use it are completed. Idempotent."""
    with transaction.atomic():
        if PinnedPrefix.objects.for_tenant(acting.tenant).select_for_update().filter(pk=prefix.pk).first() is None:
            return
        hosts = hosts_of(prefix)
        informed = PrefixOnHost.objects.filter(prefix=prefix).values("host")
        hosts += list(EngineHost.objects.filter(pk__in=informed, active=True))
        audit.record(acting.actor, "prefix.unpin", prefix, tenant=acting.tenant, label=prefix.name)
        prefix.delete()
        _changed(acting.tenant, hosts)


def forget_deleted() -> None:
    """Delete the prefixes of deleted adapters, with their texts."""
    for prefix in PinnedPrefix.objects.filter(adapter__deleted_at__isnull=False).select_related("tenant"):
        with transaction.atomic():
            audit.record(SYSTEM, "prefix.unpin", prefix, tenant=prefix.tenant, label=prefix.name)
            prefix.delete()
            _changed(prefix.tenant, [])


def keep(host: EngineHost, engine: EngineCalls) -> None:
    """Send a host the prefixes that are to stay, and store its report about each. Raises HostError."""
    known = PrefixOnHost.objects.filter(host=host)
    wanted = [pin for pin in within_quota(pins(host)) if isinstance(pin, PrefixPin)]
    if not wanted and not known.exists():
        return  # an engine of an earlier version does not know the call
    request = [pb.PinnedPrefix(name=str(pin.prefix.pk), prompt=_submit(pin.prefix, pin.version)) for pin in wanted]
    for _ in range(MAX_PIN_CALLS):
        reports = engine.pin_prefixes(request)
        if all(each.state != pb.PrefixState.COMPUTING for each in reports):
            break
    _record(host, {each.name: each for each in reports})


def text_of(prefix: PinnedPrefix) -> dict[str, Any]:
    """Return the pinned text: a prompt, or messages and what goes with them."""
    content: dict[str, Any] = json.loads(prefix.prompt)
    return content


def _of_model(tenant: Tenant, name: str) -> tuple[PinnedPrefix, AdapterVersion | None]:
    resolved, _canary = resolve_model(tenant, name)
    if resolved.kind == ModelKind.BASE:
        base = served_bases().named(name)
        if base is None:  # withdrawn since it was resolved
            raise no_live_version(name)
        return PinnedPrefix(tenant=tenant, base_digest=base.digest), None
    if resolved.adapter is None or name != resolved.adapter.name:
        raise PinError(
            "model_not_pinnable",
            f"A prefix is pinned for an adapter, with whichever version is live, or for a base model; {name} is "
            "neither.",
            "Send the adapter's name without a version or alias.",
            status=400,
            param="model",
        )
    return PinnedPrefix(tenant=tenant, adapter=resolved.adapter), resolved.version


def measured(prefix: PinnedPrefix, version: AdapterVersion | None, hosts: Sequence[EngineHost]) -> int:
    """Return the number of a prefix's tokens, counted by the first host that answers."""
    failure: HostError | None = None
    for host in sorted(hosts, key=lambda each: each.state != HostState.ONLINE):
        try:
            with engine_calls(endpoint_of(host.name)) as engine:
                reply = engine.tokenize(_submit(prefix, version))
        except HostError as error:
            failure = error
            continue
        if reply.HasField("error"):
            raise LorikeetError(reply.error.code, reply.error.message, reply.error.fix, param=_field_of(prefix))
        tokens = len(reply.token_ids)
        _require_length(tokens, reply.max_context, host, _field_of(prefix))
        return tokens
    assert failure is not None  # `hosts` is not empty
    raise HostAwayError(failure) from failure


def _field_of(prefix: PinnedPrefix) -> str:
    """Return the name of the request's field that has the text."""
    return "prompt" if "prompt" in text_of(prefix) else "messages"


def _require_length(tokens: int, most: int, host: EngineHost, field: str) -> None:
    if not prefix_pages(tokens, host):
        raise PinError(
            "prefix_too_short",
            f"All prompts that begin with it share {tokens} tokens, and only full pages of "
            f"{host.description.get('page_tokens', 1)} tokens are kept.",
            "Pin a longer beginning. Some chat templates write the system prompt into the last message: then prompts "
            "share nothing.",
            status=400,
            param=field,
        )
    if most and tokens >= most:
        raise PinError(
            "context_length_exceeded",
            f"The prefix has {tokens} tokens; the model's context holds {most} with what follows the prefix.",
            "Pin a shorter beginning.",
            status=400,
            param=field,
        )


def _require_new(tenant: Tenant, name: str) -> None:
    prefixes = PinnedPrefix.objects.for_tenant(tenant)
    if prefixes.filter(name=name).exists():
        raise PinError(
            "prefix_name_taken", f'There is a pinned prefix "{name}".', "Unpin that one, or choose another name."
        )
    if prefixes.count() >= MAX_PREFIXES:
        raise PinError(
            "too_many_prefixes", f"The tenant has {MAX_PREFIXES} pinned prefixes.", "Unpin one that is not used."
        )


def _cost(prefix: PinnedPrefix, host: EngineHost) -> tuple[int, int]:
    pin = PrefixPin(prefix, host, None)
    return pin.bytes, pin.pages


def _changed(tenant: Tenant, hosts: Sequence[EngineHost]) -> None:
    apply_pins_on(host.name for host in hosts)
    announce(tenant.pk, "pins.updated", dict)


def _submit(prefix: PinnedPrefix, version: AdapterVersion | None) -> pb.Submit:
    """Return the engine's request for a prompt that consists of the prefix alone."""
    content, submit = text_of(prefix), pb.Submit(is_beginning=True)
    submit.tenant, submit.cache_salt = str(prefix.tenant_id), prefix.cache_salt
    submit.adapter_digest = version.digest if version else ""
    submit.adapter_dtype = version.adapter_dtype if version else ""
    base = served_bases().for_adapters_of(version.base_digest) if version else None
    submit.base_digest = base.digest if base else prefix.base_digest
    if "prompt" in content:
        submit.text = content["prompt"]
        return submit
    chat = submit.chat
    for message in content["messages"]:
        # Chat templates know the older name of the same role.
        role = "system" if message["role"] == "developer" else message["role"]
        chat.messages.add(role=role, content=message["content"])
    for tool in content.get("tools", ()):
        function = tool["function"]
        parameters = json.dumps(function["parameters"]) if "parameters" in function else ""
        chat.tools.add(name=function["name"], description=function.get("description", ""), parameters=parameters)
    if variables := content.get("chat_template_kwargs"):
        chat.template_kwargs = json.dumps(variables)
    chat.reasoning_effort = content.get("reasoning_effort", "")
    if version is not None and version.chat_template is not None:
        chat.own_template.CopyFrom(pb.ChatTemplate(**version.chat_template))
    return submit


def _record(host: EngineHost, reports: Mapping[str, pb.PrefixState]) -> None:
    """Store a host's reports by prefix, and delete earlier ones that it no longer sends."""
    with transaction.atomic():
        known = list(PrefixOnHost.objects.filter(host=host).select_related("prefix"))
        gone = [row for row in known if str(row.prefix_id) not in reports]
        PrefixOnHost.objects.filter(pk__in=[row.pk for row in gone]).delete()
        changed = {row.prefix.tenant_id for row in gone if row.prefix is not None}
        rows = {str(row.prefix_id): row for row in known}
        for prefix in PinnedPrefix.objects.filter(pk__in=reports):
            if _note(host, prefix, rows.get(str(prefix.pk)), reports[str(prefix.pk)]):
                changed.add(prefix.tenant_id)
        for tenant in changed:
            announce(tenant, "pins.updated", dict)


def _note(host: EngineHost, prefix: PinnedPrefix, row: PrefixOnHost | None, report: pb.PrefixState) -> bool:
    """Store a host's report of one prefix. Returns whether it changed."""
    if report.tokens and report.tokens != prefix.tokens:  # by another chat template than when it was pinned
        PinnedPrefix.objects.filter(pk=prefix.pk).update(tokens=report.tokens)
    error = {"code": report.error.code, "message": report.error.message, "fix": report.error.fix}
    now: dict[str, Any] = {
        "boot_id": host.boot_id,
        "state": _STATES.get(report.state, PrefixState.FAILED),
        "tokens": report.tokens,
        "error": error if report.HasField("error") else None,
    }
    if row is not None and all(getattr(row, name) == value for name, value in now.items()):
        return False
    PrefixOnHost.objects.update_or_create(prefix=prefix, host=host, defaults=now)
    return True


def _details(tenant: Tenant, prefixes: QuerySet[PinnedPrefix]) -> list[PrefixDetails]:
    rows = list(prefixes)
    here: dict[Any, list[PrefixPin]] = {row.pk: [] for row in rows}
    rows_of_pins = pins(tenant=tenant) if rows else []
    for pin in rows_of_pins:
        if isinstance(pin, PrefixPin) and pin.prefix.pk in here:
            here[pin.prefix.pk].append(pin)
    within = {(pin.prefix.pk, pin.host.pk) for pin in within_quota(rows_of_pins) if isinstance(pin, PrefixPin)}
    reports = {(row.prefix_id, row.host_id): row for row in PrefixOnHost.objects.filter(prefix__in=rows)}
    names = {base.digest: base.name for base in served_bases()}
    return [
        PrefixDetails(
            name=row.name,
            model=row.adapter.name if row.adapter else names.get(row.base_digest, ""),
            cache_salt=row.cache_salt,
            tokens=row.tokens,
            bytes=max((pin.bytes for pin in here[row.pk]), default=0),
            pinned_at=row.pinned_at,
            hosts=[
                _host_prefix(pin, reports.get((row.pk, pin.host.pk)), within=(row.pk, pin.host.pk) in within)
                for pin in sorted(here[row.pk], key=lambda pin: pin.host.name)
            ],
        )
        for row in rows
    ]


def _host_prefix(pin: PrefixPin, row: PrefixOnHost | None, *, within: bool) -> HostPrefix:
    """Return a prefix's state on a host. Reports of an earlier engine process do not count."""
    if not within:
        return HostPrefix(pin.host.name, PrefixState.OVER_QUOTA, pin.bytes, None)
    if row is None or row.boot_id != pin.host.boot_id or pin.host.state != HostState.ONLINE:
        return HostPrefix(pin.host.name, PrefixState.WAITING, pin.bytes, None)
    return HostPrefix(pin.host.name, PrefixState(row.state), pin.bytes, row.error)


def _pinned_adapters(tenant: Tenant) -> list[PinnedAdapter]:
    rows = Adapter.objects.for_tenant(tenant).filter(pinned_at__isnull=False, archived_at=None).order_by("name")
    takes: dict[Any, int] = {}
    for pin in pins(tenant=tenant):
        if not isinstance(pin, PrefixPin):
            adapter = pin.placement.version.adapter_id
            takes[adapter] = max(takes.get(adapter, 0), pin.bytes)
    return [PinnedAdapter(row.name, takes.get(row.pk, 0), row.pinned_at) for row in rows if row.pinned_at]
