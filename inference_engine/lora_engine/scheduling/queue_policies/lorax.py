"""LoRAX's exchange of active adapters lets a set of adapters serve at a time (predibase/lorax, router/src/queue.rs)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from lora_engine.scheduling.sequence import Sequence

from .base import Attempt, PolicyContext, queue_policies
from .clustered import AdapterPolicy


@queue_policies.register("lorax")
class Lorax(AdapterPolicy):
    """A policy that serves the oldest first among active adapters, those active for less than the cycle time first.

    Once per step: an active adapter without waiting or running requests leaves if another is pending; the front one
    leaves after ``lorax_cycle_s`` unless a running sequence uses it; pending ones enter while there are fewer than
    ``lorax_active``. In LoRAX an adapter in use stays without limit; here ``StarvationGuarded`` bounds that.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._most = context.config.lorax_active
        self._cycle_s = context.config.lorax_cycle_s
        self.active: dict[str, float] = {}  # time of activation, the earliest first
        self._pending: deque[str] = deque()

    def push(self, sequence: Sequence) -> None:
        super().push(sequence)
        digest = sequence.request.adapter_digest
        if digest not in self.active and len(self.waiting[digest]) == 1:
            self._pending.append(digest)

    def fill(self, attempt: Attempt) -> None:
        self._exchange()
        super().fill(attempt)

    def candidates(self) -> Iterator[Sequence]:
        new_since = self._clock() - self._cycle_s
        yield from self.oldest_of(d for d, since in self.active.items() if since > new_since)
        yield from self.oldest_of(d for d, since in self.active.items() if since <= new_since)

    def _exchange(self) -> None:
        while self._pending and self._pending[0] not in self.waiting:
            self._pending.popleft()
        if self._pending:
            for digest in [d for d in self.active if d not in self.waiting and not self.running[d]]:
                del self.active[digest]
            self._rotate_front()
        while self._pending and len(self.active) < self._most:
            digest = self._pending.popleft()
            if digest in self.waiting and digest not in self.active:
                self.active[digest] = self._clock()

    def _rotate_front(self) -> None:
        front = next(iter(self.active), None)
        if front is None or self.running[front] or self._clock() - self.active[front] < self._cycle_s:
            return
        del self.active[front]
        if front in self.waiting:
            self._pending.append(front)
