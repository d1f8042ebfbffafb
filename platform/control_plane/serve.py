"""`python -m control_plane.serve`: the web process. There is no other way to start it.

It is uvicorn with the connections of `http/protocol.py`, so that every start has their bounds. Where several processes
can share an installation, it starts a second one for everything but inference (`http/handover.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from control_plane.core.processor import ask_for_short_slices

if TYPE_CHECKING:
    from control_plane.core.http.handover import SecondProcess

GRACEFUL_S = 20  # for answers in progress at a stop
# File descriptors that connections leave for the database, Redis, engines and files.
SPARE_FILES = 256
MOST_FILES = 1 << 16  # descriptors that the process requests
# Seconds after which a thread passes the interpreter to another that waits for it. The event loop, which sends all
# tokens, waits so long each time that a thread works for the console and the API, and a first token needs many such
# switches: ten of them beside two busy threads take 32 ms with Python's 5 ms, 2.9 with half a millisecond, 1.7 with
# this value. The threads then do a sixth less than with half a millisecond.
SWITCH_S = 0.0002


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    sys.setswitchinterval(SWITCH_S)
    ask_for_short_slices()
    server = make_server(options)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises Ctrl-C again after it has stopped
        server.run()
    return 0 if server.started else uvicorn.config.STARTUP_FAILURE


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m control_plane.serve", description="Run Lorikeet's web process.")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="the port, 0 for any (default %(default)s)")
    parser.add_argument(
        "--graceful-s",
        type=int,
        default=GRACEFUL_S,
        help="seconds that answers may still take once the process is to stop (default %(default)s)",
    )
    parser.add_argument("--second", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


class Server(uvicorn.Server):
    """uvicorn's server, which checks its connections every second. second: the process that takes some of them."""

    def __init__(self, config: uvicorn.Config, second: SecondProcess | None = None) -> None:
        super().__init__(config)
        self._second = second

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        from control_plane.core import drain

        await super().startup(sockets)
        if self._second is not None:
            self._second.start()
            drain.join(self._second)

    async def on_tick(self, counter: int) -> bool:
        from control_plane.core.http.protocol import sweep

        if counter % 10 == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if frame is not None and self._second is not None:  # a signal, and not the end of this process's drain
            self._second.signal()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ends = [super().shutdown(sockets)]
        if self._second is not None:
            ends.append(self._second.stop())
        await asyncio.gather(*ends)


class SecondServer(Server):
    """The server of the second process, whose connections come over its standard input."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        from control_plane.core.http.handover import Receiver

        await super().startup([])  # without a listening socket
        control = socket.socket(fileno=os.dup(sys.stdin.fileno()))
        self._receiver = Receiver(control, self._make, lambda: signal.raise_signal(signal.SIGTERM))

    def _make(self, start: bytes) -> asyncio.Protocol:
        from control_plane.core.http.protocol import BoundedHttp

        connection = BoundedHttp(self.config, server_state=self.server_state, app_state=self.lifespan.state)
        connection.initial_bytes = start
        return connection

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._receiver.close()
        await super().shutdown(sockets)


def make_server(options: argparse.Namespace) -> Server:
    from control_plane.asgi import application  # sets Django up, logging too
    from control_plane.core.config import current
    from control_plane.core.http.connections import ConnectionTable
    from control_plane.core.http.metrics import PROCESS
    from control_plane.core.http.protocol import KEEP_ALIVE_S, BoundedConfig, Bounds

    settings = current()
    PROCESS.labels("second" if options.second else "first").set(1)
    # Behind a proxy every connection comes from its address.
    per_address = 0 if settings.trust_proxy else settings.connections_per_address
    table = ConnectionTable(
        min(settings.connections_max, open_files() - SPARE_FILES), per_address, settings.stranger_requests_per_s
    )
    second = make_second(options) if settings.has_second_process and not options.second else None
    config = BoundedConfig(
        application,
        Bounds(table, second),
        host=options.host,
        port=options.port,
        loop="uvloop",
        lifespan="on",
        interface="asgi3",
        ws_max_size=settings.socket_max_message_bytes,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=options.graceful_s,
        # A proxy's headers are read in one place, http/edge.py, and only where the settings say so.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,  # Django's: JSON lines with secrets masked
    )
    return SecondServer(config) if options.second else Server(config, second)


def make_second(options: argparse.Namespace) -> SecondProcess:
    from control_plane.core.config import current
    from control_plane.core.http.handover import SecondProcess
    from control_plane.gateway.dispatch.first_bytes import stays

    command = [sys.executable, "-m", "control_plane.serve", "--second", "--graceful-s", str(options.graceful_s)]
    return SecondProcess(command, stays, stop_s=current().drain_s + options.graceful_s)


def open_files() -> int:
    """Return how many files this process may have open, after raising its limit as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft


if __name__ == "__main__":
    sys.exit(main())
