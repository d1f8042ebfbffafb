"""Connections that one web process accepts and another goes on with."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.web import WebProcess, eventually, new_installation
from uvicorn.server import ServerState

from control_plane.core.config import Settings
from control_plane.core.http import handover
from control_plane.core.http.connections import ConnectionTable
from control_plane.core.http.handover import MOST_BYTES, Receiver, SecondProcess, control_pair
from control_plane.core.http.protocol import HAND_OVER_S, BoundedConfig, BoundedHttp, Bounds, sweep
from control_plane.gateway.dispatch.first_bytes import stays

FLOOD = 60


@dataclass
class Side:
    """One of two web processes, here on the same event loop. Its application says which it is, and what it got."""

    name: str
    second: SecondProcess | None = None
    table: ConnectionTable = field(default_factory=lambda: ConnectionTable(1000, per_address=400))
    state: ServerState = field(default_factory=ServerState)
    clients: list[Any] = field(default_factory=list)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.clients.append(scope["client"])
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
        answer = f"{self.name} {scope['path']} {size}".encode()
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def make(self, given: bytes = b"") -> BoundedHttp:
        bounds = Bounds(self.table, self.second)
        config = BoundedConfig(self.app, bounds, interface="asgi3", access_log=False, log_config=None)
        connection = BoundedHttp(config=config, server_state=self.state, app_state={})
        connection.initial_bytes = given
        return connection

    def delays(self) -> bool:
        return any(getattr(connection, "_delay", None) for connection in self.state.connections)


@dataclass
class Pair:
    first: Side
    second: Side
    receiver: Receiver
    port: int

    async def open(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    def hang(self) -> None:
        """The second process takes no more, and few connections fit between them."""
        assert self.first.second is not None and self.first.second._control is not None
        self.first.second._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        asyncio.get_running_loop().remove_reader(self.receiver._control)

    async def until_ready(self) -> None:
        assert self.first.second is not None
        await until(lambda: self.first.second._ready)


@dataclass
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, path: str, body: bytes = b"", method: str = "POST") -> str:
        self.send(path, body, method)
        return await self.answer()

    def send(self, path: str, body: bytes = b"", method: str = "POST") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def answer(self) -> str:
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            assert found is not None, head
            return (await self.reader.readexactly(int(found[1]))).decode()


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[Pair]:
    ours, theirs = control_pair()
    between = SecondProcess([], stays, stop_s=1)
    first, second = Side("first", between), Side("second")
    between.connect(ours)
    receiver = Receiver(theirs, second.make, lambda: None)
    server = await asyncio.get_running_loop().create_server(first.make, "127.0.0.1", 0)
    pair = Pair(first, second, receiver, server.sockets[0].getsockname()[1])
    await pair.until_ready()
    yield pair
    if theirs.fileno() >= 0:
        await receiver.close()
    between._disconnect(ours)
    ours.close()
    for side in (first, second):
        for connection in list(side.state.connections):
            connection.transport.abort()
    server.close()


@pytest.mark.parametrize(
    ("start", "here"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\n", True),
        (b"GET /v1/models?limit=2 HTTP/1.1\r\n", True),
        (b"GET /ws/inference?x=1 HTTP/1.1\r\n", True),
        (b"POST / HTTP/1.1\r\n", True),
        (b"POST /generate HTTP/1.1\r\n", True),
        (b"GET /livez HTTP/1.1\r\n", True),
        (b"GET /metrics HTTP/1.1\r\n", True),
        (b"GET /metrics?process=second HTTP/1.1\r\n", False),
        (b"GET / HTTP/1.1\r\n", False),
        (b"POST /api/session HTTP/1.1\r\n", False),
        (b"PATCH /api/tenants/acme/uploads/1 HTTP/1.1\r\n", False),
        (b"POST /v1/files HTTP/1.1\r\n", False),
        (b"POST /v1/batches HTTP/1.1\r\n", False),
        (b"GET /ws/console HTTP/1.1\r\n", False),
        (b"POST /v1/chat/compl", False),
        (b"\x16\x03\x01 \xff\xfe ", False),
    ],
)
def test_which_connections_stay(start: bytes, here: bool) -> None:
    assert stays(start) is here


async def test_a_connection_goes_where_its_first_request_belongs_and_stays_there(pair: Pair) -> None:
    inference, console = await pair.open(), await pair.open()
    assert await inference.ask("/v1/chat/completions", b"x") == "first /v1/chat/completions 1"
    assert await console.ask("/api/session", b"xy") == "second /api/session 2"
    assert await console.ask("/v1/chat/completions", b"xyz") == "second /v1/chat/completions 3"
    assert await inference.ask("/api/session") == "first /api/session 0"
    own = [client.writer.get_extra_info("sockname") for client in (inference, console)]
    assert (pair.first.clients[0], pair.second.clients[0]) == (own[0], own[1])
    assert (len(pair.first.table), len(pair.second.table)) == (1, 1)


async def test_bodies_arrive_whole(pair: Pair) -> None:
    for size in (1, 100_000, 3 << 20):
        client = await pair.open()
        assert await client.ask("/api/uploads", b"x" * size) == f"second /api/uploads {size}"


async def test_what_was_pipelined_goes_along(pair: Pair) -> None:
    client = await pair.open()
    client.send("/api/one")
    client.send("/v1/two")
    assert [await client.answer(), await client.answer()] == ["second /api/one 0", "second /v1/two 0"]


async def test_first_bytes_that_are_too_many_stay(pair: Pair) -> None:
    assert pair.first.second is not None
    assert not pair.first.second.wants(b"GET / HTTP/1.1\r\n" + b"x" * MOST_BYTES)


async def test_without_a_second_process_the_first_serves_all(pair: Pair) -> None:
    before = await pair.open()
    assert await before.ask("/api/one") == "second /api/one 0"
    await pair.receiver.close()
    after = await pair.open()
    assert await after.ask("/api/two") == "first /api/two 0"
    assert await before.ask("/api/three") == "second /api/three 0"


async def test_many_at_once_all_arrive(pair: Pair) -> None:
    clients = [await pair.open() for _ in range(FLOOD)]
    answers = await asyncio.gather(*(client.ask("/api/x") for client in clients))
    assert set(answers) == {"second /api/x 0"}


async def test_one_that_hangs_is_not_waited_for(pair: Pair) -> None:
    pair.hang()
    clients = [await pair.open() for _ in range(FLOOD)]
    for client in clients:
        client.send("/api/x")
    waiting = pair.first.second._waiting  # type: ignore[union-attr]
    await until(lambda: len(waiting) == len(pair.first.table) > 0)
    sweep(pair.first.state.connections, asyncio.get_running_loop().time() + HAND_OVER_S + 1)
    assert not waiting
    assert "first /api/x 0" in await asyncio.wait_for(clients[-1].answer(), 10)


async def test_one_that_is_silent_gets_no_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.receiver._timer.cancel()
    monkeypatch.setattr(handover, "SILENCE_S", 0.0)
    assert await (await pair.open()).ask("/api/x") == "first /api/x 0"
    monkeypatch.undo()
    pair.receiver._beat()
    assert await (await pair.open()).ask("/api/x") == "second /api/x 0"


async def test_who_hangs_up_while_waiting_is_forgotten(pair: Pair) -> None:
    pair.hang()
    clients = [await pair.open() for _ in range(FLOOD)]
    for client in clients:
        client.send("/api/x")
    waiting = pair.first.second._waiting  # type: ignore[union-attr]
    await until(lambda: len(waiting) == len(pair.first.table) > 0)
    for connection in list(pair.first.state.connections):
        connection.transport.abort()
    await until(lambda: len(pair.first.table) == 0)
    asyncio.get_running_loop().add_reader(pair.receiver._control, pair.receiver._take)
    await until(lambda: not waiting)
    assert (await (await pair.open()).ask("/api/y")) == "second /api/y 0"


async def test_each_side_bounds_its_own_connections(pair: Pair) -> None:
    pair.second.table.per_address = 1
    kept, refused = await pair.open(), await pair.open()
    assert await kept.ask("/api/x") == "second /api/x 0"
    assert "too_many_connections" in await refused.ask("/api/x")
    assert len(pair.first.table) == 0
    assert await (await pair.open()).ask("/v1/x") == "first /v1/x 0"


async def test_strangers_of_one_address_wait_in_the_process_that_has_them(pair: Pair) -> None:
    pair.second.table.rate.per_s = 5.0
    answers = [await (await pair.open()).ask("/api/x") for _ in range(50)]
    assert set(answers) == {"second /api/x 0"}
    late = await pair.open()
    late.send("/api/x")
    await until(lambda: pair.second.delays())
    assert await (await pair.open()).ask("/v1/x") == "first /v1/x 0"


def test_where_events_are_in_memory_there_is_one_process() -> None:
    assert not Settings(secret_key="x").has_second_process
    assert not Settings(secret_key="x", redis_url="redis://r/0", embedded=True).has_second_process
    assert Settings(secret_key="x", redis_url="redis://r/0").has_second_process
    assert not Settings(secret_key="x", redis_url="redis://r/0", second_process=False).has_second_process
    with pytest.raises(ValueError, match="LORIKEET_SECOND_PROCESS"):
        Settings(secret_key="x", second_process=True)


# -- the processes themselves -------------------------------------------------------------------


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    folder = tmp_path_factory.mktemp("two")
    engine = FakeEngineThread(f"unix:{folder}/e.sock")
    env = {"LORIKEET_EMBEDDED": "0", "LORIKEET_SECOND_PROCESS": "1", "LORIKEET_METRICS_TOKEN": "token"}
    web = WebProcess(folder / "var", f"local={engine.engine.address}", env, installation=new_installation())
    web.seed()
    web.start()
    yield web
    if web.process is not None:
        web.kill()
    engine.close()


def part(web: WebProcess, query: str = "?process=second") -> str:
    """Of the two processes, the one that answers."""
    answer = httpx.get(f"{web.url}/metrics{query}", headers={"Authorization": "Bearer token"}, trust_env=False)
    found = re.search(r'lorikeet_web_process{part="(\w+)"} 1', answer.text)
    return found[1] if found else answer.text


def second_of(web: WebProcess) -> int:
    assert web.process is not None
    children = Path(f"/proc/{web.process.pid}/task/{web.process.pid}/children").read_text().split()
    (found,) = [child for child in children if b"--second" in Path(f"/proc/{child}/cmdline").read_bytes()]
    return int(found)


def has_ended(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


@pytest.mark.services
def test_two_processes_behind_one_port(web: WebProcess) -> None:
    eventually(lambda: part(web) == "second", what="the second process")
    assert part(web, "") == "first"
    with httpx.Client(base_url=web.url, headers=web.tenants["acme"].bearer, trust_env=False) as client:
        assert client.get("/api/tenants/acme/adapters").status_code == 200
        assert client.get("/readyz").status_code == 200
    before = second_of(web)
    os.kill(before, signal.SIGKILL)
    # Until its parent knows, which the last of its threads has to end for, it may still be given connections.
    eventually(lambda: not Path(f"/proc/{before}").exists(), what="its end")
    answer = httpx.get(f"{web.url}/api/session", trust_env=False)
    assert answer.status_code == 200
    eventually(lambda: part(web) == "second", what="another one")
    assert second_of(web) != before

    last = second_of(web)
    web.stop()
    assert has_ended(last)
    web.start()
    eventually(lambda: part(web) == "second", what="one more")
    last = second_of(web)
    assert web.process is not None
    os.kill(web.process.pid, signal.SIGKILL)
    eventually(lambda: has_ended(last), what="the end of a second process without a first one")
