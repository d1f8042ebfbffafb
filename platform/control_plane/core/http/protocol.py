"""HTTP connections with bounds, for uvicorn: limits on what a peer may send before it is authenticated.

uvicorn's protocols bound neither the size of a head nor the time of a head, a body or the reading of an answer. These
do, without a timer for each connection: `sweep` checks all of them once a second. The figures are those of Apache's
mod_reqtimeout and nginx; ADR 0010 has the alternatives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from enum import Enum
from http import HTTPStatus
from typing import Any, NoReturn

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from control_plane.core.drain import is_draining
from control_plane.core.errors import LorikeetError
from control_plane.core.http.connections import RETRY_S, SLOT, ConnectionTable, Slot
from control_plane.core.http.errors import error_body
from control_plane.core.http.request_id import new_request_id, set_request_id
from control_plane.core.http.websocket_protocol import BoundedWebSocket
from control_plane.core.http.write_watch import WriteWatch

# Bytes of a request's first line and headers, and of anything later that is not a body, such as chunk extensions.
HEAD_BYTES = 32 << 10
HEADERS = 100
# Seconds from the connection, or from the first byte of a further request, to the end of the head.
HEAD_S = 15.0
# Seconds that a body may take, and bytes for each further second.
BODY_GRACE_S, BODY_BYTES_PER_S = 20.0, 500
# Requests on one connection before it is closed, so that no client stays with one process for ever.
REQUESTS = 1000
# Requests that may wait behind the one in progress.
PIPELINE = 8
# Bytes of an unread body before the connection is closed.
DRAIN_BYTES = 64 << 20
# Bytes of an unread body that count as one more request of a stranger.
DRAIN_UNIT = 128 << 10
HTTP_1_0 = "1.0"
# Seconds in which a refused peer can read the error: an immediate close, while it still sends, would discard it.
LINGER_S = 2.0


class BoundedConfig(Config):
    """uvicorn's configuration with the table of its connections."""

    def __init__(self, app: Any, connections: ConnectionTable, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, ws_per_message_deflate=False, **options)
        self.connections = connections


class PeerError(LorikeetError):
    """An error of a peer that ends its connection: bytes that are not acceptable, or came too late."""


def _head_too_large() -> PeerError:
    return PeerError(
        "header_too_large",
        f"The request's first line and headers are larger than {HEAD_BYTES} bytes or more than {HEADERS}.",
        "Send fewer and shorter headers; put long values into the body.",
        status=431,
    )


def _too_slow(what: str) -> PeerError:
    return PeerError(
        "request_timeout", f"The request's {what} did not arrive in time.", "Send it without pauses.", status=408
    )


def _malformed() -> PeerError:
    return PeerError("malformed_request", "The request is not valid HTTP/1.1.", "Use an HTTP library.")


def _no_room() -> PeerError:
    return PeerError(
        "too_many_connections",
        "This server has reached its limit of connections, from your address or in all.",
        "Close connections that you do not use, and try again in a few seconds.",
        status=503,
    )


class Phase(Enum):
    """The part of a request that the peer sends now."""

    HEAD = "head"
    BODY = "body"
    BETWEEN = "between"
    REFUSED = "refused"


class BoundedHttp(HttpToolsProtocol):
    """An HTTP connection with bounds."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._table: ConnectionTable = config.connections
        self._slot: Slot | None = None
        self._phase, self._since, self._swept = Phase.HEAD, 0.0, 0.0
        # Bytes since the end of a head or the last piece of a body; bytes of the head; of the body; requests so far.
        self._pending = self._head = self._received = self._requests = 0
        self._error: PeerError | None = None
        self._switched = False
        self._delayed = bytearray()
        self._delay: asyncio.TimerHandle | None = None

    # -- the connection ----------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._writes = WriteWatch(transport)
        self._since = self._swept = self.loop.time()
        self._slot = self._table.take(self.client)
        if self._slot is None:
            self._refuse(_no_room())
        else:
            # uvicorn copies this into the scope of every request, and of a websocket.
            self.app_state = {**self.app_state, SLOT: self._slot}
            self._slot.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._delay is not None:
            self._delay.cancel()
        if self._slot is not None:
            self._slot.give_back()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writes.progressed()

    def shutdown(self) -> None:
        if self._phase is Phase.REFUSED:
            self.transport.close()
        else:
            super().shutdown()

    def _should_upgrade(self) -> bool:
        """Return True if the request becomes a websocket. HTTP/1.0 cannot: its Upgrade header is ignored."""
        return self.parser.get_http_version() != HTTP_1_0 and super()._should_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["http_version"] == HTTP_1_0:
            cycle.waiting_for_100_continue = False  # an interim response, which HTTP/1.0 does not have
            app = _delimited_by_close(app, cycle)
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        self._switched = True
        super().handle_websocket_upgrade()

    # -- what comes ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_over() or not data:
            return
        if self._phase is Phase.BETWEEN:
            self._begin(Phase.HEAD)
            self._ask()
        if self._must_wait():
            self._delayed += data
            self.flow.pause_reading()  # again, if the application requested more of a body meanwhile
            return
        # In pieces, so that a head is refused as soon as it is too large and not after all of it was parsed.
        for start in range(0, len(data), HEAD_BYTES):
            piece = data[start : start + HEAD_BYTES]
            self._pending += len(piece)
            super().data_received(piece)
            if self._switched or self._is_over():
                return
            if self._pending > HEAD_BYTES:
                self._refuse(_head_too_large())
                return

    def _ask(self, requests: float = 1.0) -> None:
        if self._slot is not None:
            self._slot.ask(requests)

    def _must_wait(self) -> bool:
        """Return True while strangers of this address sent too many requests. Reading is paused until then."""
        if self._delay is None and self._slot is not None:
            wait_s = self._slot.wait_s()
            if wait_s:
                self._delay = self.loop.call_later(wait_s, self._go_on)
        return self._delay is not None

    def _go_on(self) -> None:
        self._delay = None
        if self._is_over() or self._must_wait():
            return  # still paused
        data, self._delayed = bytes(self._delayed), bytearray()
        self.flow.resume_reading()
        self.data_received(data)

    def _is_over(self) -> bool:
        return self._phase is Phase.REFUSED or self.transport.is_closing()

    def _begin(self, phase: Phase) -> None:
        self._phase, self._since, self._received = phase, self.loop.time(), 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        if self._phase is not Phase.HEAD:  # a further request in the same piece
            self._begin(Phase.HEAD)
            self._ask()

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > HEAD_BYTES:
            self._stop(_head_too_large())
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not Phase.HEAD:
            return  # a trailer: as a header it would pass the checks that were made on headers
        self._head += len(name) + len(value) + 4
        if len(self.headers) >= HEADERS or self._head > HEAD_BYTES:
            self._stop(_head_too_large())
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending = 0
        if len(self.pipeline) >= PIPELINE:
            self._stop(_malformed())
        self._begin(Phase.BODY)
        super().on_headers_complete()
        self._requests += 1
        if (self._requests >= REQUESTS or is_draining()) and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        self._received += len(body)
        if self.cycle is not None and self.cycle.response_complete:
            self._ask(len(body) / DRAIN_UNIT)
            if self._received > DRAIN_BYTES:
                self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = Phase.BETWEEN
        super().on_message_complete()

    # -- what is refused -----------------------------------------------------------

    def _stop(self, error: PeerError) -> NoReturn:
        """Raise from a callback of the parser, which then calls `send_400_response`."""
        self._error = error
        raise error

    def send_400_response(self, msg: str) -> None:
        """Answer input that uvicorn's parser rejects."""
        self._refuse(self._error or _malformed())

    def _refuse(self, error: PeerError) -> None:
        """Send the error and close; only close if an answer has begun, into which the error would be written."""
        waiting = self.cycle is not None and not self.cycle.response_complete
        if waiting:
            self.cycle.disconnected, self.cycle.waiting_for_100_continue = True, False
            self.cycle.message_event.set()
        if (waiting and (self.cycle.response_started or self.pipeline)) or self.transport.is_closing():
            self.transport.close()
            return
        self._begin(Phase.REFUSED)
        self._unset_keepalive_if_required()
        self.flow.pause_reading()
        self.transport.write(_answer(error))
        self.transport.write_eof()

    # -- once a second ---------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Close the connection if the peer takes too long."""
        since_last, self._swept = now - self._swept, now
        closing = self.transport.is_closing()
        if self._writes.stalls(now, waiting=closing or self.flow.write_paused or self._phase is Phase.REFUSED):
            self.transport.abort()
        elif closing:
            return
        elif self._phase is Phase.REFUSED:
            if now - self._since > LINGER_S:
                self.transport.close()
        elif self.flow.read_paused:
            self._since += since_last  # the server has paused reading: that time is not the peer's
        elif self._phase is Phase.HEAD and now - self._since > HEAD_S:
            self._end_head()
        elif self._phase is Phase.BODY and now - self._since > BODY_GRACE_S + self._received / BODY_BYTES_PER_S:
            self._refuse(_too_slow("body"))

    def _end_head(self) -> None:
        if self._pending:
            self._refuse(_too_slow("head"))
        else:
            # Opened ahead of need, as browsers do: an error would be read as the next request's answer.
            self.transport.close()


def _delimited_by_close(app: Any, cycle: RequestResponseCycle) -> Any:
    """Return an ASGI application whose answers of unknown length are not sent in chunks, which HTTP/1.0 does not have.

    The end of the connection ends them: uvicorn never keeps an HTTP/1.0 connection. The cycle's expected length is set
    to that of each part, as uvicorn would otherwise choose chunks, or refuse the part.
    """

    async def delimited(scope: Any, receive: Any, send: Any) -> None:
        has_length = False

        async def send_unchunked(message: Any) -> None:
            nonlocal has_length
            if message["type"] == "http.response.start":
                headers = [header for header in message.get("headers", ()) if header[0].lower() != b"transfer-encoding"]
                message = {**message, "headers": headers}
                has_length = any(name.lower() == b"content-length" for name, _ in headers)
                if not has_length:
                    cycle.chunked_encoding = False
            elif not has_length:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unchunked)

    return delimited


def sweep(connections: Iterable[Any], now: float) -> None:
    """Check every connection of a server; called once a second."""
    for connection in list(connections):
        connection.sweep(now)


def _answer(error: PeerError) -> bytes:
    request_id = new_request_id()
    set_request_id(request_id)
    body = json.dumps(error_body(**error.body())).encode() + b"\n"
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\nconnection: close\r\nx-request-id: {request_id}\r\n"
    head += "x-content-type-options: nosniff\r\n"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        head += f"retry-after: {RETRY_S:.0f}\r\n"
    return f"{head}\r\n".encode() + body
