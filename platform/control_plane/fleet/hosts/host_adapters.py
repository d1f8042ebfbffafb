"""Rows for the adapters that a host has: it may have ten thousand, of which a heartbeat changes a few."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from control_plane.fleet.hosts.models import EngineHost, HostAdapter
from lora_engine.wire import engine_pb2 as pb

_VALUES = ("tier", "running", "bytes", "rank", "experts_resident", "experts_total")
# Rows per statement, below SQLite's limit of parameters.
_BATCH = 1000


def record(host: EngineHost, status: pb.HostStatus, whole: Mapping[str, pb.AdapterResidency] | None = None) -> None:
    """Store the adapters of a heartbeat.

    With ``whole``, or where the heartbeat lists all adapters, the rows are compared with that list first: they may come
    from another stream of heartbeats.
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
        rows, _BATCH, update_conflicts=True, unique_fields=("host", "digest"), update_fields=_VALUES
    )
    if whole is not None:
        EngineHost.objects.filter(pk=host.pk).update(adapters_boot_id=status.boot_id)
    for start in range(0, len(gone), _BATCH):
        host.adapters.filter(digest__in=gone[start : start + _BATCH]).delete()


def _values(adapter: pb.AdapterResidency) -> dict[str, str | int]:
    tier = pb.AdapterResidency.Tier.Name(adapter.tier).lower()
    return {name: tier if name == "tier" else getattr(adapter, name) for name in _VALUES}
