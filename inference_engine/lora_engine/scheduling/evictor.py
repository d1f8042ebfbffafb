"""One eviction decision over everything idle in the pool."""

from __future__ import annotations

from lora_engine.adapters.device_tier import AdapterSlot, DeviceTier
from lora_engine.memory import Evictable, EvictionQueue, PageAllocator, PrefixCache, PrefixNode


class Evictor:
    """Frees pages from idle adapters and cached prefixes, cheapest to lose first."""

    def __init__(
        self, allocator: PageAllocator, queue: EvictionQueue, device_tier: DeviceTier, prefixes: PrefixCache
    ) -> None:
        self._allocator = allocator
        self._queue = queue
        self._device_tier = device_tier
        self._prefixes = prefixes

    def free_up(self, pages_wanted: int, *, pins_too: bool = False) -> bool:
        """Evict until ``pages_wanted`` are free. True if they are; nothing is evicted if they never would be.

        ``pins_too``: where all else is not enough, what is pinned gives way.
        """
        lacking = pages_wanted - self._allocator.free - self.idle_pages
        pinned = self._device_tier.pinned_idle_pages + self._prefixes.pinned_idle_pages
        if lacking > (pinned if pins_too else 0):
            return False
        if lacking > 0:
            self._unpin(lacking)
        arriving: list[AdapterSlot] = []
        while self._allocator.free < pages_wanted and (entry := self._queue.pop()) is not None:
            self._evict(entry, arriving)
        for slot in arriving:
            self._device_tier.offer(slot)
        return self._allocator.free >= pages_wanted

    @property
    def idle_pages(self) -> int:
        """Pages that could be freed: of adapters and prefixes that nobody uses and nobody pinned."""
        prefixes = self._allocator.stats().cached_prefix - self._prefixes.pinned_idle_pages
        return self._device_tier.idle_pages + prefixes

    def _unpin(self, lacking: int) -> None:
        """Adapters first: a copy brings them back, where a prefix has to be computed."""
        wanted = self.idle_pages + lacking
        self._device_tier.unpin_idle(lacking)
        if (lacking := wanted - self.idle_pages) > 0:
            self._prefixes.unpin_idle(lacking)

    def _evict(self, entry: Evictable, arriving: list[AdapterSlot]) -> None:
        if isinstance(entry, PrefixNode):
            self._prefixes.evict(entry)
        elif isinstance(entry, AdapterSlot):
            if self._device_tier.ready(entry):
                self._device_tier.drop(entry)
            else:
                arriving.append(entry)  # it was just asked for: keep it
