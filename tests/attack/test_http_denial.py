"""Connections that want to be served for ever: endless heads, slow heads, bodies and readers, and many of them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import pytest_asyncio
from lorikeet_testing.web import WebProcess, wait_until
from uvicorn.server import ServerState
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from control_plane.core.errors import LorikeetError
from control_plane.core.http import connections, protocol
from control_plane.core.http.client_address import forwarded_client, network_of
from control_plane.core.http.connections import SLOT, ConnectionTable, StrangerRate, TooManyConnectionsError, prove
from control_plane.core.http.edge import Edge, check
from control_plane.core.http.protocol import (
    BODY_GRACE_S,
    HEAD_BYTES,
    HEAD_S,
    HEADERS,
    BoundedConfig,
    BoundedHttp,
    sweep,
)
from control_plane.core.http.write_watch import WRITE_GRACE_S

OK = b"HTTP/1.1 200 OK"


@dataclass
class Served:
    """The protocol of the web process in front of an application that does what its path says."""

    port: int
    table: ConnectionTable
    state: ServerState
    scopes: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    gone: int = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["path"] == "/prove":
            prove(scope, "acme")
        if scope["path"] == "/read":
            body, more = b"", True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.gone += 1
                    return
                body, more = body + message["body"], message["more_body"]
            self.bodies.append(body)
        answer = b"x" * (64 << 20) if scope["path"] == "/large" else b"fine"
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def later(self, seconds: float) -> None:
        """What the sweep of a second that is so far away would do."""
        sweep(self.state.connections, asyncio.get_running_loop().time() + seconds)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20))


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)

    async def answer(self) -> bytes:
        """The head; the body of `fine` is read too."""
        head = await self.head()
        await self.reader.readexactly(4)
        return head

    async def refusal(self) -> tuple[int, str]:
        """Status and code of an answer after which the connection ends."""
        head, _, body = (await self.rest()).partition(b"\r\n\r\n")
        assert b"connection: close" in head
        error = json.loads(body)["error"]
        assert error["fix"]
        return int(head.split(b" ")[1]), error["code"]

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 10)

    async def is_closed(self) -> bool:
        try:
            return await self.rest() == b""
        except ConnectionError:
            return True


def get(path: str = "/", *more: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *more, "", ""]).encode()


def post(path: str, *more: str) -> bytes:
    return get(path, *more).replace(b"GET", b"POST", 1)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    table, state = ConnectionTable(40, per_address=10), ServerState()
    served = Served(0, table, state)
    config = BoundedConfig(served.app, table, interface="asgi3", access_log=False, log_config=None)
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttp(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    served.port = server.sockets[0].getsockname()[1]
    yield served
    for connection in list(state.connections):
        connection.transport.abort()
    server.close()


# -- heads -------------------------------------------------------------------------------------


async def test_an_endless_header_is_refused_when_it_is_too_long(served: Served) -> None:
    client = await served.connect()
    client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
    began, sent = time.monotonic(), 0
    with_answer = asyncio.ensure_future(client.refusal())
    while not with_answer.done() and sent < 64 << 20:
        client.send(b"a" * (256 << 10))
        sent += 256 << 10
        await asyncio.wait([with_answer, asyncio.ensure_future(client.writer.drain())], return_when="FIRST_COMPLETED")
    assert await with_answer == (431, "header_too_large")
    assert sent < 64 << 20
    assert time.monotonic() - began < 5
    assert not served.scopes


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * (HEAD_BYTES + 1) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        get("/", *(f"X-{number}: 1" for number in range(HEADERS))),
        get("/", *(f"X-{number}: {'v' * 1000}" for number in range(40))),
        b"\r\n" * HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"X" * (HEAD_BYTES + 1),
    ],
    ids=["address", "number", "all together", "empty lines", "name"],
)
async def test_a_large_head(served: Served, head: bytes) -> None:
    client = await served.connect()
    client.send(head)
    assert await client.refusal() == (431, "header_too_large")
    assert not served.scopes


async def test_a_head_of_the_largest_size(served: Served) -> None:
    client = await served.connect()
    client.send(get("/", *(f"X-{number}: 1" for number in range(HEADERS - 1))))
    assert (await client.answer()).startswith(OK)
    client.send(get("/", "X-Long: " + "v" * (HEAD_BYTES - 200)))
    assert (await client.answer()).startswith(OK)


async def test_what_is_no_http(served: Served) -> None:
    for text in (b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n"):
        client = await served.connect()
        client.send(text)
        assert await client.refusal() == (400, "malformed_request")


async def test_a_chunk_that_is_all_extension(served: Served) -> None:
    client = await served.connect()
    client.send(post("/read", "Transfer-Encoding: chunked") + b"5;" + b"e" * (2 * HEAD_BYTES))
    assert await client.refusal() == (431, "header_too_large")
    await wait_until(lambda: served.gone == 1)


async def test_nothing_is_written_after_a_refusal(served: Served) -> None:
    """The application asks for the body only then, which the server would have answered with 100 Continue."""
    client = await served.connect()
    client.send(post("/read", "Expect: 100-continue", "Transfer-Encoding: chunked") + b"no chunk\r\n")
    assert await client.refusal() == (400, "malformed_request")
    await wait_until(lambda: served.gone == 1)


async def test_trailers_are_no_headers(served: Served) -> None:
    client = await served.connect()
    client.send(post("/read", "Transfer-Encoding: chunked") + b"2\r\nhi\r\n0\r\nAuthorization: Bearer lk_x\r\n\r\n")
    assert (await client.answer()).startswith(OK)
    assert served.bodies == [b"hi"]
    assert b"authorization" not in dict(served.scopes[0]["headers"])


async def test_a_thousand_requests_in_one_piece(served: Served) -> None:
    client = await served.connect()
    client.send(get() * 1000)
    assert len(await client.rest()) < 20_000
    assert len(served.scopes) < 20


# -- time --------------------------------------------------------------------------------------


async def test_a_head_that_comes_by_the_byte(served: Served) -> None:
    client = await served.connect()
    client.send(b"GET / HT")
    await wait_until(lambda: any(connection._pending for connection in served.state.connections))
    served.later(HEAD_S - 1)
    client.send(b"T")
    await wait_until(lambda: any(connection._pending > 8 for connection in served.state.connections))
    served.later(HEAD_S + 1)
    assert await client.refusal() == (408, "request_timeout")


async def test_a_connection_that_says_nothing_is_closed_without_a_word(served: Served) -> None:
    client = await served.connect()
    await wait_until(lambda: len(served.table) == 1)
    served.later(HEAD_S + 1)
    assert await client.is_closed()
    await wait_until(lambda: len(served.table) == 0)


async def test_the_next_head_has_its_own_time(served: Served) -> None:
    client = await served.connect()
    client.send(get())
    await client.answer()
    served.later(HEAD_S + 1)  # between requests the keep-alive time counts
    client.send(get())
    assert (await client.answer()).startswith(OK)
    client.send(b"\r\n")
    await wait_until(lambda: any(connection._pending for connection in served.state.connections))
    served.later(HEAD_S + 1)
    assert await client.refusal() == (408, "request_timeout")


async def test_a_slow_body(served: Served) -> None:
    client = await served.connect()
    client.send(post("/read", "Content-Length: 100000") + b"x" * 5000)
    await wait_until(lambda: any(connection._received == 5000 for connection in served.state.connections))
    served.later(BODY_GRACE_S + 9)
    assert served.gone == 0
    served.later(BODY_GRACE_S + 11)
    assert await client.refusal() == (408, "request_timeout")
    await wait_until(lambda: served.gone == 1)


async def test_a_body_that_nobody_reads(served: Served) -> None:
    client = await served.connect()
    client.send(post("/", "Content-Length: 100000"))
    await client.answer()
    client.send(b"x" * 100)
    await wait_until(lambda: any(connection._received == 100 for connection in served.state.connections))
    served.later(BODY_GRACE_S + 2)
    assert await client.refusal() == (408, "request_timeout")


async def test_a_reader_that_stops(served: Served) -> None:
    client = await served.connect()
    client.send(get("/large"))
    await client.head()
    served.later(1)
    served.later(WRITE_GRACE_S - 1)
    assert len(served.table) == 1
    served.later(WRITE_GRACE_S + 2)
    await wait_until(lambda: len(served.table) == 0)


async def test_a_slow_reader_that_reads_on_is_served(served: Served) -> None:
    client = await served.connect()
    client.send(get("/large"))
    await client.head()
    served.later(1)
    await client.reader.readexactly(32 << 20)
    served.later(WRITE_GRACE_S + 2)
    assert len(await asyncio.wait_for(client.reader.readexactly(32 << 20), 20)) == 32 << 20


async def test_a_connection_serves_so_many_requests(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "REQUESTS", 3)
    client = await served.connect()
    for _ in range(2):
        client.send(get())
        assert b"connection: close" not in await client.answer()
    client.send(get())
    assert b"connection: close" in await client.answer()
    assert await client.is_closed()


# -- numbers -----------------------------------------------------------------------------------


async def test_connections_of_an_address(served: Served) -> None:
    clients = [await served.connect() for _ in range(10)]
    await wait_until(lambda: len(served.table) == 10)
    refused = await served.connect()
    assert await refused.refusal() == (503, "too_many_connections")
    # Those who showed a key count for their tenant, and make room.
    for client in clients[:5]:
        client.send(get("/prove"))
        assert (await client.answer()).startswith(OK)
    more = [await served.connect() for _ in range(5)]
    await wait_until(lambda: len(served.table) == 15)
    for client in [*clients, *more]:
        client.writer.close()
    await wait_until(lambda: len(served.table) == 0)


async def test_a_websocket_keeps_its_place_until_it_ends(served: Served) -> None:
    client = await served.connect()
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    client.send(get("/", *upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="))
    await wait_until(lambda: len(served.scopes) == 1)
    assert served.scopes[0]["type"] == "websocket"
    assert served.scopes[0]["state"][SLOT].holder == ("address", "127.0.0.1")
    client.writer.close()
    await wait_until(lambda: len(served.table) == 0)


@pytest.mark.parametrize("keeps", [False, True], ids=["a connection each", "one connection"])
async def test_strangers_of_an_address_ask_so_many_times_a_second(served: Served, keeps: bool) -> None:
    """300 refusals a second took most of a core. Those who wait are answered, and what they sent is not lost."""
    served.table.rate = StrangerRate(per_s=20)  # 200 at once
    served.table.rate.spend(("address", "127.0.0.1"), 200)
    began = time.monotonic()
    client = await served.connect()
    for asked in range(1, 12):
        client.send(get("/late"))
        await wait_until(lambda asked=asked: len(served.scopes) == asked)  # type: ignore[misc]
        if not keeps:
            client.writer.close()
            client = await served.connect()
    assert time.monotonic() - began > 0.4
    client.writer.close()


async def test_bodies_of_strangers_that_nobody_reads_count_as_requests(served: Served) -> None:
    """To drop 250 MB/s of them takes time too."""
    served.table.rate = StrangerRate(per_s=64)
    served.table.rate.spend(("address", "127.0.0.1"), 640)
    client = await served.connect()
    client.send(post("/unread", f"Content-Length: {8 << 20}") + b"x" * (8 << 20))
    began = time.monotonic()
    await client.answer()
    client.send(get("/next"))
    await client.answer()
    assert time.monotonic() - began > 0.9
    client.writer.close()


async def test_what_strangers_who_wait_send_is_not_held(served: Served) -> None:
    """Also when the application waits for the body, and asks for more of it."""
    served.table.rate = StrangerRate(per_s=1)
    client = await served.connect()
    client.send(post("/read", f"Content-Length: {8 << 20}"))
    await wait_until(lambda: len(served.scopes) == 1)
    served.table.rate.spend(("address", "127.0.0.1"), 100)
    client.send(b"x" * (8 << 20))
    (connection,) = served.state.connections
    await wait_until(lambda: len(connection._delayed) > 0)
    await asyncio.sleep(0.1)
    assert len(connection._delayed) <= 1 << 20
    client.writer.close()


async def test_who_shows_a_key_does_not_wait_with_strangers(served: Served) -> None:
    served.table.rate = StrangerRate(per_s=0.001)
    served.table.rate.spend(("address", "127.0.0.1"), -1)
    for _ in range(3):  # the first proof gives back what its connection took
        client = await served.connect()
        for _ in range(3):
            asked = len(served.scopes) + 1
            client.send(get("/"))
            await wait_until(lambda asked=asked: len(served.scopes) == asked)  # type: ignore[misc]
            prove(served.scopes[-1], "acme")
        client.writer.close()


def test_the_rates_of_so_many_addresses_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ADDRESSES", 3)
    rate = StrangerRate(per_s=1)
    for holder in ("a", "b", "c", "a", "d"):
        rate.spend(holder, 11)
    assert [rate.wait_s(holder) > 0.5 for holder in "abcd"] == [True, False, True, True]


def test_neither_strangers_nor_a_tenant_take_all() -> None:
    table = ConnectionTable(10, per_address=3)
    strangers = [table.take((f"10.0.0.{number}", 1)) for number in range(6)]
    assert [slot is not None for slot in strangers] == [True] * 5 + [False]
    for slot in strangers[:5]:
        assert slot is not None
        slot.prove("acme")
        slot.prove("globex")  # only the first counts
    late = table.take(("10.0.0.9", 1))
    assert late is not None
    with pytest.raises(TooManyConnectionsError):
        late.prove("acme")
    late.prove("globex")
    late.give_back()
    late.give_back()
    assert len(table) == 5
    # Behind a proxy, or on a Unix socket, all have one address and one connection carries many.
    behind = ConnectionTable(10, per_address=0)
    taken = [behind.take(("10.0.0.1", 1)) for _ in range(5)]
    assert all(taken)
    for slot in taken:
        assert slot is not None
        slot.prove("acme")
    assert behind.take(None) is not None


def test_one_customer_has_a_64_of_ipv6() -> None:
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::1") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::1") != network_of("2001:db8:1:2::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"


# -- names -------------------------------------------------------------------------------------


def test_only_the_nearest_proxy_is_believed() -> None:
    assert forwarded_client([(b"x-forwarded-for", b"1.2.3.4, 192.0.2.7")]) == "192.0.2.7"
    assert forwarded_client([(b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-for", b"192.0.2.8")]) == "192.0.2.8"
    assert forwarded_client([(b"x-forwarded-for", b"1.2.3.4, unknown")]) is None
    assert forwarded_client([]) is None


HOSTS: list[list[bytes]] = [[], [b"evil.example"], [b"localhost", b"evil.example"], [b"localhost:80:80"], [b"\xff"]]


@pytest.mark.parametrize("path", ["/", "/v1/models", "/t/acme", "/assets/index.js", "/livez", "/ws/inference"])
@pytest.mark.parametrize("hosts", HOSTS)
def test_every_address_asks_for_the_servers_name(settings: Any, path: str, hosts: list[bytes]) -> None:
    settings.ALLOWED_HOSTS = ["localhost", ".lorikeet.example"]
    scope = {"path": path, "query_string": b"", "headers": [(b"host", host) for host in hosts]}
    with pytest.raises(LorikeetError) as refused:
        check(scope)
    assert refused.value.code == "bad_host"
    for good in (b"localhost", b"LOCALHOST:8000", b"a.lorikeet.example"):
        check({**scope, "headers": [(b"host", good)]})


@pytest.mark.parametrize(
    "path, query",
    [("/v1/models/a\0b", b""), ("/api/tenants/acme/adapters", b"search=%00"), ("/", b"a=1&" * 2000)],
    ids=["NUL", "NUL in the query", "parameters"],
)
def test_addresses_that_nothing_can_be_asked_for(path: str, query: bytes) -> None:
    with pytest.raises(LorikeetError) as refused:
        check({"path": path, "query_string": query, "headers": [(b"host", b"localhost")]})
    assert refused.value.code == "bad_address"


# -- the process as it is started ------------------------------------------------------------------


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    folder = tmp_path_factory.mktemp("web")
    web = WebProcess(folder / "var", f"local=unix:{folder}/no-engine.sock", {"LORIKEET_LOGIN_RATE": "5/min"})
    web.seed()
    web.start()
    yield web
    web.stop()


@pytest.mark.e2e
def test_the_process_has_the_bounds(web: WebProcess) -> None:
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as client:
        client.sendall(get("/livez", "X-Long: " + "v" * (2 * HEAD_BYTES)))
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


@pytest.mark.e2e
def test_the_process_asks_for_its_name(web: WebProcess) -> None:
    for path in ("/", "/v1/models", "/api/session", "/livez"):
        answer = httpx.get(f"{web.url}{path}", headers={"Host": "evil.example", "Accept": "text/html"}, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_host"), path
    key = {"Host": "evil.example", **web.tenants["acme"].bearer}
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://127.0.0.1:{web.port}/ws/inference", additional_headers=key, proxy=None)


@pytest.mark.e2e
def test_the_process_believes_no_forwarded_address(web: WebProcess) -> None:
    session = httpx.Client(base_url=web.url, trust_env=False)
    token = session.get("/api/session").json()["csrf_token"]
    statuses = []
    for number in range(8):
        headers = {"X-CSRFToken": token, "X-Forwarded-For": f"203.0.113.{number}"}
        body = {"email": "nobody@acme.example", "password": "wrong wrong wrong"}
        statuses.append(session.post("/api/session", json=body, headers=headers).status_code)
    assert 429 in statuses


async def test_a_strangers_refused_request_counts_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try 50 keys a second took a fifth of a core. Who shows a good one is not counted at all."""
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: 0.0))  # no allowance grows meanwhile
    table = ConnectionTable(10, per_address=3, requests_per_s=50)
    slot = table.take(("192.0.2.1", 1))
    assert slot is not None

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": int(scope["path"][1:]), "headers": []})

    async def ask(status: int) -> float:
        """What is left of its address's allowance."""
        scope = {"type": "http", "method": "GET", "path": f"/{status}", "query_string": b""}
        scope["headers"] = [(b"host", b"localhost")]

        async def send(message: Any) -> None: ...

        slot.ask()
        await Edge(app, bodies={})({**scope, "state": {SLOT: slot}}, None, send)  # type: ignore[arg-type]
        table.rate.wait_s(slot.holder)
        return table.rate._allowances["address", "192.0.2.1"].level

    assert await ask(200) == 499
    assert await ask(401) == 499 - connections.REFUSAL
    before = await ask(200)
    slot.prove("acme")
    assert await ask(404) >= before
