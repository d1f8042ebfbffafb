"""Effects of writes that failed because Redis was unavailable, retried until they succeed.

They are kept in this process's memory and are lost when it ends. Nothing may rely on that alone: reconcilers find
in the database what was never queued, only later.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable

from control_plane.core.redis_client import breaker
from control_plane.core.unavailable import as_unavailable

logger = logging.getLogger(__name__)

# Seconds between two attempts to make the calls.
RETRY_S = 1.0
# Calls that wait in one process; more are left to the reconcilers.
MAX_WAITING = 10_000


class Deferred:
    """Calls that wait for Redis, in the order in which they came; a later call replaces one of the same key.

    Thread-safe.
    """

    def __init__(self, retry_s: float = RETRY_S) -> None:
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Hashable, call: Callable[[], object]) -> None:
        with self._lock:
            if len(self._waiting) >= MAX_WAITING and key not in self._waiting:
                logger.error("%d calls wait for Redis already; %s is left to its reconciler.", MAX_WAITING, key)
                return
            self._waiting[key] = call
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="deferred", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(self._retry_s)
            while breaker().is_open:
                time.sleep(self._retry_s)
            self._try_all()
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return

    def _try_all(self) -> None:
        for key, call in list(self._waiting.items()):
            try:
                call()
            except Exception as error:
                if as_unavailable(error) is not None:
                    logger.warning("Redis is unavailable; %s is retried: %s", key, error)
                    return
                logger.exception("%s failed.", key)
            with self._lock:
                if self._waiting.get(key) is call:  # else a newer call replaced it meanwhile
                    del self._waiting[key]

    def forget(self) -> None:
        """Drop all calls in a forked child: the parent runs them."""
        self.__init__(self._retry_s)  # type: ignore[misc]


deferred = Deferred()
os.register_at_fork(after_in_child=deferred.forget)
