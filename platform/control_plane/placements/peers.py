"""Hosts from which another one may read an adapter that it is about to stage."""

from __future__ import annotations

from control_plane import config
from control_plane.fleet.endpoint import HostEndpoint
from control_plane.fleet.models import EngineHost, HostState
from control_plane.placements.models import Placement
from lora_engine.wire import engine_pb2 as pb

MOST_PEERS = 2


def peers_of(placement: Placement) -> list[pb.AdapterPeer]:
    """Some that say that they have it, drawn anew each time, with a certificate for reading it. Of hosts that joined
    only, as is the one that reads: others have no certificates of the fleet.
    """
    digest, host = placement.version.digest, placement.host
    if not (config.current().stage_from_peers and host.credential):
        return []
    having = EngineHost.objects.filter(active=True, revoked_at=None, state__in=[HostState.ONLINE, HostState.DRAINING])
    having = having.exclude(pk=host.pk).exclude(credential="").filter(adapters__digest=digest)
    found = having.order_by("?").values_list("name", "address", "credential")[:MOST_PEERS]
    return [HostEndpoint(name, address, credential=credential).reading(digest) for name, address, credential in found]
