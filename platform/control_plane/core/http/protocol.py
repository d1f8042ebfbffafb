"""HTTP and websocket connections with bounds, for uvicorn: what a peer may send before anybody knows who it is.

uvicorn's own protocols bound neither the size of a head nor the time that it, a body or the reading of an answer may
take. These do, without a timer for each connection: `sweep` looks at all of them once a second. The figures are those
of Apache's mod_reqtimeout and nginx; ADR 0010 has the alternatives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, NoReturn

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from control_plane.core.errors import LorikeetError
from control_plane.core.http.connections import RETRY_S, SLOT, ConnectionTable, Slot
from control_plane.core.http.errors import error_body
from control_plane.core.http.handover import SecondProcess
from control_plane.core.http.request_id import new_request_id, set_request_id
from control_plane.core.http.websocket_protocol import BoundedWebSocket
from control_plane.core.http.write_watch import WriteWatch

HEAD_BYTES = 32 << 10
"""Of a request's first line and headers; also of what comes later and is neither, as the extensions of a chunk."""
HEADERS = 100
HEAD_S = 15.0
"""From the connection, or the first byte of a further request, to the end of the head."""
BODY_GRACE_S, BODY_BYTES_PER_S = 20.0, 500
"""A body may take this long, and a second more for every so many bytes that came."""
KEEP_ALIVE_S = 75
"""For which a connection waits for its next request: longer than balancers keep theirs."""
REQUESTS = 1000
"""On one connection; then it is closed, so that no client stays with one process for ever."""
PIPELINE = 8
"""Requests that may wait behind the one being answered."""
DRAIN_BYTES = 64 << 20
"""Of a body that nobody reads; then the connection is closed."""
DRAIN_UNIT = 128 << 10
"""So much of it counts as another request of a stranger."""
HAND_OVER_S = 3.0
"""For which a connection waits for the second process to take it."""
HTTP_1_0 = "1.0"
LINGER_S = 2.0
"""For which a refused peer can read why: to close at once, while it still sends, would take the answer from it."""


@dataclass
class Bounds:
    """What the connections of one process share."""

    connections: ConnectionTable
    second: SecondProcess | None = None


class BoundedConfig(Config):
    """uvicorn's configuration with the bounds of its connections."""

    def __init__(self, app: Any, bounds: Bounds, **options: Any) -> None:
        super().__init__(app, http=BoundedHttp, ws=BoundedWebSocket, ws_per_message_deflate=False, **options)
        self.bounds = bounds


class PeerError(LorikeetError):
    """What a peer sent, or did not send in time, ends its connection."""


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
    return PeerError("malformed_request", "This is not HTTP/1.1 as the standard has it.", "Use an HTTP library.")


def _no_room() -> PeerError:
    return PeerError(
        "too_many_connections",
        "This server has as many connections as it takes, from your address or in all.",
        "Close connections that you do not use, and try again in a few seconds.",
        status=503,
    )


class Phase(Enum):
    """Of what the peer sends."""

    HEAD = "head"
    BODY = "body"
    BETWEEN = "between"
    REFUSED = "refused"


class BoundedHttp(HttpToolsProtocol):
    """One HTTP connection."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self._table: ConnectionTable = config.bounds.connections
        self._slot: Slot | None = None
        self._phase, self._since, self._swept = Phase.HEAD, 0.0, 0.0
        # Bytes since a head ended or a piece of a body came; of the head; of the body; requests so far.
        self._pending = self._head = self._received = self._requests = 0
        self._error: PeerError | None = None
        self._switched = False
        self._delayed = bytearray()
        self._delay: asyncio.TimerHandle | None = None
        self._second: SecondProcess | None = config.bounds.second
        self._offered_at: float | None = None
        self.given = b""
        """What the process that handed it over had read of it."""

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
            if self.given:
                self.loop.call_soon(self.data_received, b"")

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
        """Whether the request becomes a websocket. An HTTP/1.0 request cannot: its Upgrade header is ignored."""
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
        data, self.given = self.given + data, b""
        if self._is_over() or not data:
            return
        if self._phase is Phase.BETWEEN:
            self._begin(Phase.HEAD)
            self._ask()
        if self._second is not None and self._goes(self._second, data):
            self._second.offer(self)
        elif self._must_wait():
            self._delay_reading(data)
        else:
            self._take_up(data)

    def _delay_reading(self, data: bytes) -> None:
        self._delayed += data
        self.flow.pause_reading()  # again, if the application has asked for more of a body

    # -- to the second process -----------------------------------------------------

    def _goes(self, second: SecondProcess, data: bytes) -> bool:
        """Whether it is to be offered, which its first bytes tell."""
        if not second.wants(data):
            self._second = None
            return False
        self._offered_at = self.loop.time()
        self._delay_reading(data)
        return True

    @property
    def first_bytes(self) -> bytes:
        return bytes(self._delayed)

    def let_go(self) -> None:
        self._delayed.clear()
        self._ask(-1.0)
        self.transport.abort()  # closes it here alone

    def keep(self) -> None:
        self._second, self._offered_at = None, None
        if not self._is_over():
            self._read_on()

    def _ask(self, requests: float = 1.0) -> None:
        if self._slot is not None:
            self._slot.ask(requests)

    def _must_wait(self) -> bool:
        """Whether strangers of this address sent too many requests. If so nothing is read until they may go on."""
        if self._delay is None and self._slot is not None:
            wait_s = self._slot.wait_s()
            if wait_s:
                self._delay = self.loop.call_later(wait_s, self._go_on)
        return self._delay is not None

    def _go_on(self) -> None:
        self._delay = None
        if self._is_over() or self._must_wait():
            return  # still paused
        self._read_on()

    def _read_on(self) -> None:
        data, self._delayed = bytes(self._delayed), bytearray()
        self.flow.resume_reading()
        self.data_received(data)

    def _take_up(self, data: bytes) -> None:
        # In pieces, so that a head is judged when it is too large and not when all of it has been parsed.
        for start in range(0, len(data), HEAD_BYTES):
            piece = data[start : start + HEAD_BYTES]
            self._pending += len(piece)
            super().data_received(piece)
            if self._switched or self._is_over():
                return
            if self._pending > HEAD_BYTES:
                self._refuse(_head_too_large())
                return

    def _is_over(self) -> bool:
        return self._phase is Phase.REFUSED or self.transport.is_closing()

    def _begin(self, phase: Phase) -> None:
        self._phase, self._since, self._received = phase, self.loop.time(), 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        if self._phase is not Phase.HEAD:  # a further one in the same piece
            self._begin(Phase.HEAD)
            self._ask()

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > HEAD_BYTES:
            self._stop(_head_too_large())
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not Phase.HEAD:
            return  # a trailer: taken for a header, it would pass by whoever checked those
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
        if self._requests >= REQUESTS and self.cycle is not None:
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
        """Out of a callback of the parser, which then calls `send_400_response`."""
        self._error = error
        raise error

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what its parser does not take."""
        self._refuse(self._error or _malformed())

    def _refuse(self, error: PeerError) -> None:
        """Say why and close; without a word where an answer is on its way, into which it would be written."""
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
        """Whether the peer takes too long."""
        since_last, self._swept = now - self._swept, now
        closing = self.transport.is_closing()
        if self._writes.stalls(now, waiting=closing or self.flow.write_paused or self._phase is Phase.REFUSED):
            self.transport.abort()
        elif closing:
            return
        elif self._phase is Phase.REFUSED:
            if now - self._since > LINGER_S:
                self.transport.close()
        elif self._second is not None and self._offered_at is not None:
            if now - self._offered_at > HAND_OVER_S:
                self._second.withdraw(self)
                self.keep()
        elif self.flow.read_paused:
            self._since += since_last  # it is we who do not read
        elif self._phase is Phase.HEAD and now - self._since > HEAD_S:
            self._end_head()
        elif self._phase is Phase.BODY and now - self._since > BODY_GRACE_S + self._received / BODY_BYTES_PER_S:
            self._refuse(_too_slow("body"))

    def _end_head(self) -> None:
        if self._pending:
            self._refuse(_too_slow("head"))
        else:
            self.transport.close()  # opened ahead of need, as browsers do: an answer would be taken for the next one's


def _delimited_by_close(app: Any, cycle: RequestResponseCycle) -> Any:
    """Return an ASGI application whose answers of unknown length are not sent in chunks, which HTTP/1.0 does not have.

    The end of the connection ends them: uvicorn never keeps a connection of HTTP/1.0. The cycle is told of each part
    that it has the length that was declared, as it would otherwise choose chunks, or refuse the part.
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
    """Look at every connection of a server; called once a second."""
    for connection in list(connections):
        connection.sweep(now)


def _answer(error: PeerError) -> bytes:
    request_id = new_request_id()
    set_request_id(request_id)
    body = json.dumps(error_body(**error.body())).encode()
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
    head += f"content-length: {len(body)}\r\nconnection: close\r\nx-request-id: {request_id}\r\n"
    head += "x-content-type-options: nosniff\r\n"
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        head += f"retry-after: {RETRY_S:.0f}\r\n"
    return f"{head}\r\n".encode() + body
