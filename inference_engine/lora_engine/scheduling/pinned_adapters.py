"""Adapters that stay on the device without a request, so that nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lora_engine.adapters.device_tier import DeviceTier
from lora_engine.adapters.source import AdapterSource

from .evictor import Evictor

# Of the pool, for all pins together: the rest is for requests and for everybody else's adapters.
PINNED_SHARE = 4
# Between two looks for what is missing while requests run.
_LOOK_EVERY_S = 0.1


class PinnedAdapters:
    """Brings pinned adapters to the device and keeps them there, as far as a quarter of the pool goes.

    They are kept in the order in which they are wished for: one that does not fit beside those before it is treated
    like any other adapter. Where a request that runs alone needs their pages, they give way and come back later.
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
        self._look_at = 0.0

    def set(self, digests: Sequence[str]) -> None:
        """These and no others; ``bring`` acts on it."""
        self._wanted = tuple(dict.fromkeys(digests))
        self._look_at = 0.0
        for slot in self._device_tier.slots():
            if slot.pinned and slot.digest not in self._wanted:
                self._device_tier.unpin(slot)

    def forget(self, digest: str) -> None:
        """Nobody wants it here any more."""
        if digest in self._wanted:
            self.set([each for each in self._wanted if each != digest])

    @property
    def pages_left(self) -> int:
        """Of a quarter of the pool, beside those that are on the device and stay there."""
        slots = (self._device_tier.get(digest) for digest in self._wanted)
        return self.most_pages - sum(len(slot.pages) for slot in slots if slot and slot.pinned)

    def kept(self) -> list[str]:
        """Those that are on the device and stay there."""
        return [digest for digest in self._wanted if (slot := self._device_tier.get(digest)) and slot.pinned]

    def due(self) -> bool:
        """Whether it is time to look for what is missing."""
        return bool(self._wanted) and self._clock() >= self._look_at

    def bring(self, pages_for_others: int) -> bool:
        """Begin to copy the next one that is missing, if so many pages stay free besides. Whether one was begun."""
        self._look_at = self._clock() + _LOOK_EVERY_S
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
        """Pages that it takes; None while it is in no memory. What is on disk is asked for."""
        if slot := self._device_tier.get(digest):
            return len(slot.pages)
        if packed := self._source.get(digest):
            return packed.num_pages
        if self._source.knows(digest) and self._source.load_error(digest) is None:
            self._source.request_load(digest)
        return None

    def _keep(self, digest: str, pages_for_others: int, *, may_copy: bool) -> bool:
        """Pin it where it is, or begin to copy it. Whether that was begun."""
        slot = self._device_tier.get(digest)
        if slot is not None:
            self._device_tier.pin(slot)
            return False
        packed = self._source.get(digest)
        if packed is None or not may_copy or not self._device_tier.has_table_row:
            return False
        if not self._evictor.free_up(packed.num_pages + pages_for_others):
            return False
        self._device_tier.pin(self._device_tier.load(packed))
        return True
