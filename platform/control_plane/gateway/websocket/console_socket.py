"""``/ws/console``: the one socket of a browser tab, with its tenant's live events and the generations of its
playground.

It has the frames of ``/ws/inference``, ``replay``, and frames of events (``live/feed.py``). Only pages of the console's
origin may open it, and only with a ticket. A user without the permission to infer receives the events only.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, ClassVar

from control_plane.console.live.feed import EventFeed
from control_plane.core.events.publisher import group_name
from control_plane.core.unavailable import redis_unavailable
from control_plane.gateway.dispatch.errors import invalid
from control_plane.gateway.websocket.inference_socket import InferenceConsumer
from control_plane.gateway.websocket.resume_relay import resume_relay
from control_plane.gateway.websocket.session import RESUME_S
from control_plane.identity.access.principal import Principal
from control_plane.identity.sockets.authenticated_socket import TicketError
from control_plane.identity.sockets.handshake import origin_is_ours
from control_plane.identity.tenants.roles import Capability


class ConsoleConsumer(InferenceConsumer):
    actions: ClassVar = {**InferenceConsumer.actions, "replay": Capability.VIEW}
    needs: ClassVar = Capability.VIEW

    _feed: EventFeed | None = None

    async def connect(self) -> None:
        if not origin_is_ours(self.scope):
            await self.close()  # before it is accepted, so that the other site's page learns nothing
            return
        await super().connect()

    async def disconnect(self, code: int) -> None:
        await super().disconnect(code)
        if self._feed is not None:
            await self.leave_group(self._group)
            await self._feed.end()

    async def _authenticate(self, key: str) -> None:
        """Refuse an API key: programs connect to `/ws/inference`."""
        await self.cut(TicketError())

    async def _greet(self) -> None:
        assert self.principal is not None
        tenant_id = self.principal.tenant.pk
        self._group = group_name(tenant_id)
        await self.channel_layer.group_add(self._group, self.channel_name)
        self._feed = EventFeed(tenant_id, self.send_frame)
        seq = await self._feed.begin()
        self._session = resume_relay().sessions.open(self._owner, self)
        await self._send({"type": "hello", "seq": seq, "session": self._session.name, "resume_s": RESUME_S})

    async def _handle(self, message: dict[str, Any]) -> None:
        if message.get("type") != "replay":
            await super()._handle(message)
        elif await self.admits("replay"):
            assert self._feed is not None  # set by the greeting; before it, replay is refused
            after = message.get("after")
            if not isinstance(after, int):
                raise invalid("replay needs a number.", "Send the last seq as after.", "after", "malformed_message")
            await self._feed.replay(after)

    async def console_event(self, message: dict[str, Any]) -> None:
        """Handle an event from the channel layer."""
        if self._feed is not None:
            await self._feed.take(message)

    async def layer_lost(self, message: dict[str, Any]) -> None:
        """Close the socket, as events cannot arrive. The console reconnects; generations can be resumed."""
        await self.cut(redis_unavailable())

    async def _recheck(self, query: Awaitable[Principal]) -> bool:
        allowed = await super()._recheck(query)
        if allowed and self.principal is not None and not self.principal.may(Capability.INFER):
            await self.end_generations()
        return allowed
