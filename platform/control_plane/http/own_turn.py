"""A turn of the event loop for whoever parses something large: between two of them everybody else is served.

Each takes a few milliseconds. Those that arrive together would be parsed one right after the other.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

LARGE = 16 << 10

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def own_turn(size: int) -> None:
    """Before so many bytes are parsed: no other large ones are in the turn of the event loop in which this returns."""
    if size > LARGE:
        async with _gates.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)
