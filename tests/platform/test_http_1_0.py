"""HTTP/1.0 clients: answers without chunks, a connection that ends with the answer, and no Host header."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess
from uvicorn.server import ServerState

from control_plane.core.errors import LorikeetError
from control_plane.core.http.connections import ConnectionTable
from control_plane.core.http.edge import check, with_host
from control_plane.core.http.protocol import BoundedConfig, BoundedHttp

PARTS = [b"data: 1\n\n", b"", b"data: [DONE]\n\n"]
WHOLE = b"".join(PARTS)


async def _app(scope: Any, receive: Any, send: Any) -> None:
    """Answers in parts; their length is in the head for `/declared`, and the head names chunks for `/chunked`."""
    if scope["method"] == "POST":
        await receive()
    headers = [(b"content-type", b"text/event-stream")]
    if scope["path"] == "/declared":
        headers.append((b"Content-Length", str(len(WHOLE)).encode()))
    if scope["path"] == "/chunked":
        headers.append((b"Transfer-Encoding", b"chunked"))
    await send({"type": "http.response.start", "status": 204 if scope["path"] == "/none" else 200, "headers": headers})
    for part in PARTS if scope["path"] != "/none" else []:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    table, state = ConnectionTable(40, per_address=10), ServerState()
    config = BoundedConfig(_app, table, interface="asgi3", access_log=False, log_config=None)
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttp(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    yield server.sockets[0].getsockname()[1]
    for connection in list(state.connections):
        connection.transport.abort()
    server.close()


async def _answer_of(port: int, request: str) -> tuple[bytes, bytes]:
    """Head and body of all that comes until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    writer.close()
    return head.lower(), body


@pytest.mark.parametrize("path", ["/stream", "/declared", "/chunked"])
@pytest.mark.parametrize("connection", ["close", "keep-alive", "Upgrade"])
async def test_an_answer_ends_with_its_connection(port: int, path: str, connection: str) -> None:
    head, body = await _answer_of(
        port, f"GET {path} HTTP/1.0\r\nConnection: {connection}\r\nUpgrade: websocket\r\n\r\n"
    )
    assert head.startswith(b"http/1.1 200 ")
    assert body == WHOLE
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert (b"content-length" in head) == (path == "/declared")


@pytest.mark.parametrize("request_line", ["HEAD /stream HTTP/1.0", "GET /none HTTP/1.0"])
async def test_answers_without_a_body(port: int, request_line: str) -> None:
    head, body = await _answer_of(port, f"{request_line}\r\n\r\n")
    assert b"connection: close" in head
    assert body == b""


async def test_no_interim_response(port: int) -> None:
    request = "POST /stream HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}"
    head, body = await _answer_of(port, request)
    assert head.startswith(b"http/1.1 200 ")
    assert body == WHOLE


async def test_a_pipelined_request_is_answered_no_more(port: int) -> None:
    """The first answer has no end but that of the connection."""
    head, body = await _answer_of(port, "GET /stream HTTP/1.0\r\n\r\n" * 2)
    assert head.startswith(b"http/1.1 200 ")
    assert body == WHOLE


async def test_newer_clients_keep_their_connections(port: int) -> None:
    first, last = (
        "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    head, rest = await _answer_of(port, first + last)
    assert b"transfer-encoding: chunked" in head
    assert rest.count(b"HTTP/1.1 200 OK") == 1
    assert rest.count(b"0\r\n\r\n") == 2


@pytest.mark.parametrize(
    "allowed, expected",
    [
        (["localhost", "127.0.0.1"], b"localhost"),
        ([".lorikeet.example"], b"lorikeet.example"),
        (["*"], b"localhost"),
        (["[::1]"], b"[::1]"),
    ],
)
def test_a_request_without_host_is_for_the_servers_name(settings: Any, allowed: list[str], expected: bytes) -> None:
    settings.ALLOWED_HOSTS = allowed
    scope = {"path": "/", "query_string": b"", "headers": [], "http_version": "1.0"}
    checked = with_host(scope)
    check(checked)
    assert checked["headers"] == [(b"host", expected)]
    newer = {**scope, "http_version": "1.1"}
    assert with_host(newer) == newer
    with pytest.raises(LorikeetError, match="Host"):
        check(newer)


def test_a_host_that_is_named_is_checked(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    headers = [(b"host", b"evil.example")]
    scope = {"path": "/", "query_string": b"", "headers": headers, "http_version": "1.0"}
    with pytest.raises(LorikeetError, match="Host"):
        check(with_host(scope))


# -- the process as it is started ------------------------------------------------------------------


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


def _old_client(web: WebProcess, method: str, path: str, body: str = "", *headers: str) -> tuple[bytes, bytes]:
    lines = [f"{method} {path} HTTP/1.0", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    with socket.create_connection(("127.0.0.1", web.port), timeout=30) as client:
        client.sendall("\r\n".join([*lines, "", body]).encode())
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    head, _, rest = received.partition(b"\r\n\r\n")
    return head.lower(), rest


@pytest.mark.e2e
def test_every_door_serves_a_client_without_host(web: WebProcess) -> None:
    bearer = f"Authorization: {web.tenants['acme'].bearer['Authorization']}"
    paths = ("/v1/models", "/v1/files", "/api/session", "/api/tenants/acme/adapters", "/livez", "/readyz")
    for path in paths:
        head, body = _old_client(web, "GET", path, "", bearer)
        assert head.startswith(b"http/1.1 200 "), (path, head)
        assert b"transfer-encoding" not in head, path
        assert body, path
    question = {"model": "support", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    head, body = _old_client(web, "POST", "/v1/chat/completions", json.dumps(question), bearer)
    assert head.startswith(b"http/1.1 200 "), head
    assert b"transfer-encoding" not in head
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")
