"""Expiry of periodic tasks by the broker's clock: beat's and the worker's may differ.

Celery writes the end of a task's life by the sender's wall clock and compares it with the worker's. A worker that is an
hour ahead of beat would discard every periodic task.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.worker.request import Request
from celery.worker.state import revoked as revoked_tasks
from redis.exceptions import RedisError

from control_plane.core import redis_client
from control_plane.core.config import current

logger = logging.getLogger(__name__)

# Seconds for which the monotonic clock extends a reading of the broker's clock.
READ_EVERY_S = 60.0


class BrokerClock:
    """The clock of Redis, or of this process where the queues are in its memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        self._at = datetime.fromtimestamp(0, UTC)

    def now(self) -> datetime:
        if not current().redis_url:
            return datetime.now(UTC)
        with self._lock:
            since_s = time.monotonic() - self._read_s
            if since_s < READ_EVERY_S:
                return self._at + timedelta(seconds=since_s)
            try:
                with redis_client.client(current().redis_url) as client:
                    clock: Any = client.time()
            except (RedisError, OSError):
                logger.warning("Redis's clock could not be read; tasks expire by this process's.")
                return datetime.now(UTC)
            self._at = datetime.fromtimestamp(clock[0] + clock[1] / 1e6, UTC)
            self._read_s = time.monotonic()
            return self._at


broker_clock = BrokerClock()


class ExpiringRequest(Request):  # type: ignore[misc]
    """A task's message in the worker, which expires by the broker's clock."""

    def maybe_expire(self) -> Any:
        if self.expires and broker_clock.now() > self.expires:
            revoked_tasks.add(self.id)
            return True
        return None
