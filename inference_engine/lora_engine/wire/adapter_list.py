"""The list of a host's adapters in a stream of heartbeats: the whole list once, then changes.

A host may have ten thousand adapters, few of which change in a second. Both sides maintain a checksum of the whole
list, so that a receiver detects a difference and opens a new stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from lora_engine.wire import engine_pb2 as pb

# Maximum number of adapters that a receiver stores for one host.
MAX_ADAPTERS = 200_000
_MASK = (1 << 64) - 1


class AdapterListError(Exception):
    """The error when the received changes do not result in the host's list."""


class _Sum:
    """An order-independent checksum of entries."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] = {}
        self.value = 0

    def set(self, digest: str, entry: bytes) -> None:
        entry_hash = int.from_bytes(hashlib.blake2b(entry, digest_size=8).digest())
        self.value = (self.value - self._hashes.get(digest, 0) + entry_hash) & _MASK
        self._hashes[digest] = entry_hash

    def remove(self, digest: str) -> None:
        self.value = (self.value - self._hashes.pop(digest, 0)) & _MASK


class Heartbeat:
    """A snapshot of a host's state, for any number of streams."""

    def __init__(self, status: pb.HostStatus, adapters: Iterable[pb.AdapterResidency]) -> None:
        """Create a snapshot of ``status``, which has no adapters, and ``adapters``."""
        self.status = status
        self.entries = {adapter.digest: adapter.SerializeToString(deterministic=True) for adapter in adapters}


class AdapterChanges:
    """The sender's side of a stream of heartbeats: the list that was sent so far."""

    def __init__(self) -> None:
        self._sent: dict[str, bytes] | None = None
        self._sum = _Sum()

    def message(self, heartbeat: Heartbeat) -> pb.HostStatus:
        """Return the status to send, with the adapters that changed since the last message, at first all of them."""
        now, sent = heartbeat.entries, self._sent or {}
        changed = [digest for digest, entry in now.items() if sent.get(digest) != entry]
        gone = [digest for digest in sent if digest not in now]
        for digest in changed:
            self._sum.set(digest, now[digest])
        for digest in gone:
            self._sum.remove(digest)
        status = pb.HostStatus()
        status.CopyFrom(heartbeat.status)
        status.adapters.extend(map(pb.AdapterResidency.FromString, map(now.__getitem__, changed)))
        status.adapters_gone.extend(gone)
        status.adapter_changes = self._sent is not None
        status.adapters_sum = self._sum.value
        self._sent = now
        return status


class AdapterList:
    """The receiver's side of a stream of heartbeats: the list received so far."""

    def __init__(self) -> None:
        self._adapters: dict[str, pb.AdapterResidency] = {}
        self._sum = _Sum()

    @property
    def by_digest(self) -> Mapping[str, pb.AdapterResidency]:
        """The list, which later heartbeats modify in place."""
        return self._adapters

    def observe(self, status: pb.HostStatus) -> bool:
        """Apply a heartbeat and return whether it changed the list. Raises ``AdapterListError``."""
        if status.load_only:
            return False
        if not status.adapter_changes:
            self._adapters, self._sum = {}, _Sum()
        if len(self._adapters) + len(status.adapters) > MAX_ADAPTERS:
            raise AdapterListError(f"{status.boot_id} reports more than {MAX_ADAPTERS} adapters.")
        for adapter in status.adapters:
            self._adapters[adapter.digest] = adapter
            if status.adapters_sum:  # a host that never sends changes has no checksum
                self._sum.set(adapter.digest, adapter.SerializeToString(deterministic=True))
        for digest in status.adapters_gone:
            self._adapters.pop(digest, None)
            self._sum.remove(digest)
        if status.adapter_changes and status.adapters_sum != self._sum.value:
            raise AdapterListError(f"The checksum of {status.boot_id} does not match its adapters in the heartbeats.")
        return not status.adapter_changes or bool(status.adapters or status.adapters_gone)
