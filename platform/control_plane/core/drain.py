"""Graceful shutdown: drains running requests and sockets.

On SIGTERM a web process first reports that it is not ready, asks the clients of its sockets to reconnect, and lets
generations on sockets end for up to ``LORIKEET_DRAIN_S``; then the server stops. It accepts requests for at least
``LORIKEET_DRAIN_NOTICE_S``, in which balancers notice, and closes each connection after its answer. The server itself
waits for answers over HTTP. A second SIGTERM stops at once.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet

from control_plane.core.config import current

logger = logging.getLogger(__name__)

POLL_S = 0.05  # between two checks whether generations still run
Handler = Callable[[int, FrameType | None], Any]


class Movable(Protocol):
    async def move(self) -> None: ...


_sockets: WeakSet[Movable] = WeakSet()
_running = 0
_draining = False
_task: asyncio.Task[None] | None = None


def join(socket: Movable) -> None:
    """Register a socket for the drain; it is removed when it is collected."""
    _sockets.add(socket)


def is_draining() -> bool:
    return _draining


@contextmanager
def working() -> Iterator[None]:
    """Count a generation on a socket that should end before the process does. For the event loop only."""
    global _running
    _running += 1
    try:
        yield
    finally:
        _running -= 1


async def start() -> None:
    """Start-up hook: handle SIGTERM before the server's handler, if there is one."""
    loop, servers = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)
    if not callable(servers):
        return

    def begin(number: int, frame: FrameType | None) -> None:
        if _draining:
            servers(number, frame)
        else:
            loop.call_soon_threadsafe(_begin, lambda: servers(number, None))

    try:
        signal.signal(signal.SIGTERM, begin)
    except ValueError:
        logger.info("Not on the main thread: SIGTERM does not drain this process.")


def _begin(stop: Callable[[], Any]) -> None:
    global _draining, _task
    if not _draining:
        _draining = True
        _task = asyncio.ensure_future(_drain(stop))


async def _drain(stop: Callable[[], Any]) -> None:
    logger.info("Draining.", extra={"sockets": len(_sockets), "running": _running})
    notice = asyncio.ensure_future(asyncio.sleep(current().drain_notice_s))
    try:
        await asyncio.gather(*(socket.move() for socket in list(_sockets)), return_exceptions=True)
        async with asyncio.timeout(current().drain_s):
            while _running:
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        logger.warning("%d generations on sockets did not end in %d s.", _running, current().drain_s)
    finally:
        await notice
        stop()
