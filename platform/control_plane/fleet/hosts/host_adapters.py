"""Which adapters a host has, in rows: a host may have ten thousand, and in two seconds a few of them change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from control_plane.fleet.hosts.models import EngineHost, HostAdapter
from lora_engine.wire import engine_pb2 as pb

_VALUES = ("tier", "running", "bytes", "rank")
_AT_ONCE = 1000


def record(host: EngineHost, status: pb.HostStatus, whole: Mapping[str, pb.AdapterResidency] | None = None) -> None:
    """Store what a heartbeat says of them. With ``whole``, or where the heartbeat lists all of them, rows are compared
    with these first: what is there may be of another stream of heartbeats.
    """
    if whole is None and not status.adapter_changes:
        whole = {adapter.digest: adapter for adapter in status.adapters}
    if whole is None:
        changed: Iterable[pb.AdapterResidency] = status.adapters
        gone = [*status.adapters_gone]
    else:
        known = {digest: values for digest, *values in host.adapters.values_list("digest", *_VALUES)}
        changed = [adapter for adapter in whole.values() if known.get(adapter.digest) != [*_values(adapter).values()]]
        gone = [digest for digest in known if digest not in whole]
    rows = [HostAdapter(host=host, digest=adapter.digest, **_values(adapter)) for adapter in changed]
    HostAdapter.objects.bulk_create(
        rows, _AT_ONCE, update_conflicts=True, unique_fields=("host", "digest"), update_fields=_VALUES
    )
    if whole is not None:
        EngineHost.objects.filter(pk=host.pk).update(adapters_boot_id=status.boot_id)
    for start in range(0, len(gone), _AT_ONCE):
        host.adapters.filter(digest__in=gone[start : start + _AT_ONCE]).delete()


def _values(adapter: pb.AdapterResidency) -> dict[str, str | int]:
    tier = pb.AdapterResidency.Tier.Name(adapter.tier).lower()
    return dict(zip(_VALUES, (tier, adapter.running, adapter.bytes, adapter.rank), strict=True))
