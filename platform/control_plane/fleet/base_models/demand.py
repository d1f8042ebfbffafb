"""Which base models that may sleep are asked for: noted by whoever has the request, read by whoever starts hosts."""

from __future__ import annotations

import asyncio
import logging
import time

from control_plane.core.db import run_db
from control_plane.core.jobs import clocks
from control_plane.fleet.hosts.models import BaseModel

logger = logging.getLogger(__name__)
NOTE_EVERY_S = 5.0
AGAIN_S = 1.0
"""After a write that failed."""


class BaseDemand:
    """Of one event loop. A base model that is asked for all the time costs one write in `NOTE_EVERY_S`."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def asked(self, digest: str) -> None:
        """Somebody asks for it now. Waits for nothing."""
        now = time.monotonic()
        if now < self._next.get(digest, now):
            return
        self._next[digest] = now + NOTE_EVERY_S
        task = asyncio.create_task(self._note(digest), name="note-base-demand")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note(self, digest: str) -> None:
        try:
            await run_db(lambda: note_asked(digest))
        except Exception as error:
            logger.warning("That a base model was asked for was not stored; it is tried again: %s", error)
            self._next[digest] = time.monotonic() + AGAIN_S


def note_asked(digest: str) -> None:
    """Note that a base model is asked for, by the database's clock: its base would stay awake by one that is ahead."""
    BaseModel.objects.filter(digest=digest).update(asked_at=clocks.database_time())
