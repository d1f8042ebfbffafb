"""Live events of heartbeats, for open consoles: each tenant gets its view of a host."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from control_plane.console.live.presence import present_tenants
from control_plane.core.events.publisher import publish
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.hosts.api.queries import host_for
from control_plane.fleet.hosts.models import EngineHost
from control_plane.identity.tenants.models import Tenant


def publish_host_status(*, name: str, **_: Any) -> None:
    """Publish a host's status to each tenant with an open console, at a query per tenant."""
    try:
        watching = present_tenants()
    except (RedisError, OSError):
        return  # the events would not arrive either
    if not watching:
        return
    host, bases = EngineHost.objects.get(name=name), served_bases()
    for tenant in Tenant.objects.filter(pk__in=watching):
        publish(tenant.pk, "host.status", host_for(tenant, host, bases))
