"""S-LoRA's adapter clustering keeps the adapters of a batch few (Sheng et al., MLSys 2024, appendix A.2)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from lora_engine.scheduling.sequence import Chunk, Sequence

from .base import PolicyContext, queue_policies
from .fcfs import StarvationGuarded


class AdapterPolicy(StarvationGuarded):
    """A queue that also indexes waiting sequences by adapter, oldest first, and counts running ones by adapter."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self.waiting: dict[str, list[tuple[int, Sequence]]] = {}
        self.running: Counter[str] = Counter()
        self._counted: set[Sequence] = set()

    def push(self, sequence: Sequence) -> None:
        super().push(sequence)
        insort(self.waiting.setdefault(sequence.request.adapter_digest, []), (sequence.arrival, sequence))

    def remove(self, sequence: Sequence) -> None:
        super().remove(sequence)
        digest = sequence.request.adapter_digest
        queue = self.waiting[digest]
        del queue[bisect_left(queue, (sequence.arrival,))]
        if not queue:
            del self.waiting[digest]

    def served(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            if chunk.sequence not in self._counted:
                self._counted.add(chunk.sequence)
                self.running[chunk.sequence.request.adapter_digest] += 1

    def left(self, sequence: Sequence) -> None:
        self._counted.discard(sequence)
        digest = sequence.request.adapter_digest
        self.running[digest] -= 1
        if not self.running[digest]:
            del self.running[digest]

    def oldest_of(self, digests: Iterable[str]) -> Iterator[Sequence]:
        """Return the waiting sequences of these adapters, oldest first."""
        queues = [self.waiting[digest] for digest in digests if digest in self.waiting]
        return (sequence for _, sequence in heapq.merge(*queues))


@queue_policies.register("clustered")
class Clustered(AdapterPolicy):
    """A policy that serves the oldest first; once ``cluster_adapters`` run, sequences of these adapters go first."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._adapters = context.config.cluster_adapters

    def candidates(self) -> Iterator[Sequence]:
        if len(self.running) < self._adapters:
            return self.queue.oldest_first()
        return chain(self.oldest_of(tuple(self.running)), self.queue.oldest_first())
