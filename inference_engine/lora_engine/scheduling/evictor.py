"""Eviction is one decision over everything idle in the pool."""

from __future__ import annotations

from lora_engine.adapters.device_tier import AdapterSlot, DeviceTier
from lora_engine.adapters.expert_policy import ExpertFramesOf
from lora_engine.memory import Evictable, EvictionQueue, PageAllocator, PrefixCache, PrefixNode, StateSnapshot


class Evictor:
    """An evictor that frees pages of idle adapters, of experts that running ones can do without, and of cached
    prefixes, those that cost least to restore first.
    """

    def __init__(
        self, allocator: PageAllocator, queue: EvictionQueue, device_tier: DeviceTier, prefixes: PrefixCache
    ) -> None:
        self._allocator = allocator
        self._queue = queue
        self._device_tier = device_tier
        self._prefixes = prefixes

    def free_up(self, pages_wanted: int, *, pins_too: bool = False) -> bool:
        """Evict until ``pages_wanted`` are free and return True. Evicts nothing and returns False if that is
        impossible.

        ``pins_too``: evict pinned entries where all others are not enough.
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
        """Number of pages that could be freed: of adapters and prefixes that are neither in use nor pinned, and of
        experts of adapters in use.
        """
        cached, kept = (
            self._allocator.stats().cached_prefix,
            self._prefixes.pinned_idle_pages + self._prefixes.reserved_pages,
        )
        prefixes = cached - kept
        return self._device_tier.idle_pages + self._device_tier.evictable_pages + prefixes

    def _unpin(self, lacking: int) -> None:
        """Unpin idle adapters, then prefixes: a copy restores an adapter, while a prefix has to be computed."""
        wanted = self.idle_pages + lacking
        self._device_tier.unpin_idle(lacking)
        if (lacking := wanted - self.idle_pages) > 0:
            self._prefixes.unpin_idle(lacking)

    def _evict(self, entry: Evictable, arriving: list[AdapterSlot]) -> None:
        if isinstance(entry, PrefixNode):
            self._prefixes.evict(entry)
        elif isinstance(entry, StateSnapshot):
            self._prefixes.evict_snapshot(entry)
        elif isinstance(entry, ExpertFramesOf):
            self._device_tier.evict_experts(entry)
        elif isinstance(entry, AdapterSlot):
            if self._device_tier.ready(entry):
                self._device_tier.drop(entry)
            else:
                arriving.append(entry)  # its copy is still running: keep it
