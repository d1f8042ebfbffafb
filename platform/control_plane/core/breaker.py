"""Circuit breakers for the servers that every request needs: PostgreSQL and Redis.

While a breaker is open, callers fail at once instead of each waiting for a timeout, and one thread probes the server
until it answers. So an outage costs the requests of its first moment, and ends a second after the server is back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from weakref import WeakSet

logger = logging.getLogger(__name__)

# Seconds between two probes of a server that does not answer.
PROBE_EVERY_S = 1.0
_all: WeakSet[Breaker] = WeakSet()


class Breaker:
    """A circuit breaker: closed while its server answers. Thread-safe.

    `probe` tries the server once and raises if it does not answer; it must end by itself within a few seconds.
    """

    def __init__(self, server: str, probe: Callable[[], object], *, probe_every_s: float = PROBE_EVERY_S) -> None:
        self.server = server
        self._probe, self._probe_every_s = probe, probe_every_s
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._closed.set()
        self._opened_at = 0.0
        self._reason = ""
        _all.add(self)

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set()

    @property
    def reason(self) -> str:
        """The error that opened the breaker; "" while it is closed."""
        return self._reason if self.is_open else ""

    @property
    def open_for_s(self) -> float:
        """Seconds since the breaker opened; 0 while it is closed."""
        return time.monotonic() - self._opened_at if self.is_open else 0.0

    def wait_until_closed(self, timeout_s: float) -> bool:
        """Return True as soon as the server answers again, False after `timeout_s` seconds."""
        return self._closed.wait(timeout_s)

    def trip(self, error: BaseException) -> None:
        """Open the breaker: the server does not answer. Idempotent; from now on only the probe calls the server."""
        with self._lock:
            if self.is_open:
                return
            self._opened_at, self._reason = time.monotonic(), f"{type(error).__name__}: {error}".strip()
            self._closed.clear()
        logger.warning("%s does not answer: %s", self.server, self._reason)
        threading.Thread(target=self._probe_until_back, name=f"probe-{self.server}", daemon=True).start()

    def _probe_until_back(self) -> None:
        while True:
            try:
                self._probe()
            except Exception as error:
                self._reason = f"{type(error).__name__}: {error}".strip()
                time.sleep(self._probe_every_s)
            else:
                logger.warning("%s answers again after %.1f s.", self.server, self.open_for_s)
                self._closed.set()
                return

    def _reset(self) -> None:
        """Close the breaker in a forked child, where no probe runs: the child's first call tries the server again."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._closed.set()


def _reset_all() -> None:
    for breaker in list(_all):
        breaker._reset()


os.register_at_fork(after_in_child=_reset_all)
