"""Hosts from which another one may read an adapter that it is about to stage."""

from __future__ import annotations

from django.db.models import Case, F, When
from django.db.models.expressions import OrderBy

from control_plane.core import config
from control_plane.fleet.hosts.models import EngineHost, HostState
from control_plane.fleet.placements.models import Placement
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb

MOST_PEERS = 3


def peers_of(placement: Placement) -> list[pb.AdapterPeer]:
    """The nearest that say that they have it, each with a certificate for reading it, in the order to ask in: those
    of the host's own zone first, then those that fewest read from, then drawn. Of hosts that joined only, as is the
    one that reads: others have no certificates of the fleet.
    """
    digest, host = placement.version.digest, placement.host
    if not (config.current().stage_from_peers and host.credential):
        return []
    having = EngineHost.objects.filter(active=True, revoked_at=None, state__in=[HostState.ONLINE, HostState.DRAINING])
    having = having.exclude(pk=host.pk).exclude(credential="").filter(adapters__digest=digest)
    found = having.order_by(*_nearest(host)).values_list("name", "address", "credential")[:MOST_PEERS]
    return [HostEndpoint(name, address, credential=credential).reading(digest) for name, address, credential in found]


def _nearest(host: EngineHost) -> list[Case | OrderBy | str]:
    zone = host.description.get("zone", "")
    same = [Case(When(description__zone=zone, then=0), default=1)] if zone else []
    return [*same, F("last_status__adapter_readers").asc(nulls_first=True), "?"]
