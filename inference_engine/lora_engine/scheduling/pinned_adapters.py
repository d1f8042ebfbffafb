"""Pinned adapters stay on the device without a request, so that requests for them start without a load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lora_engine.adapters.device_tier import DeviceTier
from lora_engine.adapters.source import AdapterSource

from .evictor import Evictor

# All pins together may use one of this many parts of the pool; the rest is for requests and other adapters.
PINNED_SHARE = 4
# Seconds between two checks for missing adapters while requests run.
_CHECK_EVERY_S = 0.1


class PinnedAdapters:
    """The adapters to copy to the device and keep there, within a quarter of the pool.

    They are kept in the order of the list: an adapter that does not fit beside those before it is treated like any
    other. If a request that runs alone needs their pages, they are evicted and copied again later.
    """

    def __init__(
        self,
        device_tier: DeviceTier,
        evictor: Evictor,
        source: AdapterSource,
        pool_pages: int,
        clock: Callable[[], float],
    ) -> None:
        self.most_pages = pool_pages // PINNED_SHARE
        self._device_tier = device_tier
        self._evictor = evictor
        self._source = source
        self._clock = clock
        self._wanted: tuple[str, ...] = ()
        self._check_at = 0.0

    def set(self, digests: Sequence[str]) -> None:
        """Pin these adapters and no others; ``bring`` copies them."""
        self._wanted = tuple(dict.fromkeys(digests))
        self._check_at = 0.0
        for slot in self._device_tier.slots():
            if slot.pinned and slot.digest not in self._wanted:
                self._device_tier.unpin(slot)

    def forget(self, digest: str) -> None:
        """Unpin an adapter that is dropped from this host."""
        if digest in self._wanted:
            self.set([each for each in self._wanted if each != digest])

    @property
    def pages_left(self) -> int:
        """Number of pages of the quarter that pinned adapters on the device leave."""
        slots = (self._device_tier.get(digest) for digest in self._wanted)
        return self.most_pages - sum(len(slot.pages) for slot in slots if slot and slot.pinned)

    def kept(self) -> list[str]:
        """Return the pinned adapters that are on the device."""
        return [digest for digest in self._wanted if (slot := self._device_tier.get(digest)) and slot.pinned]

    def due(self) -> bool:
        """Return whether it is time to check for missing adapters."""
        return bool(self._wanted) and self._clock() >= self._check_at

    def bring(self, pages_for_others: int) -> bool:
        """Begin to copy the next missing adapter, if ``pages_for_others`` stay free; returns whether a copy
        was begun.
        """
        self._check_at = self._clock() + _CHECK_EVERY_S
        room, begun = self.most_pages, False
        for digest in self._wanted:
            pages = self._pages(digest)
            if pages is None:
                continue
            if pages > room:
                if slot := self._device_tier.get(digest):
                    self._device_tier.unpin(slot)
                continue
            room -= pages
            begun = self._keep(digest, pages_for_others, may_copy=not begun) or begun
        return begun

    def _pages(self, digest: str) -> int | None:
        """Return the adapter's pages, or None while it is not in memory. Requests its load from disk."""
        if slot := self._device_tier.get(digest):
            return len(slot.pages)
        if packed := self._source.get(digest):
            return self._device_tier.pages_wanted(packed)
        if self._source.knows(digest) and self._source.load_error(digest) is None:
            self._source.request_load(digest)
        return None

    def _keep(self, digest: str, pages_for_others: int, *, may_copy: bool) -> bool:
        """Pin the adapter where it is, or begin to copy it; returns whether a copy was begun."""
        slot = self._device_tier.get(digest)
        if slot is not None:
            self._device_tier.pin(slot)
            return False
        packed = self._source.get(digest)
        if packed is None or not may_copy or not self._device_tier.has_table_row:
            return False
        if not self._evictor.free_up(self._device_tier.pages_wanted(packed) + pages_for_others):
            return False
        self._device_tier.pin(self._device_tier.load(packed, spare=pages_for_others))
        return True
