"""Actions that write host rows: boots, heartbeats, service and restarts."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from django.db import transaction
from django.utils import timezone

from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue
from control_plane.fleet.base_models.actions import adopt_first
from control_plane.fleet.base_models.base_model import Quarantine, quarantine, served_bases
from control_plane.fleet.hosts import host_adapters, host_status, service_gaps
from control_plane.fleet.hosts.models import EngineHost, HostService, HostState
from control_plane.fleet.hosts.signals import quarantined
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.identity.access.actor import SYSTEM, Actor
from control_plane.identity.audit import actions as audit
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)


def sync_hosts(endpoints: Mapping[str, HostEndpoint]) -> None:
    """Make the host rows follow the settings: new hosts appear, hosts no longer named become inactive."""
    with transaction.atomic():
        for name, endpoint in endpoints.items():
            defaults = {"address": endpoint.address, "active": True, "credential": "", "revoked_at": None}
            EngineHost.objects.update_or_create(name=name, defaults=defaults)
        named = EngineHost.objects.filter(active=True, credential="", revoked_at=None)  # the others have joined
        named.exclude(name__in=endpoints).update(active=False, state=HostState.OFFLINE)


def record_boot(name: str, description: pb.EngineDescription) -> bool:
    """Store what an engine reports about itself. Returns True for an engine process that was not known before."""
    with transaction.atomic():
        host = EngineHost.objects.select_for_update().get(name=name)
        if host.revoked_at is not None:  # revoked after the watcher's call
            return False
        is_new, before = host.boot_id != description.boot_id, quarantine(served_bases(), host.description)
        host.boot_id = description.boot_id
        host.description = host_status.description_json(description)
        host.state = HostState.ONLINE
        host.last_seen = timezone.now()
        host.save(update_fields=["boot_id", "description", "state", "last_seen"])
        adopt_first(name, description)
        _note_quarantine(host, before, is_new=is_new)
    return is_new


def _note_quarantine(host: EngineHost, before: Quarantine | None, *, is_new: bool) -> None:
    """Record that a host goes into or leaves quarantine, and remove its placements while it is in it."""
    now = quarantine(served_bases(), host.description)
    model = {name: host.description.get(name, "") for name in ("base_model", "base_digest", "text_digest")}
    if now is not None:
        quarantined.send(EngineHost, host=host)
        if is_new or before is None:
            logger.warning("host %s is in quarantine: %s %s", host.name, now.message, now.fix)
            audit.record(SYSTEM, "host.quarantine", host, tenant=None, reason=now.code, **model)
    elif before is not None:
        logger.info("host %s is out of quarantine", host.name)
        audit.record(SYSTEM, "host.release", host, tenant=None, **model)


_VERBS = {HostService.SERVING: "uncordon", HostService.CORDONED: "cordon", HostService.DRAINED: "drain"}


def set_service(*, actor: Actor, name: str, service: HostService) -> EngineHost:
    """Set whether a host takes new work. It takes effect within a second; running requests are completed.

    The engine is sent a drain, or its end, after the commit, and again at every boot.
    Raises NotFoundError (404).
    """
    with transaction.atomic():
        host = locked_host(name)
        if host.service != service:
            before, host.service = host.service, service
            host.save(update_fields=["service"])
            audit.record(actor, f"host.{_VERBS[service]}", host, tenant=None, before=before)
            enqueue("hosts.apply_service", host.name)
            enqueue("placements.reconcile")
    return host


def restart_host(*, actor: Actor, name: str, wait_s: int) -> EngineHost:
    """Have a host's engine end once its requests have, ``wait_s`` seconds from now at the latest, to be started anew.

    The engine is called after the commit, and again until it reports that it restarts. The latest call counts.
    Raises NotFoundError (404), HostSilentError (409).
    """
    with transaction.atomic():
        host = locked_host(name)
        if host.state not in (HostState.ONLINE, HostState.DRAINING):
            raise HostSilentError(name)
        host.restart_boot_id, host.restart_wait_s, host.restart_asked_at = host.boot_id, wait_s, clocks.database_time()
        host.save(update_fields=["restart_boot_id", "restart_wait_s", "restart_asked_at"])
        audit.record(actor, "host.restart", host, tenant=None, wait_s=wait_s)
        enqueue("hosts.apply_restart", host.name)
    return host


class HostSilentError(LorikeetError):
    def __init__(self, name: str) -> None:
        super().__init__(
            "host_offline",
            f'The engine host "{name}" does not answer, so its engine cannot be restarted from here.',
            "Start its engine on its machine; the engine's log shows why it ended.",
            param="host",
            status=409,
        )


def locked_host(name: str) -> EngineHost:
    """Return a host of the fleet, locked until the transaction ends. Raises NotFoundError (404)."""
    host = EngineHost.objects.select_for_update().filter(name=name, active=True).first()
    if host is None:
        raise NotFoundError(
            f'There is no engine host "{name}".',
            "GET /api/operator/hosts lists them.",
            code="host_not_found",
            param="host",
        )
    return host


def note_drained(host: EngineHost, *, drained: bool) -> None:
    """Record that the running engine process was told to drain, or to resume."""
    EngineHost.objects.filter(pk=host.pk).update(drained_boot_id=host.boot_id if drained else "")


def record_status(
    name: str,
    status: pb.HostStatus,
    adapters: Mapping[str, pb.AdapterResidency] | None = None,
    clock_ahead_s: float | None = None,
) -> None:
    """Store a heartbeat. ``adapters``, if passed, is the host's complete list and replaces the stored one.

    ``clock_ahead_s`` is how far the host's clock is ahead of the database's, if that was measured.
    """
    state = HostState.DRAINING if status.draining else HostState.ONLINE
    with transaction.atomic():
        seen = EngineHost.objects.filter(name=name, revoked_at=None)
        clock = None if clock_ahead_s is None else round(clock_ahead_s, 3)
        stored = {**host_status.status_json(status), "clock_ahead_s": clock}
        seen.update(last_status=stored, last_seen=timezone.now(), state=state)
        has_adapters = adapters is not None or not status.adapter_changes or status.adapters or status.adapters_gone
        if has_adapters and (host := seen.only("pk").first()) is not None:
            host_adapters.record(host, status, adapters)
    if status.HasField("service_gap") and status.service_gap.bound > 0:
        service_gaps.record(name, status.service_gap)


def record_offline(name: str) -> None:
    """Mark a host offline. Its last status stays, to find the cause."""
    EngineHost.objects.filter(name=name).update(state=HostState.OFFLINE)


def repeat_calls() -> None:
    """Enqueue drains and restarts for hosts that rebooted since their call, or were away at the time."""
    for host in EngineHost.objects.filter(active=True, state__in=[HostState.ONLINE, HostState.DRAINING]):
        is_drained = bool(host.boot_id) and host.drained_boot_id == host.boot_id
        if is_drained != (host.service == HostService.DRAINED):
            enqueue("hosts.apply_service", host.name)
        if host.restarts and not host.last_status.get("restarting"):
            enqueue("hosts.apply_restart", host.name)
