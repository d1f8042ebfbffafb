"""The inference websocket on a real web process and a scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from lorikeet_testing import script
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import TenantAccess, WebProcess, eventually
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from control_plane.gateway.dispatch.errors import invalid
from control_plane.gateway.websocket.generation import GENERATIONS, SocketGeneration
from control_plane.identity.access.principal import Principal
from control_plane.identity.tenants.models import Tenant
from lora_engine.wire import engine_pb2 as pb

SUPPORT = digest_of("acme", "support")


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_SOCKET_MAX_GENERATIONS": "10"}


@pytest.fixture
def acme(web: WebProcess) -> TenantAccess:
    return web.tenants["acme"]


@pytest_asyncio.fixture
async def socket(web: WebProcess, acme: TenantAccess, engine: FakeEngine) -> AsyncIterator[ClientConnection]:
    async with open_socket(web, acme.bearer) as connection:
        assert (await receive(connection))["type"] == "hello"
        yield connection


def open_socket(web: WebProcess, headers: dict[str, str] | None = None) -> Any:
    url = f"{web.url.replace('http', 'ws')}/ws/inference"
    return connect(url, additional_headers=headers, proxy=None)


async def generate(socket: ClientConnection, name: str, prompt: str, model: str = "support", **extra: Any) -> None:
    request = {"model": model, "messages": [{"role": "user", "content": prompt}], **extra}
    await socket.send(json.dumps({"type": "generate", "id": name, "request": request}))


async def collect(socket: ClientConnection, names: set[str]) -> dict[str, list[dict[str, Any]]]:
    frames: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    waiting = set(names)
    while waiting:
        frame = await receive(socket)
        frames[frame["id"]].append(frame)
        if frame["type"] in ("done", "error"):
            waiting.discard(frame["id"])
    return frames


def expected(prompt: str, choice: int = 0) -> str:
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=prompt)])
    return script.plan(pb.Submit(adapter_digest=SUPPORT, chat=chat), choice).text


def text_of(frames: list[dict[str, Any]], choice: int = 0) -> str:
    return "".join(frame["text"] for frame in frames if frame["type"] == "delta" and frame["choice"] == choice)


async def test_eight_generations_one_cancelled(socket: ClientConnection, engine: FakeEngine) -> None:
    names = [f"g{number}" for number in range(8)]
    for name in names:
        await generate(socket, name, "words 5000" if name == "g3" else f"question {name}")
    ended: dict[str, dict[str, Any]] = {}
    cancelled = False
    while len(ended) < 8:
        frame = await receive(socket)
        if frame["type"] == "delta" and frame["id"] == "g3" and not cancelled:
            cancelled = True
            await socket.send(json.dumps({"type": "cancel", "id": "g3"}))
        if frame["type"] in ("done", "error"):
            ended[frame["id"]] = frame
    assert all(frame["type"] == "done" for frame in ended.values())
    assert ended["g3"]["finish_reason"] == ["abort"]
    assert 0 < ended["g3"]["usage"]["completion_tokens"] < 5000
    assert all(ended[name]["finish_reason"] == ["stop"] for name in names if name != "g3")
    assert len(engine.aborts) == 1


async def test_frames_are_numbered_and_complete(socket: ClientConnection, engine: FakeEngine) -> None:
    names = {f"g{number}" for number in range(8)}
    for name in names:
        await generate(socket, name, f"question {name}", n=2 if name == "g0" else 1)
    for name, frames in (await collect(socket, names)).items():
        assert frames[0]["type"] == "accepted"
        assert frames[0]["request_id"].startswith("req_")
        assert [frame["seq"] for frame in frames[1:]] == list(range(1, len(frames)))
        assert text_of(frames) == expected(f"question {name}")
        done = frames[-1]
        assert done["type"] == "done"
        assert done["usage"]["completion_tokens"] == sum(f["tokens"] for f in frames if f["type"] == "delta")
        assert set(done["timings"]) == {
            "queue_ms", "adapter_load_ms", "first_token_ms", "prefill_ms", "decode_ms", "preempted_ms"
        }  # fmt: skip
        assert done["finish_reason"] == ["stop"] * (2 if name == "g0" else 1)
    rows = {submit.request_id for submit in engine.submits}
    assert len(rows) == 8


async def test_completions_bodies_work_too(socket: ClientConnection) -> None:
    body = {"model": "support", "prompt": ["say one two", "say three"]}
    await socket.send(json.dumps({"type": "generate", "id": "c", "request": body}))
    frames = (await collect(socket, {"c"}))["c"]
    assert text_of(frames, 0) == "one two"
    assert text_of(frames, 1) == "three"
    assert frames[-1]["finish_reason"] == ["stop", "stop"]


async def test_mistakes_leave_the_socket_open(socket: ClientConnection) -> None:
    no_id = "A generation needs an id of 1 to 64 characters."
    mistakes = {
        "not json": "The body is not valid JSON: a value is expected at line 1, column 1.",
        "[]": "The body is a JSON array, not an object.",
        "{}": "The message has no type.",
        json.dumps({"type": "dance"}): 'There is no message of type "dance" with these fields.',
        json.dumps({"type": "generate"}): no_id,
        json.dumps({"type": "generate", "id": "x"}): "A generation needs a request object.",
        json.dumps(
            {"type": "generate", "id": "x" * 100, "request": {}}
        ): "A generation needs an id of 1 to 64 characters.",
    }
    for mistake, message in mistakes.items():
        await socket.send(mistake)
        frame = await receive(socket)
        assert (frame["type"], frame["error"]["message"]) == ("error", message)
        assert frame["error"]["code"] and frame["error"]["fix"]
    both = {"model": "support", "prompt": "x", "messages": [{"role": "user", "content": "x"}]}
    await socket.send(json.dumps({"type": "generate", "id": "both", "request": both}))
    assert (await receive(socket))["error"]["message"] == "The request has a prompt and messages."
    await socket.send(b"\x00\x01")
    assert (await receive(socket))["error"]["code"] == "malformed_message"
    await socket.send(json.dumps({"type": "cancel", "id": "nobody"}))
    unknown = await receive(socket)
    assert (unknown["type"], unknown["id"], unknown["error"]["code"]) == ("error", "nobody", "unknown_generation")
    await socket.send(json.dumps({"type": "ping"}))
    assert (await receive(socket))["type"] == "pong"


async def test_errors_of_a_generation(socket: ClientConnection) -> None:
    await generate(socket, "unknown", "x", model="nonsense")
    await generate(socket, "foreign", "x", model="sql")
    await generate(socket, "bad", "x", temperature=9)
    await generate(socket, "refused", "fail overloaded")
    await generate(socket, "broken", "break 3")
    await generate(socket, "overflowed", "overflow now")
    frames = await collect(socket, {"unknown", "foreign", "bad", "refused", "broken", "overflowed"})
    codes = {name: received[-1]["error"]["code"] for name, received in frames.items()}
    assert codes == {
        "unknown": "model_not_found",
        "foreign": "model_not_found",
        "bad": "invalid_value",
        "refused": "overloaded",
        "broken": "device_error",
        "overflowed": "adapter_overflow",
    }
    assert frames["bad"][-1]["error"]["param"] == "temperature"
    assert [frame["seq"] for frame in frames["broken"] if "seq" in frame] == list(range(1, len(frames["broken"])))


async def test_ids_and_numbers_of_generations_are_limited(socket: ClientConnection) -> None:
    for number in range(10):
        await generate(socket, f"g{number}", "hang")
    accepted = [await receive(socket) for _ in range(10)]
    assert {frame["type"] for frame in accepted} == {"accepted"}
    await generate(socket, "g0", "hello")
    assert (await receive(socket))["error"]["code"] == "duplicate_id"
    await generate(socket, "g10", "hello")
    assert (await receive(socket))["error"]["code"] == "too_many_generations"


async def test_closing_the_socket_aborts_everything(web: WebProcess, acme: TenantAccess, engine: FakeEngine) -> None:
    async with open_socket(web, acme.bearer) as socket:
        for number in range(5):
            await generate(socket, f"g{number}", "words 5000")
        while len(engine.running) < 5:
            await receive(socket)
    submitted = {submit.request_id for submit in engine.submits}
    await asyncio.to_thread(eventually, lambda: set(engine.aborts) == submitted, 5, what="aborts")


@pytest.mark.parametrize("fails", [False, True], ids=["as-it-sends", "as-it-fails"])
async def test_a_generation_whose_socket_broke_has_not_failed(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """It is no error of the server: no alert counts it, and no log has its trace."""

    async def broken(_text: str) -> None:
        raise ConnectionResetError

    generation = SocketGeneration("a", {}, Principal(Tenant(), frozenset()), broken, resumable=False)

    async def generate() -> None:
        if fails:
            raise invalid("No.", "Yes.")
        await generation._send_numbered("delta", "")

    monkeypatch.setattr(generation, "_generate", generate)
    outcomes = {outcome: GENERATIONS.labels(outcome)._value.get() for outcome in ("aborted", "failed")}
    await generation._run()
    ended = {outcome: GENERATIONS.labels(outcome)._value.get() - before for outcome, before in outcomes.items()}
    assert ended == {"aborted": not fails, "failed": fails}


async def test_the_key_in_the_first_message(web: WebProcess, acme: TenantAccess, engine: FakeEngine) -> None:
    async with open_socket(web) as socket:
        await socket.send(json.dumps({"type": "auth", "key": acme.key}))
        assert (await receive(socket))["type"] == "hello"
        await generate(socket, "g", "say hi")
        assert text_of((await collect(socket, {"g"}))["g"]) == "hi"


@pytest.mark.parametrize("first", [{"type": "auth", "key": "lk_x_y"}, {"type": "generate", "id": "a", "request": {}}])
async def test_strangers_are_refused(web: WebProcess, first: dict[str, Any]) -> None:
    async with open_socket(web) as socket:
        await socket.send(json.dumps(first))
        assert (await receive(socket))["error"]["code"] in {"invalid_api_key", "not_authenticated"}
        with pytest.raises(ConnectionClosed) as closed:
            await receive(socket)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401


async def test_a_page_of_ours(web: WebProcess, acme: TenantAccess, engine: FakeEngine) -> None:
    person = Signed(web.url, acme.email, acme.password)
    async with page_socket(web.url, "/ws/inference", person.ticket("acme")) as socket:
        assert (await receive(socket))["type"] == "hello"
        await generate(socket, "g", "say hi")
        assert text_of((await collect(socket, {"g"}))["g"]) == "hi"


async def test_a_slow_reader_gets_everything_and_holds_up_nobody(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    engine.behaviour.steps_per_second = 2000
    async with connect(
        f"{web.url.replace('http', 'ws')}/ws/inference", additional_headers=acme.bearer, proxy=None, max_queue=1
    ) as slow:
        await receive(slow)
        await generate(slow, "slow", "words 3000")
        await asyncio.sleep(1.0)
        await generate(socket, "quick", "words 100")
        assert (await collect(socket, {"quick"}))["quick"][-1]["type"] == "done"
        frames = (await collect(slow, {"slow"}))["slow"]
    assert text_of(frames) == expected("words 3000")
    assert [frame["seq"] for frame in frames[1:]] == list(range(1, len(frames)))


async def test_an_engine_that_dies(
    socket: ClientConnection, engine: FakeEngine, engine_thread: FakeEngineThread
) -> None:
    await generate(socket, "g", "words 5000")
    while (frame := await receive(socket))["type"] != "delta":
        assert frame["type"] != "error", frame
    await asyncio.to_thread(engine_thread.stop)
    error = (await collect(socket, {"g"}))["g"][-1]["error"]
    assert error["code"] == "engine_disconnected"
    assert error["retry_after_s"]
    await asyncio.to_thread(engine_thread.start)
    # Until the restart is noticed the placements of the process that died count; then, for a moment, none does.
    await asyncio.to_thread(eventually, lambda: SUPPORT in engine.resident, 20, what="the adapter, staged anew")
    for attempt in range(100):
        await generate(socket, f"again{attempt}", "say back")
        if (await collect(socket, {f"again{attempt}"}))[f"again{attempt}"][-1]["type"] == "done":
            return
        await asyncio.sleep(0.2)
    raise AssertionError("no recovery")


# -- resume ------------------------------------------------------------------------


async def begin_resumable(
    web: WebProcess, acme: TenantAccess, prompt: str, until: int
) -> tuple[str, list[dict[str, Any]]]:
    """The session, and the frames that came before the socket broke."""
    frames = []
    async with open_socket(web, acme.bearer) as socket:
        session = (await receive(socket))["session"]
        request = {"model": "support", "messages": [{"role": "user", "content": prompt}]}
        await socket.send(json.dumps({"type": "generate", "id": "g", "resume": True, "request": request}))
        while len(frames) < until:
            frames.append(await receive(socket))
    return session, frames


async def resume(socket: ClientConnection, session: str, after: dict[str, int]) -> dict[str, Any]:
    await socket.send(json.dumps({"type": "resume", "session": session, "after": after}))
    return await receive(socket)


def lost_of(resumed: dict[str, Any]) -> str:
    """Why there is nothing left of g."""
    assert (resumed["type"], resumed["ids"], resumed["lost"]) == ("resumed", [], ["g"])
    assert resumed["error"]["fix"]
    return str(resumed["error"]["code"])


async def test_a_broken_socket_is_resumed(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    session, frames = await begin_resumable(web, acme, "words 300", until=6)
    await asyncio.sleep(0.2)
    assert not engine.aborts
    assert (await resume(socket, session, {"g": frames[-1]["seq"]}))["ids"] == ["g"]
    rest = (await collect(socket, {"g"}))["g"]
    assert rest[0]["type"] == "accepted"
    whole = [*frames[1:], *rest[1:]]
    assert [frame["seq"] for frame in whole] == list(range(1, len(whole) + 1))
    assert text_of(whole) == expected("words 300")
    assert len(engine.submits) == 1


async def test_what_ended_meanwhile_is_sent_too(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    session, _ = await begin_resumable(web, acme, "words 60", until=2)
    await asyncio.to_thread(eventually, lambda: not engine.running, what="the end")
    await asyncio.sleep(0.1)
    await resume(socket, session, {"g": 0})
    assert text_of((await collect(socket, {"g"}))["g"]) == expected("words 60")


async def test_only_who_began_it_resumes_it_and_the_last_has_it(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    session, _ = await begin_resumable(web, acme, "words 2000", until=2)
    async with open_socket(web, web.tenants["globex"].bearer) as foreign:
        await receive(foreign)
        assert lost_of(await resume(foreign, session, {"g": 0})) == "resume_lost"
    assert (await resume(socket, session, {"g": 0}))["ids"] == ["g"]
    async with open_socket(web, acme.bearer) as second:
        await receive(second)
        assert (await resume(second, session, {"g": 0}))["ids"] == ["g"]
        await second.send(json.dumps({"type": "cancel", "id": "g"}))
        frames = (await collect(second, {"g"}))["g"]
    assert frames[-1]["finish_reason"] == ["abort"]
    assert [frame["seq"] for frame in frames[1:]] == list(range(1, len(frames)))


async def test_a_client_may_be_back_before_the_server_knows_that_it_left(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    async with open_socket(web, acme.bearer) as dead:
        session = (await receive(dead))["session"]
        request = {"model": "support", "messages": [{"role": "user", "content": "words 300"}]}
        await dead.send(json.dumps({"type": "generate", "id": "g", "resume": True, "request": request}))
        frames = [await receive(dead) for _ in range(4)]
        assert (await resume(socket, session, {"g": frames[-1]["seq"]}))["ids"] == ["g"]
        rest = (await collect(socket, {"g"}))["g"]
        assert text_of([*frames[1:], *rest[1:]]) == expected("words 300")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await receive(dead)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4409


async def test_resumed_again_by_the_session_it_began_in(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    engine.behaviour.steps_per_second = 60
    session, frames = await begin_resumable(web, acme, "words 60", until=3)
    async with open_socket(web, acme.bearer) as second:
        await receive(second)
        await resume(second, session, {"g": frames[-1]["seq"]})
        assert (await receive(second))["type"] == "accepted"
        frames += [await receive(second) for _ in range(3)]
    await resume(socket, session, {"g": frames[-1]["seq"]})
    rest = (await collect(socket, {"g"}))["g"]
    assert text_of([*frames[1:], *rest[1:]]) == expected("words 60")


async def test_a_session_of_a_process_that_is_gone(socket: ClientConnection, engine: FakeEngine) -> None:
    assert lost_of(await resume(socket, "0123456789ab.0123", {"g": 0})) == "resume_lost"


async def test_what_is_not_wanted_any_more_is_aborted(
    web: WebProcess, acme: TenantAccess, engine: FakeEngine, socket: ClientConnection
) -> None:
    session, _ = await begin_resumable(web, acme, "words 5000", until=2)
    assert (await resume(socket, session, {}))["ids"] == []
    await asyncio.to_thread(eventually, lambda: engine.aborts, what="the abort")


@pytest.mark.parametrize(
    "message", [{"session": 3, "after": {}}, {"session": "x"}, {"session": "x", "after": {"g": "1"}}], ids=str
)
async def test_resume_in_another_form(socket: ClientConnection, message: dict[str, Any]) -> None:
    await socket.send(json.dumps({"type": "resume", **message}))
    assert (await receive(socket))["error"]["code"] == "malformed_message"
