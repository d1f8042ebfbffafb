"""The eviction order when pages run out: one queue over idle adapters and cached prefixes.

It follows GreedyDual-Size-Frequency (Cherkasova 1998): an entry's priority is the queue's age plus its uses times the
cost to restore one of its pages. An eviction raises the age to the evicted entry's priority, so that the weight of old
uses decreases over time.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass


@dataclass(slots=True)
class RestoreCosts:
    """The costs in seconds to restore a page, which the engine updates from measurements."""

    adapter_page: float = 50e-6  # copy from host memory
    prefix_page: float = 400e-6  # recomputation


class Evictable:
    """An owner of pages whose contents can be restored."""

    __slots__ = ("priority", "ticket", "uses")

    def __init__(self) -> None:
        self.uses = 1
        self.priority = 0.0
        self.ticket = 0  # ticket of the newest entry in the queue; 0 while it is in use


class EvictionQueue:
    """A queue of idle entries, the cheapest to restore first.

    Call ``offer`` when an entry becomes idle, and ``withdraw`` when it is used again.
    """

    def __init__(self) -> None:
        self.age = 0.0
        self._heap: list[tuple[float, int, Evictable]] = []
        self._tickets = itertools.count(1)
        self._idle = 0

    def __len__(self) -> int:
        return self._idle

    def offer(self, entry: Evictable, restore_cost: float) -> None:
        """Add an idle entry; ``restore_cost`` is in seconds per page."""
        if entry.ticket:
            return
        entry.priority = self.age + entry.uses * restore_cost
        entry.ticket = next(self._tickets)
        self._idle += 1
        heapq.heappush(self._heap, (entry.priority, entry.ticket, entry))

    def withdraw(self, entry: Evictable) -> None:
        if entry.ticket:
            entry.ticket = 0
            self._idle -= 1
            self._drop_stale()

    def pop(self) -> Evictable | None:
        """Remove and return the entry to evict; None if everything is in use."""
        while self._heap:
            priority, ticket, entry = heapq.heappop(self._heap)
            if entry.ticket == ticket:
                entry.ticket = 0
                self._idle -= 1
                self.age = priority
                return entry
        return None

    def _drop_stale(self) -> None:
        if len(self._heap) > 2 * self._idle + 64:
            self._heap = [item for item in self._heap if item[2].ticket == item[1]]
            heapq.heapify(self._heap)
