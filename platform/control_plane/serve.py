"""`python -m control_plane.serve`: the web process. There is no other way to start it.

It is uvicorn with the connections of `http/protocol.py`, so that every start has their bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Sequence

import uvicorn

GRACEFUL_S = 20  # for answers in progress at a stop
# Seconds that a connection waits for its next request: longer than load balancers keep theirs.
KEEP_ALIVE_S = 75
# File descriptors that connections leave for the database, Redis, engines and files.
SPARE_FILES = 256
# Maximum number of open file descriptors that the process requests.
MAX_FILES = 1 << 16
# Seconds after which a thread passes the interpreter to another that waits for it. The event loop, which sends all
# tokens, waits so long each time that a thread works for the console and the API, and a first token needs many such
# switches: ten of them beside two busy threads take 32 ms with Python's 5 ms, 2.9 with half a millisecond, 1.7 with
# this value. The threads then do a sixth less than with half a millisecond.
SWITCH_S = 0.0002
# Seconds between the end of listening and the end of idle connections: requests that were sent before are read by then.
LAST_REQUESTS_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    sys.setswitchinterval(SWITCH_S)
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
    parser.add_argument(
        "--keep-alive-s",
        type=int,
        default=KEEP_ALIVE_S,
        help="seconds that a connection waits for its next request (default %(default)s): more than a balancer in"
        " front keeps idle connections",
    )
    return parser.parse_args(arguments)


class Server(uvicorn.Server):
    """uvicorn's server, which checks its connections every second."""

    async def on_tick(self, counter: int) -> bool:
        from control_plane.core.http.protocol import sweep

        if counter % 10 == 0:
            sweep(self.server_state.connections, asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop without a connection that the kernel has accepted and nobody answers: balancers would report 502."""
        await self._stop_listening()
        if not self.force_exit:
            await asyncio.sleep(LAST_REQUESTS_S)
        await super().shutdown(sockets)

    async def _stop_listening(self) -> None:
        """Accept what waits, and close at once. The event loop's own close would drop what waits."""
        loop = asyncio.get_running_loop()
        listeners = [socket.socket(fileno=os.dup(each.fileno())) for server in self.servers for each in server.sockets]
        for server in self.servers:
            server.close()
        for listener in listeners:
            accepted = []
            with listener, contextlib.suppress(OSError):  # nothing waits any more, or no descriptor is left
                listener.setblocking(False)
                while True:
                    accepted.append(listener.accept()[0])
            for connection in accepted:
                with contextlib.suppress(OSError):  # its client has gone
                    await loop.connect_accepted_socket(self._protocol, connection)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


def make_server(options: argparse.Namespace) -> Server:
    from control_plane.asgi import application  # sets Django up, logging too
    from control_plane.core.config import current
    from control_plane.core.http.connections import ConnectionTable
    from control_plane.core.http.logs import log_uncaught
    from control_plane.core.http.protocol import BoundedConfig

    log_uncaught()
    settings = current()
    # Behind a proxy every connection comes from its address.
    per_address = 0 if settings.trust_proxy else settings.connections_per_address
    table = ConnectionTable(
        min(settings.connections_max, open_files() - SPARE_FILES), per_address, settings.stranger_requests_per_s
    )
    config = BoundedConfig(
        application,
        table,
        host=options.host,
        port=options.port,
        loop="uvloop",
        lifespan="on",
        interface="asgi3",
        ws_max_size=settings.socket_max_message_bytes,
        timeout_keep_alive=options.keep_alive_s,
        timeout_graceful_shutdown=options.graceful_s,
        # A proxy's headers are read in one place, http/edge.py, and only where the settings say so.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,  # Django's: JSON lines with secrets masked
    )
    return Server(config)


def open_files() -> int:
    """Return how many files this process may have open, after raising its limit as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft


if __name__ == "__main__":
    sys.exit(main())
