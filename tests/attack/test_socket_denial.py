"""What one client can make a web process do over a websocket, and how many sequences one request may run."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio
from asgiref.testing import ApplicationCommunicator
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import TenantAccess, WebProcess, wait_until
from lorikeet_testing.web import eventually as wait_for
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from control_plane.core.http import websocket_protocol
from control_plane.core.http.allowance import Allowance
from control_plane.core.http.connections import REFUSAL, ConnectionTable, prove
from control_plane.core.http.json_body import JsonError
from control_plane.core.http.parse_queue import LARGE, LARGER, parsed, wait_to_parse
from control_plane.core.http.protocol import BoundedConfig, BoundedHttp, sweep
from control_plane.core.http.websocket_protocol import FRAGMENTS, STRANGER_BYTES, admit
from control_plane.core.http.write_watch import WRITE_GRACE_S
from control_plane.fleet.transport.coalescing import Coalescing, RequestBuffer
from control_plane.gateway.websocket.inference_socket import MAX_SESSIONS, InferenceConsumer
from control_plane.gateway.websocket.session import MAX_ENDED, MAX_RESUMED, Session
from control_plane.identity.sockets import authenticated_socket
from lora_engine.wire import engine_pb2 as pb

MESSAGE_BYTES = 100_000
TEXT, PING, PONG, CONTINUATION = 1, 9, 10, 0


# -- the protocol, in front of an application that admits whoever says so ---------------------------


@dataclass
class Served:
    port: int
    state: ServerState
    table: ConnectionTable
    scopes: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        await receive()
        if scope["path"] == "/refused":
            await send({"type": "websocket.close"})
            return
        if scope["path"] == "/proven":
            prove(scope, "a tenant")
        if scope["path"] == "/known":
            admit(scope, object())
        if scope["path"] == "/tenant":
            admit(scope, "a tenant")
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.messages.append(message["text"])
            if message["text"] == "admit me":
                await asyncio.sleep(0.05)  # a look at the database
                admit(scope, object())
            if message["text"] == "talk":
                while True:
                    await send({"type": "websocket.send", "text": "x" * 100_000})
        self.closed.append(message["code"])

    def url(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    def open(self, path: str) -> Any:
        return connect(self.url(path), proxy=None, compression=None, ping_interval=None, max_size=None)


@pytest_asyncio.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(websocket_protocol, "LINGER_S", 0.2)
    table, state = ConnectionTable(40, per_address=10), ServerState()
    served = Served(0, state, table)
    config = BoundedConfig(
        served.app, table, interface="asgi3", access_log=False, log_config=None, ws_max_size=MESSAGE_BYTES
    )
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedHttp(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    served.port = server.sockets[0].getsockname()[1]
    yield served
    for connection in list(state.connections):
        connection.transport.abort()
    server.close()


def frame(kind: int, payload: bytes = b"", *, last: bool = True, compressed: bool = False) -> bytes:
    head = bytes([last << 7 | compressed << 6 | kind])
    short = len(payload) < 126
    size = bytes([0x80 | len(payload)]) if short else b"\xff" + struct.pack("!Q", len(payload))
    return head + size + bytes(4) + payload  # masked with zeros


async def upgrade(port: int, path: str, *headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A bare connection and the head of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
    writer.write("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, *headers, "", ""]).encode())
    return reader, writer, await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)


async def close_of(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Code and reason of the close frame that comes after what else comes."""
    rest = await asyncio.wait_for(reader.read(), 20)
    at = rest.rindex(b"\x88")
    return struct.unpack("!H", rest[at + 2 : at + 4])[0], rest[at + 4 :].decode()


async def test_a_message_is_judged_by_its_bytes_before_it_is_taken_up(served: Served) -> None:
    async with served.open("/known") as socket:
        await socket.send("x" * MESSAGE_BYTES)
        await wait_until(lambda: served.messages)
        with pytest.raises(ConnectionClosed) as closed:
            await socket.send("\u20ac" * (MESSAGE_BYTES // 2))  # three bytes each
            await socket.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    reader, writer, _ = await upgrade(served.port, "/known")
    writer.write(frame(TEXT, bytes(MESSAGE_BYTES + 1))[:20])  # what it says of its size is enough
    assert (await close_of(reader))[0] == 1009
    assert len(served.messages) == 1


async def test_nothing_is_inflated(served: Served) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = (packer.compress(b"a" * (15 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    assert len(packed) < 16_000
    for path in ("/stranger", "/known"):
        reader, writer, head = await upgrade(served.port, path, "Sec-WebSocket-Extensions: permessage-deflate")
        assert b"permessage-deflate" not in head
        writer.write(frame(TEXT, packed[:4000], compressed=True))
        assert (await close_of(reader))[0] == 1002
    assert not served.messages


@pytest.mark.parametrize(
    "sent",
    [frame(TEXT, bytes(50_000)), frame(TEXT, b"") * 3000, frame(PING) * 3000, frame(CONTINUATION, bytes(9000))[:9000]],
    ids=["one message", "empty messages", "pings", "half a frame"],
)
async def test_a_stranger_is_not_read_for_long(served: Served, sent: bytes) -> None:
    _, writer, _ = await upgrade(served.port, "/stranger")
    writer.write(sent)
    (connection,) = served.state.connections
    await wait_until(lambda: connection.read_paused or connection.close_sent)
    await asyncio.sleep(0.05)
    assert connection._taken_up <= STRANGER_BYTES + websocket_protocol.PIECE
    assert len(served.messages) <= 2 * websocket_protocol.PIECE / len(frame(TEXT))
    writer.close()


async def test_what_comes_right_behind_the_proof_is_not_lost(served: Served) -> None:
    async with served.open("/stranger") as socket:
        await socket.send("admit me")
        for number in range(3):
            await socket.send(str(number) * 90_000)
        await wait_until(lambda: len(served.messages) == 4)
    assert [len(message) for message in served.messages] == [8, 90_000, 90_000, 90_000]


async def test_who_sends_too_fast_is_slowed_down_and_loses_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_protocol, "PIECE", 256)
    monkeypatch.setattr(websocket_protocol, "FRAMES_AT_ONCE", 100.0)
    monkeypatch.setattr(websocket_protocol, "FRAMES_PER_S", 1000.0)
    reader, writer, _ = await upgrade(served.port, "/known")
    began = time.monotonic()
    writer.write(b"".join(frame(TEXT, b"%d" % number) + frame(PING) for number in range(500)))
    pongs = await asyncio.wait_for(reader.readexactly(500 * 2), 20)
    assert time.monotonic() - began > 0.8
    assert pongs == b"\x8a\x00" * 500
    assert served.messages == [str(number) for number in range(500)]
    writer.close()


async def test_a_large_message_counts_as_many(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_protocol, "FRAME_BYTES", 1000)
    monkeypatch.setattr(websocket_protocol, "FRAMES_AT_ONCE", 50.0)
    monkeypatch.setattr(websocket_protocol, "FRAMES_PER_S", 500.0)
    async with served.open("/known") as socket:
        began = time.monotonic()
        for _ in range(4):
            await socket.send("x" * 90_000)
        await wait_until(lambda: len(served.messages) == 4)
    assert time.monotonic() - began > 0.5


async def test_many_sockets_of_a_tenant_may_send_as_much_as_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty with an allowance each had twenty times as much of the process."""
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_AT_ONCE", 50.0)
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_PER_S", 500.0)
    monkeypatch.setattr(websocket_protocol, "_tenants", {})
    began = time.monotonic()
    for served_so_far in (400, 800):  # nor does it help to open others
        writers = [(await upgrade(served.port, "/tenant"))[1] for _ in range(4)]
        for writer in writers:
            writer.write(frame(TEXT, b"x") * 100)
        while len(served.messages) < served_so_far:
            await asyncio.sleep(0.005)
        for writer in writers:
            writer.close()
    assert len(served.messages) == 800
    assert time.monotonic() - began > 1.2


async def test_sockets_of_a_tenant_wait_in_one_line(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waited by itself: twenty woke two hundred times a second for what one of them might read."""
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_AT_ONCE", 10.0)
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_PER_S", 400.0)
    monkeypatch.setattr(websocket_protocol, "_tenants", {})
    looked, took = 0, 0
    look, take = websocket_protocol.BoundedWebSocket._read, websocket_protocol.BoundedWebSocket._take_up

    def counted_look(self: Any, **options: Any) -> None:
        nonlocal looked
        looked += 1
        look(self, **options)

    def counted_take(self: Any, piece: bytes) -> None:
        nonlocal took
        took += 1
        take(self, piece)

    writers = [(await upgrade(served.port, "/tenant"))[1] for _ in range(8)]
    monkeypatch.setattr(websocket_protocol.BoundedWebSocket, "_read", counted_look)
    monkeypatch.setattr(websocket_protocol.BoundedWebSocket, "_take_up", counted_take)
    for writer in writers:
        writer.write(frame(TEXT, bytes(30_000)))
    await wait_until(lambda: len(served.messages) == 8)
    assert took > 30
    assert looked < 2 * took + 8 * 4
    for writer in writers:
        writer.close()


async def test_large_messages_have_turns_of_their_own() -> None:
    """Those of several sockets were parsed one after the other, while everybody else waited."""
    turn, parsed_in = 0, []

    async def parse(size: int) -> None:
        await wait_to_parse(size)
        parsed_in.append(turn)

    parsing = [asyncio.create_task(parse(LARGE + 1)) for _ in range(5)]
    small = [asyncio.create_task(parse(LARGE)) for _ in range(5)]
    while not all(task.done() for task in parsing):
        await asyncio.sleep(0)
        turn += 1
    assert parsed_in[:5] == [0] * 5 and all(task.done() for task in small)
    assert len(set(parsed_in[5:])) == 5


async def test_the_largest_messages_are_parsed_one_after_the_other_on_a_thread() -> None:
    """In one turn of the event loop each took all of it for milliseconds."""
    here, on, at_work = threading.get_ident(), list[int](), threading.Lock()

    def parse() -> None:
        assert at_work.acquire(blocking=False)
        on.append(threading.get_ident())
        time.sleep(0.002)
        at_work.release()

    await parsed(LARGER, parse)
    await asyncio.gather(*(parsed(LARGER + 1, parse) for _ in range(5)))
    assert on[0] == here
    assert len(set(on[1:])) == 1 and on[1] != here

    consumer = InferenceConsumer()
    consumer.scope = {}
    large = json.dumps({"type": "ping", "of": "x" * LARGER})
    assert await consumer.parse(large) == json.loads(large)
    with pytest.raises(JsonError):
        await consumer.parse(large[1:])


@pytest.mark.parametrize(
    ("path", "key", "counts"),
    [
        ("/refused", "Key", REFUSAL),
        ("/stranger", "No-Key", REFUSAL),
        ("/stranger", "Key", REFUSAL),
        ("/proven", "Key", 0),
    ],
    ids=["refused", "malformed", "left", "proven"],
)
async def test_a_strangers_handshake_counts_as_a_refused_request(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str, key: str, counts: float
) -> None:
    """To try keys on sockets is no cheaper than by HTTP. Who shows a good one is not counted at all."""
    spent: list[float] = []
    monkeypatch.setattr(served.table.rate, "spend", lambda holder, requests=1.0: spent.append(requests))
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    lines = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines.append(f"Sec-WebSocket-{key}: {base64.b64encode(os.urandom(16)).decode()}")
    writer.write("\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert head.startswith(b"HTTP/1.1 101" if key == "Key" and path != "/refused" else b"HTTP/1.1 4")
    writer.close()
    await wait_until(lambda: not served.state.connections)
    assert sum(spent) == counts


async def test_messages_that_take_long_to_parse_are_charged_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_protocol, "_tenants", {})
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_PER_S", 0.001)
    _, writer, _ = await upgrade(served.port, "/tenant")
    consumer = InferenceConsumer()
    while "a tenant" not in websocket_protocol._tenants:
        await asyncio.sleep(0.005)
    consumer.scope = served.scopes[0]
    allowance = websocket_protocol._tenants["a tenant"].allowance
    names = json.dumps({"type": "resume", "after": {f"{number:x}": 0 for number in range(60_000)}})
    prose = json.dumps({"type": "ping", "of": "x" * 90_000})
    writer.write(frame(TEXT, prose.encode()))
    while not served.messages:
        await asyncio.sleep(0.005)
    before = allowance.level
    assert before < websocket_protocol.TENANT_FRAMES_AT_ONCE - 40
    await consumer.parse(prose)  # the deposit comes back, less what it took
    assert allowance.level > before
    with pytest.raises(JsonError):
        await consumer.parse(names)
    assert allowance.level < websocket_protocol.TENANT_FRAMES_AT_ONCE - 50
    writer.close()


async def test_pongs_of_many_sockets_do_not_count_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each socket is asked for one from time to time, so thousands of them send hundreds a second."""
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_AT_ONCE", 50.0)
    monkeypatch.setattr(websocket_protocol, "TENANT_FRAMES_PER_S", 0.001)
    monkeypatch.setattr(websocket_protocol, "_tenants", {})
    _, writer, _ = await upgrade(served.port, "/tenant")
    writer.write(frame(PONG) * 200 + frame(TEXT, b"x"))
    while not served.messages:
        await asyncio.sleep(0.005)
    writer.close()


async def test_a_message_has_so_many_fragments(served: Served) -> None:
    reader, writer, _ = await upgrade(served.port, "/known")
    writer.write(frame(TEXT, b"x", last=False) + frame(CONTINUATION, last=False) * (FRAGMENTS + 1))
    assert (await close_of(reader))[0] == 1009
    await wait_until(lambda: served.closed == [1009])


async def test_a_reader_that_stops_is_given_up(served: Served) -> None:
    _, writer, _ = await upgrade(served.port, "/known")
    writer.write(frame(TEXT, b"talk"))
    (connection,) = served.state.connections
    await wait_until(lambda: not connection.writable.is_set())
    assert connection.transport.get_write_buffer_size() < 1 << 20
    now = asyncio.get_running_loop().time()
    sweep(served.state.connections, now + 1)
    sweep(served.state.connections, now + WRITE_GRACE_S - 1)
    assert served.state.connections
    sweep(served.state.connections, now + WRITE_GRACE_S + 2)
    await wait_until(lambda: not served.state.connections)
    writer.close()


async def test_what_is_no_text_is_closed_without_a_traceback(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer, _ = await upgrade(served.port, "/known")
    writer.write(frame(TEXT, b"fine") + frame(TEXT, b"\xff\xfe"))
    assert await close_of(reader) == (1007, "not UTF-8")
    await wait_until(lambda: served.closed == [1007])
    assert served.messages == ["fine"]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", ["/stranger", "/known"])
async def test_a_handshake_that_is_none(served: Served, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 10)
    assert answer.startswith(b"HTTP/1.1 4")
    await wait_until(lambda: not served.state.connections)


def test_an_allowance() -> None:
    allowance = Allowance.full(10.0, 20.0, now=0.0)
    allowance.spend(20)
    assert allowance.wait_s(0.0) == 0.0
    allowance.spend(5)
    assert allowance.wait_s(0.0) == 0.5
    assert allowance.wait_s(0.6) == 0.0
    assert allowance.wait_s(1000.0) == 0.0 and allowance.level == 20.0


# -- the platform's sockets -------------------------------------------------------------------------


async def test_a_socket_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticated_socket, "AUTH_WITHIN_S", 0.05)
    scope = {"type": "websocket", "path": "/ws/inference", "headers": []}
    socket = ApplicationCommunicator(InferenceConsumer.as_asgi(), scope)
    await socket.send_input({"type": "websocket.connect"})
    assert (await socket.receive_output())["type"] == "websocket.accept"
    told = json.loads((await socket.receive_output())["text"])
    assert told["error"]["code"] == "not_authenticated"
    assert await socket.receive_output() == {"type": "websocket.close", "code": 4401}
    await socket.send_input({"type": "websocket.disconnect", "code": 4401})
    await socket.wait()


async def test_a_stranger_who_has_gone_is_cut_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    socket = InferenceConsumer()
    socket.scope = {"path": "/ws/v1/generate"}

    async def gone(message: object) -> None:
        raise ConnectionAbortedError

    monkeypatch.setattr(socket, "base_send", gone, raising=False)
    monkeypatch.setattr(socket, "_end_all", lambda: None)
    socket._too_late()
    await socket._closing


async def test_an_answer_to_a_peer_that_has_gone_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends nonsense and leaves must not be able to fill the log with tracebacks."""
    socket = InferenceConsumer()

    async def gone(message: object) -> None:
        raise ClientDisconnected

    monkeypatch.setattr(socket, "websocket_receive", gone)
    await socket.dispatch({"type": "websocket.receive", "text": "{}"})
    assert not [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]


class Ended:
    over, resumable = True, True

    def __init__(self, kept_bytes: int) -> None:
        self.kept_bytes = kept_bytes

    def start(self) -> None:
        self.at_end: Any


@pytest.mark.parametrize(("size", "kept"), [(1, MAX_ENDED), (1 << 20, 8), (16 << 20, 0)])
async def test_what_ended_is_kept_within_bounds(size: int, kept: int) -> None:
    session = Session("s", ("key", None), None, lambda name: None)  # type: ignore[arg-type]
    for number in range(200):
        generation: Any = Ended(size)
        session.start(str(number), generation)
        generation.at_end()
    assert list(session.generations) == [str(number) for number in range(200 - kept, 200)]


def test_a_reader_is_given_up_by_bytes_too() -> None:
    buffer = RequestBuffer(Coalescing(stall_tokens=1000, stall_bytes=10_000))
    tops = [pb.TokenLogprob(token="x" * 40, top=[pb.TopLogprob(token="y" * 40)] * 20)]
    for number in range(10):
        buffer.push(pb.Delta(text="x", num_tokens=1, logprobs=tops), float(number))
    assert not buffer.stalled(9.0)
    buffer.push(pb.Delta(text="x", num_tokens=1, logprobs=tops), 9.0)
    assert buffer.stalled(9.0)


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(max_running=512)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_REQUEST_MAX_CHOICES": "16"}


@pytest.fixture
def acme(web: WebProcess) -> TenantAccess:
    return web.tenants["acme"]


def open_socket(web: WebProcess, headers: dict[str, str] | None = None) -> Any:
    return connect(f"{web.url.replace('http', 'ws')}/ws/inference", additional_headers=headers, proxy=None)


@pytest_asyncio.fixture
async def socket(web: WebProcess, acme: TenantAccess) -> AsyncIterator[ClientConnection]:
    async with open_socket(web, acme.bearer) as connection:
        assert (await receive(connection))["type"] == "hello"
        yield connection


async def say(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


# -- ids ------------------------------------------------------------------------------------------


async def resume(socket: ClientConnection, after: dict[str, Any], session: str = "0123456789ab.x") -> dict[str, Any]:
    await say(socket, type="resume", session=session, after=after)
    return await receive(socket)


async def test_many_ids_block_nobody(web: WebProcess, socket: ClientConnection) -> None:
    """20 of these blocked a process for twelve seconds and were answered with 1.2 million frames."""
    message = json.dumps({"type": "resume", "session": "x.y", "after": {f"{number:x}": 0 for number in range(60_000)}})
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            while not over.is_set():
                began = time.monotonic()
                await client.get(f"{web.url}/livez")
                longest = max(longest, time.monotonic() - began)
                await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    for _ in range(20):
        await socket.send(message)
    frames = [await receive(socket) for _ in range(20)]
    over.set()
    await watching
    assert {frame["error"]["code"] for frame in frames} == {"malformed_json"}  # more keys than any object may have
    assert longest < 2


async def test_lost_ids_are_told_in_one_frame(socket: ClientConnection) -> None:
    ids = {f"{number:x}": 0 for number in range(MAX_RESUMED)}
    answer = await resume(socket, ids)
    assert (answer["type"], answer["ids"], answer["error"]["code"]) == ("resumed", [], "resume_lost")
    assert set(answer["lost"]) == set(ids)
    assert (await resume(socket, {**ids, "more": 0}))["error"]["code"] == "too_many_ids"
    for after in ({"x" * 65: 0}, {"x": "0"}, {"x": None}, {"x": 1.5}):
        assert (await resume(socket, after))["error"]["code"] == "malformed_message"
    assert (await resume(socket, {}, session="x" * 65))["error"]["code"] == "malformed_message"
    await say(socket, type="cancel", id={"deep": []})
    assert (await receive(socket))["error"]["code"] == "malformed_message"
    await say(socket, type=["x" * 1000])
    assert (await receive(socket))["error"]["code"] == "malformed_message"
    await say(socket, type="ping")
    assert (await receive(socket))["type"] == "pong"


async def test_a_socket_takes_up_so_many_sessions(web: WebProcess, acme: TenantAccess, socket: Any) -> None:
    for _ in range(MAX_SESSIONS):
        async with open_socket(web, acme.bearer) as other:
            session = (await receive(other))["session"]
            assert (await resume(socket, {}, session))["type"] == "resumed"
    assert (await resume(socket, {}, session))["error"]["code"] == "too_many_sessions"


async def test_past_events_are_not_read_without_end(web: WebProcess, acme: TenantAccess) -> None:
    person = Signed(web.url, acme.email, acme.password)
    async with page_socket(web.url, "/ws/console", person.ticket("acme")) as socket:
        await receive(socket)
        for _ in range(30):
            await say(socket, type="replay", after=1)
        await say(socket, type="ping")
        frames = []
        while not frames or frames[-1]["type"] != "pong":
            frames.append(await receive(socket))
    refused = [frame for frame in frames if frame["type"] == "error"]
    assert len(refused) > 15
    assert {frame["error"]["code"] for frame in refused} == {"too_many_replays"}


@pytest.mark.parametrize("path", ["/ws/", "/ws/other", "/v1/chat/completions", "/"])
async def test_there_is_no_socket_elsewhere(web: WebProcess, path: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(web.url.replace("http", "ws") + path, proxy=None)
    assert refused.value.response.status_code == 403
    assert "Traceback" not in web.output()


# -- choices --------------------------------------------------------------------------------------


def ask(prompts: int, choices: int) -> dict[str, Any]:
    return {"model": "support", "prompt": ["words 3"] * prompts, "n": choices, "max_tokens": 5}


def complete(web: WebProcess, key: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{web.url}/v1/completions", json=body, headers=headers, trust_env=False, timeout=30)


async def test_the_choices_of_a_request_are_limited(web: WebProcess, engine: FakeEngine, socket: Any) -> None:
    refused = complete(web, web.tenants["acme"].key, **ask(2, 9)).json()["error"]
    assert (refused["code"], refused["param"]) == ("too_many_choices", "n")
    await say(socket, type="generate", id="a", request=ask(17, 1))
    assert (await receive(socket))["error"]["code"] == "too_many_choices"
    assert not engine.submits
    answer = complete(web, web.tenants["acme"].key, **ask(4, 4)).json()
    assert len(answer["choices"]) == 16


async def test_choices_count_against_concurrency(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(concurrency=6)
    too_many = complete(web, key, **ask(2, 4)).json()["error"]
    assert (too_many["code"], too_many["param"], too_many["requested"]) == ("exceeds_limit", "n", 8)
    async with open_socket(web, {"Authorization": f"Bearer {key}"}) as socket:
        await receive(socket)
        hanging = {"model": "support", "messages": [{"role": "user", "content": "hang"}], "n": 4}
        await say(socket, type="generate", id="a", request=hanging)
        assert (await receive(socket))["type"] == "accepted"
        await say(socket, type="generate", id="b", request=ask(1, 3))
        busy = (await receive(socket))["error"]
        assert (busy["code"], busy["limit"], busy["used"], busy["requested"]) == (
            "rate_limit_exceeded", "concurrency", 4, 3
        )  # fmt: skip
        assert complete(web, key, **ask(2, 1)).status_code == 200
    wait_for(lambda: console.standing(key)["concurrency"] == 0, what="what ended")
