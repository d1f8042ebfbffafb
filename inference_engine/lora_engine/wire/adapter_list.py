"""The adapters of a host over a stream of heartbeats: all of them once, then what changed.

A host may hold ten thousand, of which in a second few change. Both sides add up a checksum of the whole list, so that a
receiver finds out if its list is another one, and asks for a new stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from lora_engine.wire import engine_pb2 as pb

MOST_ADAPTERS = 200_000
"""Of one host, that its heartbeats may lead to."""
_MASK = (1 << 64) - 1


class AdapterListError(Exception):
    """What changed does not lead to the list that the host has."""


class _Sum:
    """Of entries in any order."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self.value = 0

    def set(self, digest: str, entry: bytes) -> None:
        own = int.from_bytes(hashlib.blake2b(entry, digest_size=8).digest())
        self.value = (self.value - self._hashes.get(digest, 0) + own) & _MASK
        self._hashes[digest] = own

    def remove(self, digest: str) -> None:
        self.value = (self.value - self._hashes.pop(digest, 0)) & _MASK


class Heartbeat:
    """A host's state at a moment, for any number of streams."""

    def __init__(self, status: pb.HostStatus, adapters: Iterable[pb.AdapterResidency]) -> None:
        """``status`` has no adapters."""
        self.status = status
        self.entries = {adapter.digest: adapter.SerializeToString(deterministic=True) for adapter in adapters}


class AdapterChanges:
    """What one stream of heartbeats was told."""

    def __init__(self) -> None:
        self._told: dict[str, bytes] | None = None
        self._sum = _Sum()

    def message(self, heartbeat: Heartbeat) -> pb.HostStatus:
        """What to send: of the adapters those that the receiver does not know, the first time all of them."""
        now, told = heartbeat.entries, self._told or {}
        changed = [digest for digest, entry in now.items() if told.get(digest) != entry]
        gone = [digest for digest in told if digest not in now]
        for digest in changed:
            self._sum.set(digest, now[digest])
        for digest in gone:
            self._sum.remove(digest)
        status = pb.HostStatus()
        status.CopyFrom(heartbeat.status)
        status.adapters.extend(map(pb.AdapterResidency.FromString, map(now.__getitem__, changed)))
        status.adapters_gone.extend(gone)
        status.adapter_changes = self._told is not None
        status.adapters_sum = self._sum.value
        self._told = now
        return status


class AdapterList:
    """What the heartbeats of one stream said."""

    def __init__(self) -> None:
        self._adapters: dict[str, pb.AdapterResidency] = {}
        self._sum = _Sum()

    @property
    def by_digest(self) -> Mapping[str, pb.AdapterResidency]:
        """The list itself, which the next change changes."""
        return self._adapters

    def observe(self, status: pb.HostStatus) -> bool:
        """Whether a heartbeat changed it. Raises AdapterListError."""
        if status.load_only:
            return False
        if not status.adapter_changes:
            self._adapters, self._sum = {}, _Sum()
        if len(self._adapters) + len(status.adapters) > MOST_ADAPTERS:
            raise AdapterListError(f"{status.boot_id} says that it has more than {MOST_ADAPTERS} adapters.")
        for adapter in status.adapters:
            self._adapters[adapter.digest] = adapter
            if status.adapters_sum:  # of a host that never sends changes, nothing is to be added up
                self._sum.set(adapter.digest, adapter.SerializeToString(deterministic=True))
        for digest in status.adapters_gone:
            self._adapters.pop(digest, None)
            self._sum.remove(digest)
        if status.adapter_changes and status.adapters_sum != self._sum.value:
            raise AdapterListError(f"The adapters of {status.boot_id} are others than its heartbeats lead to.")
        return not status.adapter_changes or bool(status.adapters or status.adapters_gone)
