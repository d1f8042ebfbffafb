"""``/ws/console?tenant=<slug>``: a tenant's live events, numbered, with replay."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer

from control_plane.db import run_db
from control_plane.errors import LorikeetError
from control_plane.live.events import group_name
from control_plane.live.presence import REFRESH_S, presence
from control_plane.live.ring import Event, ring
from control_plane.live.sockets import origin_is_ours, query, session_user
from control_plane.principal import Principal
from control_plane.tenants.access import enter

# Close codes of our own; 4xxx is the range that browsers pass through.
CLOSE_UNAUTHENTICATED = 4401
CLOSE_NOT_FOUND = 4404
LONGEST_MESSAGE = 4096


class ConsoleConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One browser tab. Sends every event once and in order; heals gaps of the channel layer from the ring."""

    principal: Principal | None = None
    sent = 0
    _refresher: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        user = session_user(self.scope)
        if user is not None and not origin_is_ours(self.scope):
            await self.close()  # before it is accepted: the other site's page learns nothing
            return
        await self.accept()
        if user is None:
            await self._refuse(
                CLOSE_UNAUTHENTICATED, "not_authenticated", "Log in, and open the console from its own address."
            )
            return
        try:
            self.principal = await run_db(enter, query(self.scope, "tenant"), user=user, key_principal=None)
        except LorikeetError as error:
            await self._refuse(CLOSE_NOT_FOUND, error.code, error.fix, error.message)
            return
        self.tenant_id = self.principal.tenant.pk
        # Joined before the number is read: what comes in between is either counted or delivered.
        await self.channel_layer.group_add(group_name(self.tenant_id), self.channel_name)
        await run_db(presence().enter, self.tenant_id)
        self._refresher = asyncio.create_task(self._stay_present())
        self.sent = await run_db(ring().last, str(self.tenant_id))
        await self._send({"type": "hello", "seq": self.sent})

    async def disconnect(self, code: int) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            await self.channel_layer.group_discard(group_name(self.tenant_id), self.channel_name)
            await run_db(presence().leave, self.tenant_id)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.principal is None:
            return
        message = parse(text_data)
        kind = message.get("type")
        if kind == "ping":
            await self._send({"type": "pong"})
        elif kind == "replay" and isinstance(message.get("after"), int):
            await self._send_after(message["after"])
        else:
            await self._error("malformed_message", 'Send {"type": "ping"} or {"type": "replay", "after": <seq>}.')

    async def console_event(self, message: dict[str, Any]) -> None:
        """From the channel layer."""
        seq = message["seq"]
        if seq <= self.sent:
            return
        if seq > self.sent + 1:
            await self._send_after(self.sent)
            return
        await self._send_event(Event(seq, message["event"], message["data"]))

    async def _send_after(self, seq: int) -> None:
        events = await run_db(ring().after, str(self.tenant_id), seq)
        if events is None:
            # Too long ago: the client reads the present state over REST and goes on from here.
            self.sent = await run_db(ring().last, str(self.tenant_id))
            await self._send({"type": "reset", "seq": self.sent})
            return
        for event in events:
            await self._send_event(event)

    async def _send_event(self, event: Event) -> None:
        self.sent = max(self.sent, event.seq)
        await self.send(text_data=event.frame())

    async def _stay_present(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            await run_db(presence().refresh, self.tenant_id)

    async def _refuse(
        self, close_code: int, code: str, fix: str, message: str = "This socket needs a session."
    ) -> None:
        await self._error(code, fix, message)
        await self.close(close_code)

    async def _error(self, code: str, fix: str, message: str = "The message was not understood.") -> None:
        await self._send({"type": "error", "error": {"code": code, "message": message, "fix": fix, "param": None}})

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send(text_data=json.dumps(message))


def parse(text: str | None) -> dict[str, Any]:
    """A JSON object of reasonable size, else an empty one."""
    if text is None or len(text) > LONGEST_MESSAGE:
        return {}
    try:
        message = json.loads(text)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
