"""ASGI lifespan, which Django does not implement: start and stop parts that live as long as the web process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Hook = Callable[[], Awaitable[None]]

logger = logging.getLogger(__name__)
# Seconds for all shut-down hooks together: one that waits for an unavailable server must not make a supervisor kill the
# process.
STOP_WITHIN_S = 9.0


class Lifespan:
    """ASGI middleware that runs `startup` hooks in order and `shutdown` hooks in reverse."""

    def __init__(self, app: AsgiApp, startup: list[Hook], shutdown: list[Hook]) -> None:
        self.app, self.startup, self.shutdown = app, startup, shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                if not await self._start(send):
                    return
            elif message["type"] == "lifespan.shutdown":
                await self._stop(send)
                return

    async def _start(self, send: Send) -> bool:
        try:
            for hook in self.startup:
                await hook()
        except Exception as exc:
            logger.exception("The web process could not start.")
            await send({"type": "lifespan.startup.failed", "message": f"{type(exc).__name__}: {exc}"})
            return False
        await send({"type": "lifespan.startup.complete"})
        return True

    async def _stop(self, send: Send) -> None:
        end = asyncio.get_running_loop().time() + STOP_WITHIN_S
        for hook in reversed(self.shutdown):
            try:
                async with asyncio.timeout_at(end):
                    await hook()
            except TimeoutError:
                logger.warning("%s.%s did not end in time.", hook.__module__, hook.__qualname__)
            except Exception:
                logger.exception("A part of the web process did not stop cleanly.")
        await send({"type": "lifespan.shutdown.complete"})
