"""Answers of the database that are remembered for a second.

A write in this process forgets everything at once; one in another process counts after ``FRESH_S``. Refusals are not
remembered. Concurrent questions share one look.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from django.db import transaction

from control_plane.audit.models import AuditEvent
from control_plane.db import run_db

T = TypeVar("T")
FRESH_S = 1.0
MOST_KEPT = 10_000

_writes = itertools.count(1)
_last_write = 0


def forget_after_commit(_row: AuditEvent) -> None:
    """A listener of the audit log: every write has a row there."""
    transaction.on_commit(_forget, robust=True)


def _forget() -> None:
    global _last_write
    _last_write = next(_writes)


class Fresh(Generic[T]):
    """Answers that are younger than ``FRESH_S`` and than the last write. Of one event loop.

    Those that are not ``worth_keeping`` are looked up anew by the next who asks.
    """

    def __init__(self, worth_keeping: Callable[[T], bool] = lambda _: True) -> None:
        self._worth_keeping = worth_keeping
        self._known: dict[object, tuple[float, int, T]] = {}
        self._asking: dict[tuple[object, int], asyncio.Future[T]] = {}

    def peek(self, key: object) -> T | None:
        known = self._known.get(key)
        if known is None or known[0] < time.monotonic() or known[1] != _last_write:
            return None
        return known[2]

    async def get(self, key: object, look: Callable[[], T]) -> T:
        """`look` runs on a database thread if the answer is not known."""
        if (known := self.peek(key)) is not None:
            return known
        write = _last_write  # what is read from here on may be older than a later write
        asking = self._asking.get((key, write))
        if asking is None:
            asking = asyncio.ensure_future(self._ask(key, write, look))
            self._asking[key, write] = asking
        # One who goes away does not take the answer from those who wait with him.
        return await asyncio.shield(asking)

    async def _ask(self, key: object, write: int, look: Callable[[], T]) -> T:
        try:
            answer = await run_db(look)
        finally:
            del self._asking[key, write]
        if self._worth_keeping(answer):
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = (time.monotonic() + FRESH_S, write, answer)
        return answer
