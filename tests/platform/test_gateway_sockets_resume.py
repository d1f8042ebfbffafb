"""A generation that began in one web process is resumed in another."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio
from lorikeet_testing import script
from lorikeet_testing.browser import receive
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.processes import two_processes
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually
from websockets.asyncio.client import ClientConnection, connect

from control_plane.gateway.websocket.resume_relay import LIST_EXPIRES_S, Relay
from control_plane.gateway.websocket.session import Sessions
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.services
REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(max_running=512, steps_per_second=100)


@pytest.fixture(scope="module")
def webs(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WebProcess]]:
    with two_processes(tmp_path_factory.mktemp("two"), f"local={engine_thread.engine.address}") as webs:
        yield webs


@asynccontextmanager
async def opened(web: WebProcess, tenant: str = "acme") -> Any:
    url = f"{web.url.replace('http', 'ws')}/ws/inference"
    async with connect(url, additional_headers=web.tenants[tenant].bearer, proxy=None) as socket:
        yield socket, (await receive(socket))["session"]


async def generate(socket: ClientConnection, name: str, prompt: str) -> None:
    request = {"model": "support", "messages": [{"role": "user", "content": prompt}]}
    await socket.send(json.dumps({"type": "generate", "id": name, "resume": True, "request": request}))


async def begun(web: WebProcess, prompt: str, frames: int = 6) -> tuple[str, list[dict[str, Any]]]:
    """The session of a generation whose socket broke, and what had come."""
    async with opened(web) as (socket, session):
        await generate(socket, "g", prompt)
        return session, [await receive(socket) for _ in range(frames)]


async def resume(socket: ClientConnection, session: str, after: dict[str, int]) -> dict[str, Any]:
    await socket.send(json.dumps({"type": "resume", "session": session, "after": after}))
    return await receive(socket)


async def rest_of(socket: ClientConnection) -> list[dict[str, Any]]:
    frames = [await receive(socket)]
    while frames[-1]["type"] not in ("done", "error"):
        frames.append(await receive(socket))
    return frames


def assert_whole(frames: list[dict[str, Any]], prompt: str) -> None:
    numbered = [frame for frame in frames if frame["type"] != "accepted"]
    assert [frame["seq"] for frame in numbered] == list(range(1, len(numbered) + 1))
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=prompt)])
    planned = script.plan(pb.Submit(adapter_digest=digest_of("acme", "support"), chat=chat), 0)
    assert "".join(frame.get("text", "") for frame in numbered) == planned.text


async def test_the_text_goes_on(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, frames = await begun(webs[0], "words 300")
    async with opened(webs[1]) as (socket, _):
        assert await resume(socket, session, {"g": frames[-1]["seq"]}) == {
            "type": "resumed",
            "session": session,
            "ids": ["g"],
            "lost": [],
        }
        frames += await rest_of(socket)
        assert_whole(frames, "words 300")
        # The socket is as any other: new generations run in its own process.
        await generate(socket, "g", "say more")
        assert_whole(await rest_of(socket), "say more")
    assert not engine.aborts


async def test_there_and_back(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, frames = await begun(webs[0], "words 300")
    for web in (webs[1], webs[0], webs[1]):
        async with opened(web) as (socket, _):
            assert (await resume(socket, session, {"g": frames[-1]["seq"]}))["ids"] == ["g"]
            assert (await receive(socket))["type"] == "accepted"
            frames += [await receive(socket) for _ in range(4)]
    async with opened(webs[0]) as (socket, _):
        await resume(socket, session, {"g": frames[-1]["seq"]})
        assert_whole(frames + await rest_of(socket), "words 300")


async def test_from_one_that_does_not_know_yet_that_its_client_left(webs: list[WebProcess], engine: FakeEngine) -> None:
    async with opened(webs[0]) as (dead, session), opened(webs[1]) as (socket, _):
        await generate(dead, "g", "words 200")
        frames = [await receive(dead) for _ in range(4)]
        assert (await resume(socket, session, {"g": frames[-1]["seq"]}))["ids"] == ["g"]
        assert_whole(frames + await rest_of(socket), "words 200")


async def test_cancelled_from_there(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, _ = await begun(webs[0], "words 5000")
    async with opened(webs[1]) as (socket, _):
        await resume(socket, session, {"g": 0})
        await socket.send(json.dumps({"type": "cancel", "id": "g"}))
        last = (await rest_of(socket))[-1]
    assert last["finish_reason"] == ["abort"] and last["usage"]["completion_tokens"] > 0
    assert len(engine.aborts) == 1


async def test_what_is_not_wanted_any_more_is_aborted(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, _ = await begun(webs[0], "words 5000")
    async with opened(webs[1]) as (socket, _):
        assert (await resume(socket, session, {}))["ids"] == []
    await asyncio.to_thread(eventually, lambda: engine.aborts, what="the abort")


async def test_not_by_another(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, frames = await begun(webs[0], "words 200")
    async with opened(webs[1], "globex") as (socket, _):
        assert (await resume(socket, session, {"g": 0}))["error"]["code"] == "resume_lost"
    async with opened(webs[1]) as (socket, _):
        await resume(socket, session, {"g": frames[-1]["seq"]})
        assert_whole(frames + await rest_of(socket), "words 200")


async def test_a_reader_that_stalls_loses_nothing(webs: list[WebProcess], engine: FakeEngine) -> None:
    engine.behaviour.steps_per_second = 2000
    session, frames = await begun(webs[0], "words 4000", 3)
    async with opened(webs[1]) as (socket, _):
        await resume(socket, session, {"g": frames[-1]["seq"]})
        await asyncio.sleep(2)
        assert_whole(frames + await rest_of(socket), "words 4000")


async def test_many_at_once(webs: list[WebProcess], engine: FakeEngine) -> None:
    begun_there = await asyncio.gather(*(begun(webs[0], f"words {200 + number}", 3) for number in range(40)))
    async with AsyncExitStack() as stack:
        sockets = [(await stack.enter_async_context(opened(webs[1])))[0] for _ in begun_there]

        async def go_on(number: int) -> None:
            session, frames = begun_there[number]
            await resume(sockets[number], session, {"g": frames[-1]["seq"]})
            assert_whole(frames + await rest_of(sockets[number]), f"words {200 + number}")

        await asyncio.gather(*map(go_on, range(len(sockets))))


async def test_idle_sockets_stay(webs: list[WebProcess], engine: FakeEngine) -> None:
    """Each waits for messages of the channel layer, five seconds at a time."""
    async with AsyncExitStack() as stack:
        sockets = [(await stack.enter_async_context(opened(webs[1])))[0] for _ in range(50)]
        await asyncio.sleep(6)
        for socket in sockets:
            await socket.send('{"type": "ping"}')
            assert (await receive(socket))["type"] == "pong"


def test_nothing_is_left_in_redis(webs: list[WebProcess], engine: FakeEngine) -> None:
    server = redis.Redis.from_url(webs[0].installation["LORIKEET_REDIS_URL"])
    eventually(lambda: not server.keys("lorikeet:handover:*"), LIST_EXPIRES_S / 2, what="empty lists")


async def test_what_was_on_its_way_when_its_reader_left(monkeypatch: pytest.MonkeyPatch) -> None:
    pushing, left = asyncio.Event(), asyncio.Event()
    push = Relay._push

    async def late(relay: Relay, element: str) -> None:
        pushing.set()
        await left.wait()
        await push(relay, element)

    monkeypatch.setattr(Relay, "_push", late)
    sessions, owner, address = Sessions(), ("key", uuid4()), f"lorikeet:handover:{uuid4().hex}"
    async with redis.asyncio.Redis.from_url(REDIS_URL) as server:
        relay = Relay(server, address)
        session = sessions.open(owner, relay)
        running = asyncio.create_task(relay.run(sessions, session.name, owner, {}))
        await pushing.wait()
        relay.do({"do": "leave"})
        await server.delete(address)  # the reader's
        left.set()
        await running
        assert not await server.exists(address)


async def test_when_its_home_dies(webs: list[WebProcess], engine: FakeEngine) -> None:
    session, frames = await begun(webs[0], "words 5000")
    async with opened(webs[1]) as (socket, _):
        await resume(socket, session, {"g": frames[-1]["seq"]})
        await receive(socket)
        await asyncio.to_thread(webs[0].kill)
        error = (await rest_of(socket))[-1]["error"]
        assert error["code"] == "resume_lost" and error["fix"]
        started = time.monotonic()
        assert (await resume(socket, session, {"g": 1}))["error"]["code"] == "resume_lost"
        assert time.monotonic() - started < 1
