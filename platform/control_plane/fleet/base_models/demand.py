"""Demand for base models that may sleep: the gateway records it, and whatever starts hosts reads it."""

from __future__ import annotations

import asyncio
import logging
import time

from control_plane.core.db import run_db
from control_plane.core.jobs import clocks
from control_plane.fleet.base_models.models import BaseModel

logger = logging.getLogger(__name__)
# Seconds between two writes for one base model, however many requests name it.
NOTE_EVERY_S = 5.0
# Seconds before a failed write is tried again.
RETRY_S = 1.0


class BaseDemand:
    """A recorder of demand for one event loop: one write per base model in `NOTE_EVERY_S`."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def note(self, digest: str) -> None:
        """Record a request for a base model in the background."""
        now = time.monotonic()
        if now < self._next.get(digest, now):
            return
        self._next[digest] = now + NOTE_EVERY_S
        task = asyncio.create_task(self._store(digest), name="note-base-demand")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store(self, digest: str) -> None:
        try:
            await run_db(lambda: store_demand(digest))
        except Exception as error:
            logger.warning("The demand for a base model was not stored; the next request stores it: %s", error)
            self._next[digest] = time.monotonic() + RETRY_S


def store_demand(digest: str) -> None:
    """Set when a base model was last requested, by the database's clock: a process's clock may be ahead."""
    BaseModel.objects.filter(digest=digest).update(asked_at=clocks.database_time())
