"""``/ws/console``: a tenant's live events, numbered, with replay."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, ClassVar

from redis.exceptions import RedisError

from control_plane.db import run_db
from control_plane.errors import LorikeetError
from control_plane.events.publisher import group_name
from control_plane.events.ring import LiveEvent, ring
from control_plane.http.allowance import Allowance
from control_plane.http.json_body import JsonError, read_object
from control_plane.live.presence import REFRESH_S, presence
from control_plane.sockets.authenticated_socket import AuthenticatedSocket
from control_plane.sockets.handshake import origin_is_ours
from control_plane.tenants.roles import Capability
from control_plane.unavailable import redis_unavailable

LONGEST_MESSAGE = 4096
REPLAYS_PER_S, REPLAYS_AT_ONCE = 0.5, 8.0
"""A few bytes ask for hundreds of events, read from Redis."""


class MessageError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "malformed_message",
            "The message was not understood.",
            'Send {"type": "auth", "ticket": ...} once, then {"type": "ping"} or {"type": "replay", "after": <seq>}.',
        )


class TooManyReplaysError(LorikeetError):
    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "too_many_replays",
            "The socket asks for past events more often than they are read again.",
            f"Wait {wait_s:.0f} s, or read the present state over REST.",
            status=429,
        )


class ConsoleConsumer(AuthenticatedSocket):
    """One browser tab. Sends every event once and in order; heals gaps of the channel layer from the ring."""

    actions: ClassVar = {"auth": None, "ping": None, "replay": Capability.VIEW}
    needs: ClassVar = Capability.VIEW

    sent = 0
    _refresher: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self._replays = Allowance.full(REPLAYS_PER_S, REPLAYS_AT_ONCE, asyncio.get_running_loop().time())
        if not origin_is_ours(self.scope):
            await self.close()  # before it is accepted: the other site's page learns nothing
            return
        await super().connect()

    async def disconnect(self, code: int) -> None:
        await super().disconnect(code)
        if self._refresher is not None:
            self._refresher.cancel()
            await self.leave_group(group_name(self.tenant_id))
            await run_db(presence().leave, self.tenant_id)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        message = parse(text_data)
        kind = message.get("type")
        if not await self.admits(kind):
            return
        if kind == "ping":
            await self._send({"type": "pong"})
        elif kind == "auth" and isinstance(message.get("ticket"), str) and self.caller is None:
            if await self.hold_by_ticket(message["ticket"]):
                await self._listen()
        elif kind == "replay" and isinstance(message.get("after"), int):
            await self._replay(message["after"])
        else:
            await self.tell_error(MessageError())

    async def _listen(self) -> None:
        assert self.principal is not None
        self.tenant_id = self.principal.tenant.pk
        # Joined before the number is read: what comes in between is either counted or delivered.
        await self.channel_layer.group_add(group_name(self.tenant_id), self.channel_name)
        await run_db(presence().enter, self.tenant_id)
        self._refresher = asyncio.create_task(self._stay_present())
        self.sent = await run_db(ring().last, str(self.tenant_id))
        await self._send({"type": "hello", "seq": self.sent})

    async def layer_lost(self, message: dict[str, Any]) -> None:
        """No event can come: the console shows that, and connects anew until it can."""
        await self.cut(redis_unavailable())

    async def console_event(self, message: dict[str, Any]) -> None:
        """From the channel layer."""
        seq = message["seq"]
        if seq <= self.sent:
            return
        if seq > self.sent + 1:
            await self._send_after(self.sent)
            return
        await self._send_event(LiveEvent(seq, message["event"], message["data"]))

    async def _replay(self, after: int) -> None:
        if wait_s := self._replays.wait_s(asyncio.get_running_loop().time()):
            await self.tell_error(TooManyReplaysError(wait_s))
            return
        self._replays.spend(1)
        await self._send_after(after)

    async def _send_after(self, seq: int) -> None:
        events = await run_db(ring().after, str(self.tenant_id), seq)
        if events is None:
            # Too long ago: the client reads the present state over REST and goes on from here.
            self.sent = await run_db(ring().last, str(self.tenant_id))
            await self._send({"type": "reset", "seq": self.sent})
            return
        for event in events:
            await self._send_event(event)

    async def _send_event(self, event: LiveEvent) -> None:
        self.sent = max(self.sent, event.seq)
        await self.send(text_data=event.frame())

    async def _stay_present(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            with contextlib.suppress(RedisError, OSError):  # the channel layer notices that too, and ends the socket
                await run_db(presence().refresh, self.tenant_id)

    async def tell_error(self, error: LorikeetError) -> None:
        await self._send({"type": "error", "error": error.body()})

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message))


def parse(text: str | None) -> dict[str, Any]:
    """A JSON object of reasonable size, else an empty one."""
    if text is None or len(text.encode()) > LONGEST_MESSAGE:
        return {}
    try:
        return read_object(text)
    except JsonError:
        return {}
