"""A tenant's live events on one socket: numbered, once and in order, with replay."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from redis.exceptions import RedisError

from control_plane.console.live.presence import REFRESH_S, presence
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.events.ring import LiveEvent, ring
from control_plane.core.http.allowance import Allowance

# Replays of a socket per second and at once: each reads up to hundreds of events from Redis.
REPLAYS_PER_S, REPLAYS_AT_ONCE = 0.5, 8.0


class TooManyReplaysError(LorikeetError):
    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "too_many_replays",
            "The socket requests replays of past events too often.",
            f"Wait {wait_s:.0f} s, or read the current state over REST.",
            status=429,
        )


class EventFeed:
    """A feed that sends every event once and fills gaps from the ring. Its socket is in the tenant's group."""

    def __init__(self, tenant_id: UUID, send: Callable[[str], Awaitable[None]]) -> None:
        self.sent = 0
        self._tenant_id, self._send = tenant_id, send
        self._replays = Allowance.full(REPLAYS_PER_S, REPLAYS_AT_ONCE, time.monotonic())
        self._refresher: asyncio.Task[None] | None = None

    async def begin(self) -> int:
        """Start the feed and return the number after which events come.

        The socket is in the group before the number is read, so an event in between is either counted or delivered.
        """
        await run_db(presence().enter, self._tenant_id)
        self._refresher = asyncio.create_task(self._stay_present())
        self.sent = await run_db(ring().last, str(self._tenant_id))
        return self.sent

    async def end(self) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await run_db(presence().leave, self._tenant_id)

    async def take(self, message: dict[str, Any]) -> None:
        """Send an event from the channel layer, or the missing ones up to it."""
        seq = message["seq"]
        if seq <= self.sent:
            return
        if seq > self.sent + 1:
            await self._send_after(self.sent)
            return
        await self._send_event(LiveEvent(seq, message["event"], message["data"]))

    async def replay(self, after: int) -> None:
        """Send the events after a number again. Raises TooManyReplaysError."""
        now = time.monotonic()
        if wait_s := self._replays.wait_s(now):
            raise TooManyReplaysError(wait_s)
        self._replays.spend(1)
        await self._send_after(after)

    async def _send_after(self, seq: int) -> None:
        events = await run_db(ring().after, str(self._tenant_id), seq)
        if events is None:
            # The events are no longer in the ring: the client reads the current state over REST and continues here.
            self.sent = await run_db(ring().last, str(self._tenant_id))
            await self._send(f'{{"type":"reset","seq":{self.sent}}}')
            return
        for event in events:
            await self._send_event(event)

    async def _send_event(self, event: LiveEvent) -> None:
        self.sent = max(self.sent, event.seq)
        await self._send(event.frame())

    async def _stay_present(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            with contextlib.suppress(RedisError, OSError):  # the channel layer notices that too, and ends the socket
                await run_db(presence().refresh, self._tenant_id)
