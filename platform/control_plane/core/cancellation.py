"""Completion of effects on other servers when the task that awaits them is cancelled.

A cancelled await stops neither a thread nor another server. Whether its effect happens is then unknown, and an effect
that was not recorded is never undone. So every await that changes something elsewhere goes through `to_completion`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def to_completion(effect: Awaitable[T], undo: Callable[[T], Awaitable[object]] | None = None) -> T:
    """Return what ``effect`` returns. A cancelled caller waits for the effect's end before ``CancelledError`` goes on.

    So the caller's ``finally`` never runs beside the effect, and what it sends to the same server comes after it. A
    result that the caller will not get is passed to ``undo``. The effect must be bounded in time by itself.
    """
    task = asyncio.ensure_future(effect)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # cancelled again
        happened = not task.cancelled() and task.exception() is None
        if undo is not None and happened:
            try:
                await to_completion(undo(task.result()))
            except Exception:
                logger.exception("The effect of a task that was cancelled could not be undone.")
        raise


def end_if_cancelled() -> None:
    """Raise ``CancelledError`` in a task whose cancellation was requested.

    A call that fails at the moment its task is cancelled raises the call's own error, and Python 3.11's ``wait_for``
    returns a result that arrives at that moment. Either way a loop that survives errors loses the cancellation, and the
    code that waits for the task waits for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
