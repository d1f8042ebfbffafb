"""Peers: hosts from which another host may read an adapter that it is about to stage."""

from __future__ import annotations

from django.db.models import Case, F, When
from django.db.models.expressions import OrderBy

from control_plane.core import config
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb

# Maximum number of peers that a host is offered for one adapter.
MAX_PEERS = 3


def peers_of(placement: Placement) -> list[pb.AdapterPeer]:
    """Return hosts that report the adapter, each with a certificate for reading it, in the order to try.

    Hosts of the same zone come first, then those with the fewest readers, then at random. Both sides must have joined:
    hosts of the settings have no certificates of the fleet.
    """
    digest, host = placement.version.digest, placement.host
    if not (config.current().stage_from_peers and host.credential):
        return []
    having = EngineHost.objects.filter(active=True, revoked_at=None, state__in=[HostState.ONLINE, HostState.DRAINING])
    having = having.exclude(pk=host.pk).exclude(credential="").filter(adapters__digest=digest)
    rows = having.order_by(*_nearest(host)).values_list("name", "address", "credential")[:MAX_PEERS]
    return [HostEndpoint(name, address, credential=credential).reading(digest) for name, address, credential in rows]


def _nearest(host: EngineHost) -> list[Case | OrderBy | str]:
    zone = host.description.get("zone", "")
    same = [Case(When(description__zone=zone, then=0), default=1)] if zone else []
    return [*same, F("last_status__adapter_readers").asc(nulls_first=True), "?"]
