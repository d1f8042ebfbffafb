"""The threads that compute masks. Those that may be slow are computed alone, so that no other waits for them.

An ordinary mask takes some microseconds, less than it takes a thread to get Python's lock; a step asks for hundreds. So
masks of grammars that proved to be quick are computed together, by one call of the library that needs the lock once and
has threads of its own. A grammar that is new, or was in a batch that came late, has its masks computed alone for a
while, and timed. One whose masks take long has threads of its own: a few grammars that are hard, by chance or by
intent, cannot hold up those that are not.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from lora_engine.constraints import load_library

from .token_masks import MaskBatch, TokenMasks

if TYPE_CHECKING:
    from llguidance import LLExecutor

log = logging.getLogger(__name__)


# Most that a step waits for its batch before it goes on with what needs Python's lock. Most batches take a millisecond
# or two; a thread that has to ask for the lock beside the step's own gets it late (docs/LOG.md).
WAITED_S = 0.01


class Lane:
    """Threads that take tasks in turn; they are started when they are first needed."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()

    def submit(self, task: Callable[[], None]) -> None:
        if not self._threads:
            self._start()
        self._tasks.put(task)

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def _start(self) -> None:
        with self._starting:
            for number in range(len(self._threads), self._most):
                thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception:
                log.exception("a task of %s failed", self._name)


class MaskWorkers:
    """A lane for batches, one for what is computed alone, and one for what is slow."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        self._threads = max(2, min(16, cores * 3 // 4))  # of the library, for all batches together
        self._executor: LLExecutor | None = None
        self.batches = Lane("mask-batches", 3)  # a step's does not wait for a late one of a step before
        # More than there are cores, if there are few: a mask of some milliseconds must not hold up those behind it.
        self.usual = Lane("masks", max(4, min(8, cores - 1)))
        self.slow = Lane("slow-masks", 2)

    def compute_together(self, quick: list[TokenMasks]) -> None:
        """Compute masks of grammars that are quick; at least one. From the step thread, which they may outlast."""
        if self._executor is None:
            self._executor = load_library().LLExecutor(self._threads)
        batch = MaskBatch(quick, self._executor)
        self.batches.submit(batch.compute)
        batch.wait(WAITED_S)

    def close(self) -> None:
        self.batches.close()
        self.usual.close()
        self.slow.close()
