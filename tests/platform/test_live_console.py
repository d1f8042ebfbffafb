"""The console's websocket on a real web process: staging live, replay, who may listen."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess, eventually
from websockets.asyncio.client import ClientConnection


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(stage_seconds=0.2)


@pytest.fixture(scope="module")
def people(web: WebProcess) -> dict[str, Signed]:
    return {slug: Signed(web.url, access.email, access.password) for slug, access in web.tenants.items()}


def open_console(person: Signed, tenant: str) -> Any:
    return page_socket(person.url, "/ws/console", person.ticket(tenant))


def restage(web: WebProcess, tenant: str, adapter: str) -> None:
    url = f"{web.url}/api/tenants/{tenant}/adapters/{adapter}/versions/1/restage"
    answer = httpx.post(url, headers=web.tenants[tenant].bearer, trust_env=False, timeout=30)
    assert answer.status_code < 300, answer.text


async def until_ready(socket: ClientConnection) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = []
    while True:
        frames.append(await receive(socket))
        data = frames[-1].get("data", {})
        if frames[-1]["event"] == "adapter.staging" and data["placement"]["phase"] == "ready":
            return frames


async def replay(socket: ClientConnection, after: int, until: int) -> list[dict[str, Any]]:
    """What is sent again, without what came live before it."""
    await socket.send(json.dumps({"type": "replay", "after": after}))
    frames = [await receive(socket)]
    while frames[0]["seq"] != after + 1:
        frames = [await receive(socket)]
    while frames[-1]["seq"] < until:
        frames.append(await receive(socket))
    return frames


async def test_staging_is_told_phase_by_phase_and_replayed(web: WebProcess, people: dict[str, Signed]) -> None:
    async with open_console(people["acme"], "acme") as socket:
        hello = await receive(socket)
        assert hello["type"] == "hello"
        await asyncio.to_thread(restage, web, "acme", "support")
        frames = await until_ready(socket)
        assert [frame["seq"] for frame in frames] == list(range(hello["seq"] + 1, frames[-1]["seq"] + 1))
        staging = [frame["data"] for frame in frames if frame["event"] == "adapter.staging"]
        assert {data["adapter"] for data in staging} == {"support"}
        phases = [data["placement"]["phase"] for data in staging]
        assert phases == ["queued", "downloading", "verifying", "loading", "ready"]
        assert staging[-1]["placement"]["bytes_done"] == staging[-1]["placement"]["bytes_total"] == 1 << 20
        assert await replay(socket, hello["seq"], frames[-1]["seq"]) == frames
        await socket.send(json.dumps({"type": "replay", "after": 1}))
        while (frame := await receive(socket))["type"] != "reset":
            pass
        assert frame["seq"] >= frames[-1]["seq"]


async def told_since(person: Signed, last: int) -> bool:
    async with open_console(person, "acme") as socket:
        return bool((await receive(socket))["seq"] > last)


async def test_a_reconnecting_console_catches_up(web: WebProcess, people: dict[str, Signed]) -> None:
    async with open_console(people["acme"], "acme") as socket:
        last = (await receive(socket))["seq"]
    await asyncio.to_thread(restage, web, "acme", "pirate")
    async with asyncio.timeout(30):
        while not await told_since(people["acme"], last):
            await asyncio.sleep(0.05)
    async with open_console(people["acme"], "acme") as socket:
        hello = await receive(socket)
        frames = await replay(socket, last, hello["seq"])
        assert [frame["seq"] for frame in frames] == list(range(last + 1, hello["seq"] + 1))


async def test_a_tenant_hears_only_its_own(web: WebProcess, people: dict[str, Signed]) -> None:
    async with open_console(people["globex"], "globex") as socket, open_console(people["acme"], "acme") as theirs:
        await receive(socket)
        await receive(theirs)
        await asyncio.to_thread(restage, web, "acme", "support")
        await until_ready(theirs)
        frames = [await receive(socket) for _ in range(2)]
    assert {frame["event"] for frame in frames} == {"host.status"}
    adapters = frames[-1]["data"]["adapters"]
    assert [adapter["name"] for adapter in adapters] == ["sql@v1"]


async def test_hosts_are_told_at_most_every_two_seconds(web: WebProcess, people: dict[str, Signed]) -> None:
    async with open_console(people["acme"], "acme") as socket:
        await receive(socket)
        moments = []
        while len(moments) < 4:
            if (await receive(socket))["event"] == "host.status":
                moments.append(time.monotonic())
    assert moments[-1] - moments[0] > 4.0  # six, and the first may have come late


async def test_ping_and_mistakes(web: WebProcess, people: dict[str, Signed]) -> None:
    async with open_console(people["acme"], "acme") as socket:
        await receive(socket)
        for mistake in ("", "{", "[]", '{"type":"replay"}', '{"type":"replay","after":"x"}', "x" * 10_000):
            await socket.send(mistake)
        await socket.send('{"type":"ping"}')
        kinds = []
        while "pong" not in kinds:
            kinds.append((await receive(socket))["type"])
        assert kinds.count("error") == 6


async def test_the_hosts_page(web: WebProcess) -> None:
    def host_with_both() -> Any:
        answer = httpx.get(
            f"{web.url}/api/tenants/acme/hosts", headers=web.tenants["acme"].bearer, trust_env=False, timeout=30
        )
        (host,) = answer.json()
        return host if len(host["adapters"]) == 2 else None

    host = eventually(host_with_both, what="both adapters on the host's card")
    assert host["name"] == "local"
    assert host["state"] == "online"
    assert host["model"] == "fake-base"
    pool = host["pool"]
    assert pool["total"] == pool["free"] + pool["kv"] + pool["cached_prefix"] + pool["adapter"] + pool["reserved"]
    assert {adapter["name"] for adapter in host["adapters"]} == {"support@v1", "pirate@v1"}
    stranger = httpx.get(
        f"{web.url}/api/tenants/acme/hosts", headers=web.tenants["globex"].bearer, trust_env=False, timeout=30
    )
    assert stranger.status_code == 404


# -- the playground's generations, on the same socket ------------------------------------------------


async def ask(socket: ClientConnection, name: str, prompt: str) -> None:
    request = {"model": "support", "messages": [{"role": "user", "content": prompt}]}
    await socket.send(json.dumps({"type": "generate", "id": name, "resume": True, "request": request}))


async def test_one_socket_carries_events_and_an_answer_and_both_survive_its_break(
    web: WebProcess, people: dict[str, Signed]
) -> None:
    """Killed in the midst of both: what was missed comes once, and nothing of it twice."""
    words, texts, seen, seqs = 300, [], [], []

    def note(frame: dict[str, Any]) -> None:
        if frame["type"] == "event":
            seen.append(frame["seq"])
        elif frame["type"] in ("delta", "done"):
            seqs.append(frame["seq"])
            texts.append(frame.get("text", ""))

    async with open_console(people["acme"], "acme") as socket:
        hello = await receive(socket)
        await ask(socket, "a", f"words {words}")
        await asyncio.to_thread(restage, web, "acme", "pirate")
        while not (texts and seen):
            note(await receive(socket))
        socket.transport.abort()
    await asyncio.to_thread(restage, web, "acme", "support")  # events that nobody hears
    async with open_console(people["acme"], "acme") as socket:
        again = await receive(socket)
        assert again["seq"] > seen[-1]
        await socket.send(json.dumps({"type": "replay", "after": seen[-1]}))
        await socket.send(json.dumps({"type": "resume", "session": hello["session"], "after": {"a": seqs[-1]}}))
        ended = False
        while not ended or seen[-1] < again["seq"]:
            frame = await receive(socket)
            note(frame)
            ended = ended or frame["type"] == "done"
    assert seqs == list(range(1, len(seqs) + 1))
    assert len("".join(texts).split()) == words
    assert seen == list(range(hello["seq"] + 1, hello["seq"] + 1 + len(seen)))


async def test_a_program_has_no_console(web: WebProcess) -> None:
    access = web.tenants["acme"]
    async with page_socket(web.url, "/ws/console", headers=access.bearer) as socket:
        assert (await receive(socket))["error"]["code"] == "ticket_invalid"
    async with page_socket(web.url, "/ws/console") as socket:
        await socket.send(json.dumps({"type": "auth", "key": access.key}))
        assert (await receive(socket))["error"]["code"] == "ticket_invalid"
