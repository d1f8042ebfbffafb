"""Writing in batches: a task of the event loop gathers entries for a moment, then writes them together."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)
# Seconds before a failed write is tried again.
RETRY_S = 1.0


class Flusher:
    """A loop that calls ``flush`` a moment after ``wake``, and again after pauses until all is written.

    ``flush`` returns True once everything is written.
    """

    def __init__(self, name: str, gather_s: float, flush: Callable[[], Awaitable[bool]]) -> None:
        self._name, self._gather_s, self._flush = name, gather_s, flush
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)

    def wake(self) -> None:
        self._filled.set()

    async def close(self) -> None:
        """Write what is pending, then stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._try()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            await asyncio.sleep(self._gather_s)
            self._filled.clear()
            if not await self._try():
                await asyncio.sleep(RETRY_S)
                self._filled.set()

    async def _try(self) -> bool:
        try:
            return await self._flush()
        except Exception as error:  # any error: later entries must still be written
            # The error's message is left out: it may quote the rows.
            where = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s could not write; trying again: %s\n%s", self._name, type(error).__name__, where)
            return False
