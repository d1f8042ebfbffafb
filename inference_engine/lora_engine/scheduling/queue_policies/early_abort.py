"""The queue of S-LoRA's early abort is newest first under overload (appendix B, router/abort_req_queue.py)."""

from __future__ import annotations

from collections.abc import Iterator

from lora_engine.scheduling.sequence import Sequence

from .base import Attempt, PolicyContext, queue_policies
from .fcfs import StarvationGuarded

_NEW = 0.7  # weight of the newest observation in both averages


@queue_policies.register("early_abort")
class EarlyAbortQueue(StarvationGuarded):
    """A queue that serves the newest first while more arrive between two calls than a call starts, else the oldest.

    It is meant for the admission policy of the same name, which refuses requests that would be too late.
    """

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._rate = 0
        self._batch = 1
        self._left_over = 0

    def candidates(self) -> Iterator[Sequence]:
        return self.queue.newest_first() if self._rate >= self._batch else self.queue.oldest_first()

    def fill(self, attempt: Attempt) -> None:
        before = len(self)
        self._rate = int(_NEW * (before - self._left_over) + (1 - _NEW) * self._rate)
        super().fill(attempt)
        self._left_over = len(self)
        self._batch = max(int(_NEW * (before - self._left_over) + (1 - _NEW) * self._batch), 1)
