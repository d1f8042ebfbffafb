"""A second web process that takes over connections which this one accepted.

Uploads, the console and sign-ins would otherwise share Python's lock and the collector's pauses with the event loop
that streams tokens.

Both can serve everything. The first listens, reads the first bytes of each connection, and sends it with these over a
Unix socket if its first request is not for inference; the second goes on with it as with one of its own. The bounds of
connections hold on both sides: a connection counts in the process that has it. While the second process is away, or
does not keep up, the first serves all.
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

MOST_BYTES = 256 << 10
"""Of a connection's first bytes: what an event loop reads at once."""
SEND_BUFFER = 1 << 20
"""Asked for; Linux gives as much of it as net.core.wmem_max allows, and a message must fit."""
AT_ONCE = 16
"""Connections that are taken up in one turn of the event loop."""
READY = b"\x01"
"""Said once a second."""
BEAT_S, SILENCE_S = 1.0, 4.0
"""After so long a silence it hangs: connections are served here, those that it was given wait for it."""
RESTART_S, BROKEN_RESTART_S = 1.0, 15.0
"""Before it is started again; the second if it had not come to be ready."""
STOP_SPARE_S = 10.0


class Connection(Protocol):
    """One that may go."""

    transport: asyncio.Transport

    @property
    def first_bytes(self) -> bytes: ...

    def let_go(self) -> None:
        """The other process has it."""

    def keep(self) -> None:
        """It is served here."""


class SecondProcess:
    """Starts it, again when it ends, and hands connections over. For the event loop only.

    command: of a process that calls `Receiver` with its standard input. stays: whether a connection that begins with
    these bytes is served here. stop_s: how long it may take to drain and to end.
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
        """Whether a connection that begins so is to be offered."""
        return self._listens() and len(start) <= MOST_BYTES and not self._stays(start)

    def _listens(self) -> bool:
        return self._ready and asyncio.get_running_loop().time() - self._heard_at < SILENCE_S

    def offer(self, connection: Connection) -> None:
        """It reads nothing until it is let go, or kept."""
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
            except OSError as error:  # it ends just now, or the message does not fit
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
        """This process drains, and so does the other one."""
        self._stopping = True
        self.signal()

    def signal(self) -> None:
        """SIGTERM: to drain, or if it does already to stop at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Wait for its end."""
        if not self._stopping:
            await self.move()
        if self._task is None:
            return
        if self._process is None or self._process.returncode is not None:
            self._task.cancel()  # it waits to start another
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
                logger.error("The second process ended with %s; this one serves all, and starts it again.", code)
                await asyncio.sleep(RESTART_S if self._came_up else BROKEN_RESTART_S)

    async def _run(self) -> None:
        """One life of it."""
        ours, theirs = control_pair()
        with ours:
            with theirs:
                # A session of its own: a Ctrl-C is for the first, which ends this one in order; and Linux shares the
                # processor among sessions, so that all its threads together take no more than the first has.
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=theirs.fileno(), start_new_session=True
                )
            self.connect(ours)
            try:
                await self._process.wait()
            finally:
                self._disconnect(ours)

    def connect(self, control: socket.socket) -> None:
        """There is a process behind it, which says when it is ready."""
        self._control = control
        asyncio.get_running_loop().add_reader(control, self._hear, control)

    def _disconnect(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(control)
        loop.remove_writer(control)
        self._control, self._ready, self._full = None, False, False
        self._send()

    def _hear(self, control: socket.socket) -> None:
        """It is ready, as it says again and again, or takes no more."""
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
    """The second process's side. make: a protocol for a connection that has sent these bytes.

    ended: called when the first process is gone.
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
        with contextlib.suppress(OSError):  # it does not listen just now, or has gone
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
        except OSError as error:  # its peer has gone
            logger.info("A connection that was handed over has ended: %s", error)
            connection.close()

    async def close(self) -> None:
        """Take what is on its way, and no more."""
        self._timer.cancel()
        asyncio.get_running_loop().remove_reader(self._control)
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RD)
        while self._take_one():
            pass
        self._control.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Each message is one connection."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        one.setblocking(False)
    return pair
