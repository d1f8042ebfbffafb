"""The threads that compute masks. One mask never waits for a slow one of another request.

A grammar whose mask once took long has its masks computed on threads of their own, so that a few grammars that are
hard, by chance or by intent, cannot hold up those that are not. A step asks for a mask for each of hundreds of answers
while it holds Python's lock: so a task is an entry of a queue and no more, not a future.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)


class Lane:
    """Threads that take tasks in turn; they are started when they are first needed."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, task: Callable[[], None]) -> None:
        """From one thread only."""
        if not self._threads:
            self._start()
        self._tasks.put(task)

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def _start(self) -> None:
        for number in range(self._most):
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
    """A lane for what is usual and one for what is slow."""

    def __init__(self) -> None:
        cores = os.cpu_count() or 1
        # More than there are cores, if there are few: a mask of some milliseconds must not hold up those behind it.
        self.usual = Lane("masks", max(4, min(8, cores - 1)))
        self.slow = Lane("slow-masks", 2)

    def close(self) -> None:
        self.usual.close()
        self.slow.close()
