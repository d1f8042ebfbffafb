"""Celery tasks that have an engine drain, resume or restart."""

import logging

from celery import shared_task

from control_plane.core.jobs import clocks
from control_plane.fleet.hosts.actions import note_drained
from control_plane.fleet.hosts.models import EngineHost, HostService
from control_plane.fleet.transport.blocking_client import engine_calls
from control_plane.fleet.transport.endpoint import endpoint_of
from control_plane.fleet.transport.errors import HostError

logger = logging.getLogger(__name__)


@shared_task(name="hosts.apply_service")
def apply_service(host_name: str) -> None:
    """Have the engine drain, or resume, as operators want it. The reconciler repeats it if the host is away."""
    host = EngineHost.objects.get(name=host_name)
    drain = host.service == HostService.DRAINED
    if not drain and host.drained_boot_id != host.boot_id:
        return  # this engine process was not told to drain; one that is stopping drains by itself
    try:
        with engine_calls(endpoint_of(host.name)) as engine:
            engine.drain(undo=not drain)
    except HostError as failure:
        action = "drain" if drain else "resume"
        logger.warning("Host %s could not be told to %s; the reconciler tries again: %s", host.name, action, failure)
        return
    note_drained(host, drained=drain)


@shared_task(name="hosts.apply_restart")
def apply_restart(host_name: str) -> None:
    """Have an engine end, if an operator still waits for its restart. The reconciler repeats it."""
    host = EngineHost.objects.get(name=host_name)
    if not host.restarts or host.restart_asked_at is None:
        return
    waited_s = max(0.0, (clocks.database_time() - host.restart_asked_at).total_seconds())
    try:
        with engine_calls(endpoint_of(host.name)) as engine:
            engine.restart(host.restart_boot_id, max(0.0, host.restart_wait_s - waited_s))
    except HostError as failure:
        logger.warning("Host %s could not be told to restart; the reconciler tries again: %s", host.name, failure)
