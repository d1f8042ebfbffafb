"""Turns for whoever parses something large: between two of them everybody else is served.

Each takes a few milliseconds of the event loop. Those that arrive together would be parsed one right after the other.
What is larger still is parsed on a thread, with which the event loop takes turns in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")

LARGE = 16 << 10
LARGER = 64 << 10

_thread = ThreadPoolExecutor(1, "lorikeet-parse")
"""One, or several would keep the interpreter from the event loop together."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def own_turn(size: int) -> None:
    """Before so many bytes are parsed: no other large ones are in the turn of the event loop in which this returns."""
    if size > LARGE:
        async with _gates.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)


async def parsed(size: int, parse: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What `parse` returns, or raises, of so many bytes."""
    await own_turn(size)
    if size <= LARGER:
        return parse(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: parse(*args, **kwargs))
