"""A web process that stops answers connections that the kernel accepted before it stopped to listen."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from control_plane.core.http.connections import ConnectionTable
from control_plane.core.http.protocol import BoundedConfig
from control_plane.serve import Server

WAITING = 5
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def read_all(client: socket.socket) -> bytes:
    with client:
        client.settimeout(10)
        parts = []
        while part := client.recv(4096):
            parts.append(part)
    return b"".join(parts)


async def test_connections_that_wait_are_answered() -> None:
    config = BoundedConfig(application, ConnectionTable(100, 0), port=0, lifespan="off", log_config=None)
    config.load()
    server = Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    address = server.servers[0].sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(WAITING)]  # the event loop does not run meanwhile
    for client in clients:
        client.sendall(REQUEST)
    await server.shutdown()
    answers = [await asyncio.to_thread(read_all, client) for client in clients]
    assert [answer.splitlines()[0] for answer in answers] == [b"HTTP/1.1 200 OK"] * WAITING
    assert all(answer.endswith(b"ok") for answer in answers)
