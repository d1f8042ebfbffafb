"""Limits for each caller of the console's API: requests at once, and processor time.

Each request runs on a thread, and the event loop, which sends all tokens, shares the interpreter with all of them.
Sixteen long lists at once of one caller finish no sooner than two after two, so the others wait. A caller that used
more processor time than people do is served at the rate of LORIKEET_CALLER_CPU_SHARE.
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

# Reads of one caller at once.
AT_ONCE = 2
# Seconds after which a read proceeds without a slot: two downloads read slowly must not block their caller's console.
WAIT_S = 5.0
# Seconds of processor time that a caller may use before it waits for LORIKEET_CALLER_CPU_SHARE. A page of the console
# takes a tenth of it.
CPU_AT_ONCE_S = 2.0
# Callers whose use is remembered: the most recent ones.
CALLERS = 1 << 12
CREDENTIALS = (b"authorization", b"cookie")
# Key of a request's scope that holds the allowance of its caller.
CALLER = "lorikeet.caller"


class TooMuchWorkError(LorikeetError):
    """The caller would have to wait longer than `WAIT_S`."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "too_much_work",
            "Your requests to this API take more of the server's processor time than one caller may have.",
            "Send requests one after another, and poll less often.",
            status=429,
        )
        self.retry_after_s = wait_s


@dataclass
class _Slots:
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    users: int = 0


class CallerLimits:
    """ASGI middleware that limits each caller: the sender of the same key or cookies, or a stranger's address."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self._slots: dict[Hashable, _Slots] = {}
        self._allowances: OrderedDict[tuple[bytes, ...], Allowance] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope["method"] in {"GET", "HEAD"}
        async with self._slot(caller_of(scope)) if reads else contextlib.nullcontext():
            credentials = credentials_of(scope)
            if credentials and current().caller_cpu_share:  # StrangerRate limits requests without credentials
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
    async def _slot(self, caller: Hashable) -> AsyncIterator[None]:
        slots = self._slots.setdefault(caller, _Slots())
        slots.users += 1
        acquired = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    acquired = await slots.free.acquire()
            yield
        finally:
            if acquired:
                slots.free.release()
            slots.users -= 1
            if not slots.users:
                del self._slots[caller]


def charge(scope: Mapping[str, Any], cpu_s: float) -> None:
    """Charge the request's caller for processor time; its next requests wait for it."""
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
    """Return what distinguishes callers before their credentials are checked."""
    client = scope.get("client")
    return credentials_of(scope) or (network_of(client[0]) if client else None)


def credentials_of(scope: Scope) -> tuple[bytes, ...]:
    return tuple(value for name, value in scope["headers"] if name in CREDENTIALS)
