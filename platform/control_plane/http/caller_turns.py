"""How many reads of the console's API one caller has at work at once.

Each works on a thread of its own, and the event loop, which sends everybody's tokens, gets the interpreter in turn with
all of them. Sixteen long lists at once for one caller are no sooner done than two and two, so the others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from dataclasses import dataclass, field

from control_plane.http.client_address import network_of
from control_plane.lifespan import AsgiApp, Receive, Scope, Send

AT_ONCE = 2
WAIT_S = 5.0
"""After which a read is done all the same: two downloads that somebody reads slowly must not stop their console."""
CREDENTIALS = (b"authorization", b"cookie")


@dataclass
class _Turns:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    users: int = 0


class CallerTurns:
    """ASGI middleware. A caller is who sends the same key or cookies, or a stranger's address."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self._turns: dict[Hashable, _Turns] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await self.app(scope, receive, send)
            return
        async with self._turn(caller_of(scope)):
            await self.app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _turn(self, caller: Hashable) -> AsyncIterator[None]:
        turns = self._turns.setdefault(caller, _Turns())
        turns.users += 1
        has_turn = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    has_turn = await turns.free.acquire()
            yield
        finally:
            if has_turn:
                turns.free.release()
            turns.users -= 1
            if not turns.users:
                del self._turns[caller]


def caller_of(scope: Scope) -> Hashable:
    """What tells callers apart before anybody has looked at their credentials."""
    shown = tuple(value for name, value in scope["headers"] if name in CREDENTIALS)
    client = scope.get("client")
    return shown or (network_of(client[0]) if client else None)
