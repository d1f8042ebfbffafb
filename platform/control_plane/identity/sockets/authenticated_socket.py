"""The base of both websockets of the platform: authentication, rechecks and orderly closing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable
from typing import Any, ClassVar

from channels.consumer import get_handler_name
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from redis.exceptions import RedisError
from uvicorn.protocols.utils import ClientDisconnected

from control_plane.core import drain
from control_plane.core.cancellation import to_completion
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.events.recheck import RECHECK_S
from control_plane.core.http.connections import prove, tenant_holder
from control_plane.core.http.json_body import read_object
from control_plane.core.http.metrics import SOCKETS
from control_plane.core.http.parse_queue import parsed
from control_plane.core.http.websocket_protocol import admit, charge
from control_plane.core.unavailable import as_unavailable
from control_plane.identity.access.principal import Principal
from control_plane.identity.single_flight import FRESH_S, forget
from control_plane.identity.sockets.handshake import origin_is_ours
from control_plane.identity.sockets.identity import Caller
from control_plane.identity.sockets.recheck_cache import recent_principal
from control_plane.identity.sockets.tickets import redeem
from control_plane.identity.tenants.roles import Capability

logger = logging.getLogger(__name__)

AUTH_WITHIN_S = 15.0  # from the connection
# Close codes of Lorikeet; 4xxx is the range that browsers pass through.
CLOSE_UNAUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_NOT_FOUND = 4404
# Registered close codes: an internal error; connect again later.
CLOSE_INTERNAL = 1011
CLOSE_TRY_AGAIN = 1013


class TicketError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "ticket_invalid",
            "The socket's ticket is unknown, was used already, or is older than half a minute.",
            "POST socket-ticket for a new one, from the console's own address.",
            status=401,
        )


class UnauthenticatedError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "not_authenticated",
            "The socket is not authenticated.",
            'Send {"type": "auth", "key": "lk_..."} first; the console sends a ticket instead.',
            status=401,
        )


class SocketFailedError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "internal_error",
            "An unexpected error happened on the server; it has been logged.",
            "Connect again. If it persists, report it to the operator of this server.",
            status=500,
        )


# Close codes by HTTP status of the error. Lorikeet's codes tell a client that connecting again would not help.
_CLOSE_CODES = {
    403: CLOSE_FORBIDDEN,
    404: CLOSE_NOT_FOUND,
    429: CLOSE_TRY_AGAIN,
    500: CLOSE_INTERNAL,
    503: CLOSE_TRY_AGAIN,
}


def close_code(status: int) -> int:
    """Return the code with which a socket is closed for an error of this HTTP status."""
    return _CLOSE_CODES.get(status, CLOSE_UNAUTHENTICATED)


class AuthenticatedSocket(AsyncWebsocketConsumer):  # type: ignore[misc]
    """A socket whose caller authenticated within ``AUTH_WITHIN_S``, and stays authorised.

    It rechecks the caller when it is notified (``events/recheck.py``), and every ``RECHECK_S`` in case it was not. It
    outlives an outage of Redis, in which only the regular recheck works.
    """

    # Every message that clients may send, with the required capability; None: no authentication. Tests iterate over it.
    actions: ClassVar[dict[str, Capability | None]]
    # The capability that the socket's caller must have.
    needs: ClassVar[Capability]

    caller: Caller | None = None
    principal: Principal | None = None
    _hurry: asyncio.TimerHandle | None = None
    _watch: asyncio.Task[None] | None = None
    _was_cut = False
    _counted = False

    async def tell_error(self, error: LorikeetError) -> None:
        """Send an error that belongs to no particular message."""
        raise NotImplementedError

    async def connect(self) -> None:
        await self.accept()
        drain.join(self)
        SOCKETS.labels(self.scope["path"]).inc()
        self._counted = True
        self._hurry = asyncio.get_running_loop().call_later(AUTH_WITHIN_S, self._too_late)

    async def disconnect(self, code: int) -> None:
        if self._counted:
            SOCKETS.labels(self.scope["path"]).dec()
        if self._hurry is not None:
            self._hurry.cancel()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])  # it may be joining the group
        if self.caller is not None:
            await self.leave_group(self.caller.group)

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Handle a message of the channel layer or the client.

        After any error the client gets the error, and a close code that says whether to reconnect.
        """
        try:
            # Without Channels' dispatch, which first closes database connections on a thread: `run_db` manages them.
            await getattr(self, get_handler_name(message))(message)
        except StopConsumer:
            raise
        except ClientDisconnected:  # while it was answered; the next message is the disconnect
            logger.debug("A client disconnected before it read an answer.")
        except Exception as error:
            if message["type"] == "websocket.disconnect":
                logger.exception("A socket did not end cleanly.")
                raise StopConsumer from error
            await self._fail(error)

    async def _fail(self, error: Exception) -> None:
        away = as_unavailable(error)
        if away is None:
            logger.error("A socket is closed because of an error.", exc_info=error)
        with contextlib.suppress(OSError):  # the socket itself failed
            await self.cut(away or SocketFailedError())

    async def layer_lost(self, message: dict[str, Any]) -> None:
        """Handle the loss of Redis (a message of the channel layer): no notifications arrive until it is back."""

    async def layer_back(self, message: dict[str, Any]) -> None:
        """Handle the return of Redis: notifications were lost meanwhile, and perhaps the group too."""
        if self.caller is not None and await self._recheck(recent_principal(self.caller)):
            await self._join()

    async def leave_group(self, group: str) -> None:
        with contextlib.suppress(RedisError, OSError):  # the membership expires by itself
            await self.channel_layer.group_discard(group, self.channel_name)

    async def _join(self) -> None:
        """Subscribe to changes of the caller's permissions. Without Redis only the regular recheck works."""
        assert self.caller is not None
        try:
            await to_completion(self.channel_layer.group_add(self.caller.group, self.channel_name))
        except (RedisError, OSError) as error:
            logger.warning("A socket gets no notifications until Redis is back: %s", error)

    async def hold_by_ticket(self, ticket: str) -> bool:
        """Authenticate by a ticket. Only pages of the console may use one."""
        caller = await run_db(redeem, ticket) if origin_is_ours(self.scope) else None
        if caller is None:
            await self.cut(TicketError())
            return False
        return await self.hold(caller)

    async def hold(self, caller: Caller) -> bool:
        """Authenticate the caller. Returns False if it is refused: it got the error, and the socket is closed."""
        # Join before the check, so that later changes are noticed. The check may read data from a moment before, so it
        # is soon repeated.
        self.caller = caller
        await self._join()
        if not await self._recheck(recent_principal(caller)) or not await self._prove():
            return False
        if self._hurry is not None:
            self._hurry.cancel()
        self._watch = asyncio.create_task(self._recheck_regularly())
        return True

    async def _prove(self) -> bool:
        """Count the connection for the tenant from now on."""
        assert self.principal is not None
        try:
            holder = tenant_holder(self.principal.tenant.pk)
            prove(self.scope, holder)
            admit(self.scope, holder)
        except LorikeetError as error:
            await self.cut(error)
            return False
        return True

    async def parse(self, text: str, *, nul: bool = False) -> dict[str, Any]:
        """Return a message's JSON object, as `read_object` does; parsing is charged to the tenant. Raises JsonError."""
        took = 0.0

        def read() -> dict[str, Any]:
            nonlocal took
            began = time.thread_time()
            try:
                return read_object(text, nul=nul)
            finally:
                took = time.thread_time() - began

        try:
            return await parsed(len(text), read)
        finally:
            charge(self.scope, took)

    async def admits(self, kind: object) -> bool:
        """Return True if a message of this kind may come now. Strangers are cut off. Raises ForbiddenError."""
        if not isinstance(kind, str) or kind not in self.actions:
            return self.principal is not None or await self._cut_stranger()
        needed = self.actions[kind]
        if needed is not None and self.principal is None:
            return await self._cut_stranger()
        if needed is not None and self.principal is not None:
            self.principal.require(needed)
        return True

    async def _cut_stranger(self) -> bool:
        await self.cut(UnauthenticatedError())
        return False

    async def access_recheck(self, message: dict[str, Any]) -> None:
        """Handle a change of the caller's permissions (a message of the channel layer)."""
        assert self.caller is not None
        forget(self.principal.tenant.pk if self.principal is not None else None)
        await self._recheck(run_db(self.caller.principal))

    async def cut(self, error: LorikeetError) -> None:
        """Send the error and close, once."""
        if self._was_cut:
            return
        self._was_cut, self.principal = True, None
        await self.tell_error(error)
        await self.close(close_code(error.status))

    async def move(self) -> None:
        """Ask the client to reconnect, which leads it to another process: this one is about to stop."""
        await self.send(text_data='{"type": "move"}')

    def _too_late(self) -> None:
        self._hurry = None
        self._closing = asyncio.ensure_future(self._cut_late())

    async def _cut_late(self) -> None:
        with contextlib.suppress(OSError):  # the stranger has disconnected meanwhile
            await self.cut(UnauthenticatedError())

    async def _recheck(self, query: Awaitable[Principal]) -> bool:
        try:
            principal = await query
            principal.require(self.needs)
        except LorikeetError as error:
            await self.cut(error)
            return False
        self.principal = principal
        return True

    async def _recheck_regularly(self) -> None:
        assert self.caller is not None
        pause = 2 * FRESH_S
        while True:
            await asyncio.sleep(pause)
            pause = RECHECK_S
            try:
                if not await self._recheck(recent_principal(self.caller)):
                    return
            except Exception as error:
                # The database is away, and the cached permissions have become too old to rely on.
                await self._fail(error)
                return
            await self._join()  # again: Redis may have lost the group, and drops it after a day
