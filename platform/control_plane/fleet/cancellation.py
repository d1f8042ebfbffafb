"""Cancellation of tasks that go on after errors."""

from __future__ import annotations

import asyncio


def end_if_cancelled() -> None:
    """Raise ``CancelledError`` in a task that was asked to end.

    A call that breaks at the moment its task is cancelled raises the status of the call, and Python 3.11's
    ``wait_for`` hands out a result that came at that moment: either way the request to end is lost on a loop that
    survives errors, and whoever waits for the task waits for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
