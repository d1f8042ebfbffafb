"""A second web process that takes over connections which this one accepted.

Uploads, the console and sign-ins would otherwise share Python's lock and the collector's pauses with the event loop
that streams tokens.

Both can serve everything. The first process listens and reads the first bytes of each connection. If the first
request is not for inference, it sends the connection with these bytes over a Unix socket, and the second process
continues it like its own. The bounds of connections hold on both sides: a connection counts in the process that has
it. While the second process is away or overloaded, the first serves all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

logger = logging.getLogger(__name__)

# First bytes of a connection: the most that an event loop reads at once.
MOST_BYTES = 256 << 10
# Bytes requested for the send buffer, into which a message must fit. Linux grants up to net.core.wmem_max.
SEND_BUFFER = 1 << 20
# Connections taken over in one iteration of the event loop.
AT_ONCE = 16
# The second process's heartbeat, sent every `BEAT_S`.
READY = b"\x01"
# Seconds between heartbeats, and without one until the second process counts as hung: new connections are served here
# then, and those it has wait for it.
BEAT_S, SILENCE_S = 1.0, 4.0
# Seconds until an ended process is started again; the second value if it never became ready.
RESTART_S, BROKEN_RESTART_S = 1.0, 15.0
# Seconds that it may take to end after its drain.
STOP_SPARE_S = 10.0


class Connection(Protocol):
    """A connection that may be handed over."""

    transport: asyncio.Transport

    @property
    def first_bytes(self) -> bytes: ...

    def let_go(self) -> None:
        """Close it here: the other process has it."""

    def keep(self) -> None:
        """Serve it in this process."""


class SecondProcess:
    """The other web process: it is started, restarted when it ends, and gets connections. For the event loop only.

    command: runs `Receiver` with its standard input. stays: returns True if a connection that begins with these bytes
    is served here. stop_s: how long it may take to drain and to end.
    """

    def __init__(self, command: Sequence[str], stays: Callable[[bytes], bool], stop_s: float) -> None:
        self._command, self._stays, self._stop_s = command, stays, stop_s + STOP_SPARE_S
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready = self._came_up = self._full = self._stopping = False
        self._heard_at = 0.0
        self._waiting: deque[Connection] = deque()

    # -- connections -----------------------------------------------------------------

    def wants(self, start: bytes) -> bool:
        """Return True if a connection that begins with these bytes should be offered."""
        return self._listens() and len(start) <= MOST_BYTES and not self._stays(start)

    def _listens(self) -> bool:
        return self._ready and asyncio.get_running_loop().time() - self._heard_at < SILENCE_S

    def offer(self, connection: Connection) -> None:
        """Queue a connection for the other process. It reads nothing until `let_go` or `keep` is called."""
        self._waiting.append(connection)
        if not self._full:
            self._send()

    def withdraw(self, connection: Connection) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(connection)

    def _send(self) -> None:
        while self._waiting and self._control is not None and self._ready:
            connection = self._waiting[0]
            if connection.transport.is_closing():
                self._waiting.popleft()
                continue
            descriptor = connection.transport.get_extra_info("socket").fileno()
            try:
                socket.send_fds(self._control, [connection.first_bytes], [descriptor])
            except BlockingIOError:
                self._wait_for_room(self._control)
                return
            except OSError as error:  # the process has just ended, or the message does not fit
                logger.info("A connection could not be handed over: %s", error)
                self._waiting.popleft().keep()
            else:
                self._waiting.popleft().let_go()
        while self._waiting:
            self._waiting.popleft().keep()

    def _wait_for_room(self, control: socket.socket) -> None:
        if not self._full:
            self._full = True
            asyncio.get_running_loop().add_writer(control, self._has_room)

    def _has_room(self) -> None:
        assert self._control is not None
        self._full = False
        asyncio.get_running_loop().remove_writer(self._control)
        self._send()

    # -- the process -----------------------------------------------------------------

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_running(), name="second process")

    async def move(self) -> None:
        """Drain the other process too, as this one drains."""
        self._stopping = True
        self.signal()

    def signal(self) -> None:
        """Send SIGTERM: the process drains, or stops at once if it is draining."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Wait for the other process to end, and kill it if it takes too long."""
        if not self._stopping:
            await self.move()
        if self._task is None:
            return
        if self._process is None or self._process.returncode is not None:
            self._task.cancel()  # it is waiting to start the next process
        try:
            async with asyncio.timeout(self._stop_s):
                await asyncio.gather(self._task, return_exceptions=True)
        except TimeoutError:
            logger.warning("The second process did not end within %.0f s.", self._stop_s)
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()

    async def _keep_running(self) -> None:
        while not self._stopping:
            self._came_up = False
            await self._run()
            if not self._stopping:
                code = self._process.returncode if self._process is not None else None
                logger.error(
                    "The second process ended with status %s; this one serves all until it is restarted.", code
                )
                await asyncio.sleep(RESTART_S if self._came_up else BROKEN_RESTART_S)

    async def _run(self) -> None:
        """Run the process once, until it ends."""
        ours, theirs = control_pair()
        with ours:
            with theirs:
                # Its own session: a Ctrl-C reaches only the first process, which ends this one in order. And Linux
                # shares the processor among sessions, so its threads together get no more than the first process has.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=theirs.fileno(), start_new_session=True
                )
            self.connect(ours)
            try:
                await self._process.wait()
            finally:
                self._disconnect(ours)

    def connect(self, control: socket.socket) -> None:
        """Use the socket of a started process, which reports when it is ready."""
        self._control = control
        asyncio.get_running_loop().add_reader(control, self._hear, control)

    def _disconnect(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(control)
        loop.remove_writer(control)
        self._control, self._ready, self._full = None, False, False
        self._send()

    def _hear(self, control: socket.socket) -> None:
        """Read heartbeats: the process is ready, or accepts no more connections."""
        self._heard_at = asyncio.get_running_loop().time()
        try:
            self._ready = control.recv(1) == READY
        except BlockingIOError:
            return
        except OSError:
            self._ready = False
        self._came_up |= self._ready
        if not self._ready:
            asyncio.get_running_loop().remove_reader(control)
        self._send()


class Receiver:
    """The receiving end in the second process. make: returns a protocol for a connection that has sent these bytes.

    ended: called when the first process has ended.
    """

    def __init__(
        self, control: socket.socket, make: Callable[[bytes], asyncio.Protocol], ended: Callable[[], None]
    ) -> None:
        self._control, self._make, self._ended = control, make, ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._take)
        self._beat()

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the first process is not reading, or has ended
            self._control.send(READY)
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            if not self._take_one():
                break
        if self._over:
            asyncio.get_running_loop().remove_reader(self._control)
            self._ended()

    def _take_one(self) -> bool:
        try:
            start, files, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError:
            start, files = b"", []
        self._over = not start
        if files:
            task = asyncio.get_running_loop().create_task(self._go_on(socket.socket(fileno=files[0]), start))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return not self._over

    async def _go_on(self, connection: socket.socket, start: bytes) -> None:
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._make(start), connection)
        except OSError as error:  # the peer has disconnected
            logger.info("A connection ended while it was handed over: %s", error)
            connection.close()

    async def close(self) -> None:
        """Accept the connections that are on their way, and no more."""
        self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._control)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RD)
        while self._take_one():
            pass
        self._control.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets; each message between them carries one connection."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        one.setblocking(False)
    return pair
