"""Cancellation of an answer whose client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from control_plane.core.lifespan import Receive


async def until_disconnected(answering: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run `answering`. If the client disconnects first, cancel it and wait for its end."""
    answer = asyncio.create_task(answering)
    disconnect = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait([answer, disconnect], return_when=asyncio.FIRST_COMPLETED)
    finally:
        answer.cancel()
        disconnect.cancel()
    await asyncio.gather(answer, disconnect, return_exceptions=True)
    if not answer.cancelled() and (error := answer.exception()) is not None:
        raise error


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
