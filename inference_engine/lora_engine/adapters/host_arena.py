"""The host arena keeps packed adapters in host memory, within a budget of bytes, ready to copy to the device."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable

from lora_engine.errors import StageError

from .layout import PackedAdapter


class HostArena:
    """A store of at most ``capacity`` bytes of packed adapters, which evicts the least recently used first.

    An adapter that requests use is never evicted, and a pinned one after all others. Room is reserved before an adapter
    is packed, so that the budget is kept while several are loaded at once. It may be used from several threads; ``get``
    is the only call that the step thread makes. ``on_removed`` is called after an adapter was evicted or removed: the
    device may still read its memory.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.on_removed: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._adapters: OrderedDict[str, PackedAdapter] = OrderedDict()  # least recently used first
        self._reserved: dict[str, int] = {}
        self._holds: Counter[str] = Counter()
        self._pinned: frozenset[str] = frozenset()

    @property
    def used(self) -> int:
        """Number of bytes of adapters and reservations."""
        with self._changed:
            return self._used()

    def get(self, digest: str) -> PackedAdapter | None:
        """Return the adapter, if it is in the arena; counts as a use."""
        with self._changed:
            packed = self._adapters.get(digest)
            if packed is not None:
                self._adapters.move_to_end(digest)
            return packed

    def peek(self, digest: str) -> PackedAdapter | None:
        """Return the adapter, if it is in the arena; does not count as a use."""
        return self._adapters.get(digest)

    def has(self, digest: str) -> bool:
        """Return whether the adapter is in the arena; does not count as a use."""
        return digest in self._adapters

    def contents(self) -> list[PackedAdapter]:
        with self._changed:
            return list(self._adapters.values())

    def acquire(self, digest: str) -> None:
        """Keep an adapter, present or not, for a request until ``release``."""
        with self._changed:
            self._holds[digest] += 1

    def release(self, digest: str) -> int:
        """End a request's use of the adapter. Returns how many requests still use it."""
        with self._changed:
            self._holds[digest] -= 1
            left = self._holds[digest]
            if left <= 0:
                del self._holds[digest]
                self._changed.notify_all()
            return left

    def pin(self, digests: Iterable[str]) -> None:
        """Evict all other adapters before these, present or not. Replaces the previous pins."""
        with self._changed:
            self._pinned = frozenset(digests)

    def is_in_use(self, digest: str) -> bool:
        return digest in self._holds

    def reserve(self, digest: str, num_bytes: int, wait_s: float) -> None:
        """Make room for an adapter to be packed, evicting idle ones; waits up to ``wait_s`` for others to be released.

        Raises ``StageError``. Follow with ``put`` or ``cancel``.
        """
        if num_bytes > self.capacity:
            raise StageError(
                "adapter_too_large_for_host",
                f"The adapter takes {num_bytes} bytes, but the host arena has {self.capacity}.",
                "Give the engine a larger --host-arena-mb, or train with a lower rank.",
            )
        deadline = time.monotonic() + wait_s
        with self._changed:
            while (evicted := self._evict_for(num_bytes)) is None:
                if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise StageError(
                        "host_arena_full",
                        f"Requests use every adapter in the host arena of {self.capacity} bytes.",
                        "Try again when requests have ended, or give the engine a larger --host-arena-mb.",
                        passes=True,
                    )
            self._reserved[digest] = num_bytes
        if evicted:
            self.on_removed()

    def cancel(self, digest: str) -> None:
        """Release a reservation, if there is one."""
        with self._changed:
            if self._reserved.pop(digest, None) is not None:
                self._changed.notify_all()

    def put(self, packed: PackedAdapter) -> None:
        """Put an adapter into its reserved room."""
        with self._changed:
            self._reserved.pop(packed.digest, None)
            self._adapters[packed.digest] = packed
            self._adapters.move_to_end(packed.digest)

    def remove(self, digest: str) -> bool:
        """Remove an adapter; True if it was in the arena. Its memory is freed with the last reference to it."""
        with self._changed:
            removed = self._adapters.pop(digest, None) is not None
            if removed:
                self._changed.notify_all()
        if removed:
            self.on_removed()
        return removed

    def _evict_for(self, num_bytes: int) -> int | None:
        """Evict idle adapters until ``num_bytes`` fit, and return how many; None: that would not be enough."""
        excess = self._used() + num_bytes - self.capacity
        idle = [digest for digest in self._adapters if digest not in self._holds]
        if sum(self._adapters[digest].num_bytes for digest in idle) < excess:
            return None
        before = len(self._adapters)
        for digest in sorted(idle, key=self._pinned.__contains__):  # stable: the least recently used of each first
            if excess <= 0:
                break
            excess -= self._adapters.pop(digest).num_bytes
        return before - len(self._adapters)

    def _used(self) -> int:
        return sum(packed.num_bytes for packed in self._adapters.values()) + sum(self._reserved.values())
