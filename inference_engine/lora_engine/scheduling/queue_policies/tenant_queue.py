"""The waiting sequences of one tenant are ordered by priority, then resumption, deadline, adapter and age.

Sequences that another host began go before new ones, since their clients are already reading. Sequences whose adapter
is on the device go before others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice

from lora_engine.scheduling.sequence import Sequence

# Negated priority; True if it has not begun on another host; time at which the first token is due; arrival.
Rank = tuple[int, bool, float, int]

# Seconds to its deadline within which no sequence is passed by one whose adapter is on the device.
_URGENT_S = 1.0
# Adapters that are searched for one on the device.
_WINDOW = 32


def rank_of(sequence: Sequence) -> Rank:
    return -sequence.request.slo.priority, not sequence.request.so_far, sequence.due, sequence.arrival


class AdapterQueue:
    """A tenant's waiting sequences that use the same adapter, by rank."""

    __slots__ = ("digest", "ranked")

    def __init__(self, digest: str) -> None:
        self.digest = digest
        self.ranked: list[tuple[Rank, Sequence]] = []

    @property
    def head(self) -> Sequence:
        return self.ranked[0][1]


class TenantQueue:
    """A tenant's queue: adapters by the rank of their first sequence. No sequence is passed for longer than
    ``starvation_s``.
    """

    def __init__(self, on_device: Callable[[str], bool], clock: Callable[[], float], starvation_s: float) -> None:
        self.prompt_tokens = 0
        self.output_tokens = 0  # upper bound over all waiting sequences
        self._on_device = on_device
        self._clock = clock
        self._starvation_s = starvation_s
        self._adapters: dict[str, AdapterQueue] = {}
        self._heads: list[tuple[Rank, AdapterQueue]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, sequence: Sequence) -> None:
        digest = sequence.request.adapter_digest
        queue = self._adapters.get(digest)
        if queue is None:
            queue = self._adapters[digest] = AdapterQueue(digest)
        else:
            self._unlist(queue)
        insort(queue.ranked, (rank_of(sequence), sequence))
        self._list(queue)
        self._count(sequence, 1)

    def remove(self, sequence: Sequence) -> None:
        queue = self._adapters[sequence.request.adapter_digest]
        self._unlist(queue)
        del queue.ranked[bisect_left(queue.ranked, (rank_of(sequence),))]
        if queue.ranked:
            self._list(queue)
        else:
            del self._adapters[queue.digest]
        self._count(sequence, -1)

    def first(self) -> Sequence:
        """Return the sequence of the best rank, regardless of where its adapter is."""
        return self._heads[0][1].head

    def heads(self, count: int) -> list[Sequence]:
        """Return the first sequence of each of the first ``count`` adapters."""
        return [queue.head for _, queue in islice(self._heads, count)]

    def candidates(self) -> Iterator[Sequence]:
        """Yield the first sequence of each adapter, the best choice first. The queue must not change meanwhile."""
        front = self.first()
        best = self._best(front)
        if best is not front and front.passed_since is None:
            front.passed_since = self._clock()
        yield best
        yield from [s for s in self.heads(_WINDOW) if s is not best]

    def may_be_passed(self, sequence: Sequence) -> bool:
        """Return whether others may still pass a sequence that does not fit; the time runs from the first call."""
        if sequence.passed_since is None:
            sequence.passed_since = self._clock()
        return self._clock() - sequence.passed_since < self._starvation_s

    def _best(self, front: Sequence) -> Sequence:
        """Return the first sequence whose adapter is on the device, unless the front is urgent or was passed for too
        long.
        """
        now = self._clock()
        digest = front.request.adapter_digest
        if not digest or self._on_device(digest) or front.due - now < _URGENT_S or front.request.so_far:
            return front
        if front.passed_since is not None and now - front.passed_since >= self._starvation_s:
            return front
        for (priority, *_), queue in islice(self._heads, 1, _WINDOW):
            if priority != -front.request.slo.priority:
                break
            if not queue.digest or self._on_device(queue.digest):
                return queue.head
        return front

    def _list(self, queue: AdapterQueue) -> None:
        insort(self._heads, (queue.ranked[0][0], queue))

    def _unlist(self, queue: AdapterQueue) -> None:
        del self._heads[bisect_left(self._heads, (queue.ranked[0][0],))]

    def _count(self, sequence: Sequence, sign: int) -> None:
        self._size += sign
        self.prompt_tokens += sign * len(sequence.token_ids)
        self.output_tokens += sign * (sequence.max_tokens - sequence.num_output)
