"""A queue for parsing large bodies, so that the event loop serves other work between two of them.

Parsing one takes a few milliseconds of the event loop; without the queue, bodies that arrive together would be parsed
one directly after another. A still larger body is parsed on a thread, which shares the interpreter with the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
R = TypeVar("R")

LARGE = 16 << 10  # bytes above which a body waits in the queue
LARGER = 64 << 10  # bytes above which it is parsed on the thread
# A single thread: several would together keep the interpreter from the event loop.
_thread = ThreadPoolExecutor(1, "lorikeet-parse")

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def wait_to_parse(size: int) -> None:
    """Wait before a body of `size` bytes is parsed, so that each loop iteration parses one large body at most."""
    if size > LARGE:
        async with _gates.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await asyncio.sleep(0)


async def parsed(size: int, parse: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what `parse` returns for a body of `size` bytes, or raise its error."""
    await wait_to_parse(size)
    if size <= LARGER:
        return parse(*args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_thread, lambda: parse(*args, **kwargs))
