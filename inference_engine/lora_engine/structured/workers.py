"""The threads that compute masks; masks that may be slow are computed separately, so that no others wait for them.

An ordinary mask takes some microseconds, less than a thread needs to acquire the interpreter lock, and a step needs
hundreds of masks. So the masks of quick grammars are computed together by one call of the library, which acquires the
lock once and has its threads. The masks of a new grammar, or of one in a late batch, are computed alone and timed for a
while. Slow grammars have separate threads: a few hard grammars, by chance or by intent, cannot delay others.
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


# Seconds that a step waits for its batch before it continues with work that needs the interpreter lock. Most batches
# take a millisecond or two; a thread that competes with the step thread for the lock gets it late (docs/LOG.md).
WAITED_S = 0.01


class Lane:
    """A pool of threads with a queue of tasks; the threads are started at first use."""

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
    """The lanes of mask threads: for batches, for masks computed alone, and for slow ones."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        self._threads = max(2, min(16, cores * 3 // 4))  # the library's threads, for all batches together
        self._executor: LLExecutor | None = None
        self.batches = Lane("mask-batches", 3)  # a step's batch does not wait for a late one of an earlier step
        # On few cores there are more threads than cores: a mask of some milliseconds must not delay those after it.
        self.usual = Lane("masks", max(4, min(8, cores - 1)))
        self.slow = Lane("slow-masks", 2)

    def compute_together(self, quick: list[TokenMasks]) -> None:
        """Compute the masks of quick grammars, at least one; the call may return before late ones are ready."""
        if self._executor is None:
            self._executor = load_library().LLExecutor(self._threads)
        batch = MaskBatch(quick, self._executor)
        self.batches.submit(batch.compute)
        batch.wait(WAITED_S)

    def close(self) -> None:
        self.batches.close()
        self.usual.close()
        self.slow.close()
