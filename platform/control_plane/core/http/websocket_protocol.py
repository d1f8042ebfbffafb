"""Websocket connections with bounds, for uvicorn: how much of a peer's data is read, and how fast.

Data is parsed in small pieces, when the application wants a message and the allowance of frames permits it. The rest
stays in the socket, so TCP slows down a peer that sends too fast, and nothing is lost. A stranger may send little in
all, until the application admits it. Messages are not compressed, so their size is known as they arrive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import DATA_OPCODES, CloseCode, Frame
from websockets.http11 import Request

from control_plane.core.http.allowance import Allowance
from control_plane.core.http.connections import SLOT
from control_plane.core.http.write_watch import WriteWatch

PIECE = 4096  # bytes that are parsed at once
# Frames of one websocket that are served a second, and at once. A frame of any kind counts one, and one more for every
# `FRAME_BYTES` that arrive.
FRAMES_PER_S, FRAMES_AT_ONCE = 200.0, 1000.0
FRAME_BYTES = 16 << 10
# The same of all websockets of a tenant in this process. A frame with data counts one, and one more for every
# `FRAME_CPU_S` that it takes to parse: 650 KB of JSON with 60,000 names take 20 ms, in which the event loop serves
# nothing else. Before that is measured it counts one for every `DEPOSIT_BYTES`, or many sockets would each send such a
# message at once.
TENANT_FRAMES_PER_S, TENANT_FRAMES_AT_ONCE = 400.0, 1000.0
FRAME_CPU_S = 50e-6
DEPOSIT_BYTES = 2 << 10
# Bytes of a large message that are read in one iteration of the event loop.
TURN_BYTES = 64 << 10
STRANGER_FRAMES_PER_S, STRANGER_FRAMES_AT_ONCE, STRANGER_BYTES = 1.0, 16.0, 8 << 10
FRAGMENTS = 1024  # of one message
# Seconds in which a peer whose frame was refused can read the error.
LINGER_S = 2.0
# Key of a websocket's `scope["state"]` that holds its connection.
SOCKET = "lorikeet.socket"


class TenantQueue:
    """All websockets of a tenant: their shared allowance, and the order in which they are read.

    They wait in one queue with one timer. With a timer each, all would wake at once for what one of them may read,
    hundreds of times a second; and large messages of several would be read in one iteration of the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.allowance = Allowance.full(TENANT_FRAMES_PER_S, TENANT_FRAMES_AT_ONCE, loop.time())
        self._waiting: deque[BoundedWebSocket] = deque()
        self._timer: asyncio.Handle | None = None

    def may_read(self, socket: BoundedWebSocket, *, first: bool) -> bool:
        """Return True if the socket may read now; else queue it. `first`: it was at the head of the queue."""
        if (first or not self._waiting) and not self.allowance.wait_s(socket.loop.time()):
            return True
        self.queue_up(socket)
        return False

    def queue_up(self, socket: BoundedWebSocket) -> None:
        """Queue the socket for a later iteration of the event loop."""
        if socket not in self._waiting:
            self._waiting.append(socket)
        if self._timer is None:
            self._arm(socket.loop)

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self.allowance.wait_s(loop.time()), self._serve, loop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve the first socket, unless the cost of a message was charged meanwhile."""
        self._timer = None
        if not self.allowance.wait_s(loop.time()):
            self._waiting.popleft().read_queued()
        if self._waiting and self._timer is None:
            self._arm(loop)


# Queues of all tenants that had a websocket here. They are kept: closing a socket and opening another must not refill
# an allowance.
_tenants: dict[Hashable, TenantQueue] = {}


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A websocket with bounds. `BoundedHttp` has counted its connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._buffer = bytearray()
        self._allowance = Allowance.full(STRANGER_FRAMES_PER_S, STRANGER_FRAMES_AT_ONCE, self.loop.time())
        self._tenant: TenantQueue | None = None
        self._deposit = 0.0
        self._taken_up = 0
        self._wanted = False
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, holder: Hashable) -> None:
        """Give an authenticated socket its holder's allowance."""
        self._allowance = Allowance.full(FRAMES_PER_S, FRAMES_AT_ONCE, self.loop.time())
        if holder not in _tenants:
            _tenants[holder] = TenantQueue(self.loop)
        self._tenant = _tenants[holder]
        self._read()

    def charge(self, cpu_s: float) -> None:
        """Charge the processor time of a message in place of the deposit for its size."""
        if self._tenant is not None:
            self._tenant.allowance.spend(cpu_s / FRAME_CPU_S - self._deposit)
            self._deposit = 0.0

    @property
    def _stranger(self) -> bool:
        return self._tenant is None

    # -- the connection ----------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._writes = WriteWatch(cast(asyncio.Transport, transport))

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["state"][SOCKET] = self

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()
        if hasattr(self, "scope"):
            self.scope["state"].pop(SOCKET, None)
        if (slot := self.app_state.get(SLOT)) is not None:
            slot.refused()  # counts only if the connection was never proven
            slot.give_back()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writes.progressed()

    def sweep(self, now: float) -> None:
        waiting = not self.writable.is_set() or self.transport.is_closing()
        if self._writes.stalls(now, waiting=waiting):
            self.transport.abort()

    # -- what comes ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
        elif not self._failed:
            self._buffer += data
            self._read()

    async def receive(self) -> Any:
        self._wanted = True
        self._read()
        try:
            return await self.queue.get()
        finally:
            self._wanted = False

    async def send(self, message: Any) -> None:
        """Send a message. After a close it is dropped: the application may learn of the close at its next `receive`."""
        if not self.close_sent:
            await super().send(message)

    def handle_events(self) -> None:
        self._allowance.spend(len(self.conn.events))
        if self._tenant is not None:
            self._tenant.allowance.spend(
                sum(isinstance(event, Frame) and event.opcode in DATA_OPCODES for event in self.conn.events)
            )
        super().handle_events()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"more than {FRAGMENTS} fragments")
        else:
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        try:
            if self.curr_msg_data_type == "text":
                b"".join(self.frames).decode()
        except UnicodeDecodeError:  # uvicorn would log each with a traceback
            self._fail(CloseCode.INVALID_DATA, "not UTF-8")
        else:
            super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Do as uvicorn does, but leave the peer time to read the error."""
        self._failed = True
        self._buffer.clear()
        close = self.conn.close_sent
        if close is None:  # the handshake had not ended
            self.transport.close()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": close.code, "reason": close.reason})
        self.transport.pause_reading()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.close_timer is not None:
            self.close_timer.cancel()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason)
        self.handle_parser_exception()

    def read_queued(self) -> None:
        """Read a little: the socket is at the head of its tenant's queue."""
        self._read(first=True)

    def _read(self, *, first: bool = False) -> None:
        """Parse what arrived, until there is a message for the application, the allowance is used up or another socket
        of the tenant must be read first."""
        taken_up = 0
        while self._buffer and self._may_read(first=first):
            if taken_up >= TURN_BYTES and self._tenant is not None:
                self._tenant.queue_up(self)
                break
            piece = bytes(self._buffer[:PIECE])
            del self._buffer[:PIECE]
            taken_up += len(piece)
            self._take_up(piece)
        self._balance()

    def _take_up(self, piece: bytes) -> None:
        self._allowance.spend(len(piece) / FRAME_BYTES)
        if self._tenant is not None:
            self._tenant.allowance.spend(len(piece) / DEPOSIT_BYTES)
            self._deposit += len(piece) / DEPOSIT_BYTES
        self._taken_up += len(piece)
        super().data_received(piece)
        if self._stranger and self._taken_up > STRANGER_BYTES and not self.close_sent:
            self._fail(CloseCode.MESSAGE_TOO_BIG, f"more than {STRANGER_BYTES} bytes before authentication")

    def _may_read(self, *, first: bool) -> bool:
        if self._failed or self.transport.is_closing():
            self._buffer.clear()
            return False
        if not self.close_sent and not (self.queue.empty() and (self._wanted or not self._stranger)):
            return False
        if wait_s := self._allowance.wait_s(self.loop.time()):
            if self._timer is None:
                self._timer = self.loop.call_later(wait_s, self._go_on)
            return False
        return self._tenant is None or self._tenant.may_read(self, first=first)

    def _go_on(self) -> None:
        self._timer = None
        self._read()

    def _balance(self) -> None:
        """Pause reading from the peer while data or messages wait."""
        if self.transport.is_closing():
            return
        waits = bool(self._buffer) or not (self.queue.empty() or self.close_sent)
        if waits and not self.read_paused:
            self.transport.pause_reading()
        elif self.read_paused and not waits:
            self.transport.resume_reading()
        self.read_paused = waits


def admit(scope: Mapping[str, Any], holder: Hashable) -> None:
    """Lift a stranger's limits from the request's websocket: the client has authenticated."""
    socket = scope.get("state", {}).get(SOCKET)
    if socket is not None:
        socket.admit(holder)


def charge(scope: Mapping[str, Any], cpu_s: float) -> None:
    """Charge the holder of the request's websocket for processor time; it is then read more slowly."""
    socket = scope.get("state", {}).get(SOCKET)
    if socket is not None:
        socket.charge(cpu_s)
