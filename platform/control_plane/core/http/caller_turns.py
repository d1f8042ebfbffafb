"""How much of the console's API one caller has at work at once, and how much of a processor it takes.

Each request works on a thread of its own, and the event loop, which sends everybody's tokens, gets the interpreter in
turn with all of them. Sixteen long lists at once of one caller are no sooner done than two and two, so others wait;
and whoever has used more processor time than people do is served at the pace at which it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.http.allowance import Allowance
from control_plane.core.http.body_guard import DRAIN_BYTES, declared_length, send_refusal
from control_plane.core.http.client_address import network_of
from control_plane.core.http.request_id import accept_or_make, set_request_id
from control_plane.core.lifespan import AsgiApp, Receive, Scope, Send

AT_ONCE = 2
"""Reads."""
WAIT_S = 5.0
"""After which a read is done all the same: two downloads that somebody reads slowly must not stop their console."""
CPU_AT_ONCE_S = 2.0
"""What a caller may use before it waits for LORIKEET_CALLER_CPU_SHARE: a page of the console takes a tenth of it."""
CALLERS = 1 << 12
"""Whose use is remembered: those that asked last."""
CREDENTIALS = (b"authorization", b"cookie")
CALLER = "lorikeet.caller"
"""Under which name a request's scope has the allowance of its caller."""


class TooMuchWorkError(LorikeetError):
    """The caller would have to wait longer than `WAIT_S`."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "too_much_work",
            "Your requests to this API take more of the server's processor time than one caller may have.",
            "Send them one after the other, and poll less often.",
            status=429,
        )
        self.retry_after_s = wait_s


@dataclass
class _Turns:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    users: int = 0


class CallerTurns:
    """ASGI middleware. A caller is who sends the same key or cookies, or a stranger's address."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self._turns: dict[Hashable, _Turns] = {}
        self._allowances: OrderedDict[tuple[bytes, ...], Allowance] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope["method"] in {"GET", "HEAD"}
        async with self._turn(caller_of(scope)) if reads else contextlib.nullcontext():
            credentials = credentials_of(scope)
            if credentials and current().caller_cpu_share:  # the rate of strangers' requests is bounded
                allowance = self._allowance(credentials)
                wait_s = allowance.wait_s(time.monotonic())
                if wait_s > WAIT_S:
                    await _refuse(scope, send, TooMuchWorkError(wait_s))
                    return
                if wait_s:
                    await asyncio.sleep(wait_s)
                scope = {**scope, CALLER: allowance}
            await self.app(scope, receive, send)

    def _allowance(self, caller: tuple[bytes, ...]) -> Allowance:
        if caller not in self._allowances:
            self._allowances[caller] = Allowance.full(current().caller_cpu_share, CPU_AT_ONCE_S, time.monotonic())
            if len(self._allowances) > CALLERS:
                self._allowances.popitem(last=False)
        self._allowances.move_to_end(caller)
        return self._allowances[caller]

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


def charge(scope: Mapping[str, Any], cpu_s: float) -> None:
    """So much processor time was spent for the caller of the request; its next ones wait for it."""
    allowance = scope.get(CALLER)
    if allowance is not None:
        allowance.spend(cpu_s)


async def _refuse(scope: Scope, send: Send, error: LorikeetError) -> None:
    headers = dict(scope["headers"])
    request_id = accept_or_make(headers.get(b"x-request-id", b"").decode("latin-1"))
    set_request_id(request_id)
    declared = declared_length(headers)
    close = scope["method"] not in {"GET", "HEAD"} and (declared is None or declared > DRAIN_BYTES)
    await send_refusal(send, error, request_id, close=close)


def caller_of(scope: Scope) -> Hashable:
    """What tells callers apart before anybody has looked at their credentials."""
    client = scope.get("client")
    return credentials_of(scope) or (network_of(client[0]) if client else None)


def credentials_of(scope: Scope) -> tuple[bytes, ...]:
    return tuple(value for name, value in scope["headers"] if name in CREDENTIALS)
