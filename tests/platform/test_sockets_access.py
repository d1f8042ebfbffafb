"""Who may hold a websocket, every message as everybody, and that revocation cuts what is open."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.fake_engine import FakeEngine, FakeEngineThread
from lorikeet_testing.web import WebProcess, eventually
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from control_plane.asgi import sockets
from control_plane.identity.sockets.authenticated_socket import AuthenticatedSocket
from control_plane.identity.tenants.roles import CAPABILITIES, Role

PASSWORD = "correct horse battery"
BOTH = ("/ws/console", "/ws/inference")

GENERATIONS: dict[str, dict[str, Any]] = {
    "ping": {},
    "generate": {"id": "g", "request": {"model": "support", "messages": [{"role": "user", "content": "say hi"}]}},
    "cancel": {"id": "g"},
    "resume": {"session": "x", "after": {}},
}
# Every message of every socket, so complete that only the sender's rights decide; `test_every_action_is_walked`
# fails for one that is missing here.
MESSAGES: dict[str, dict[str, dict[str, Any]]] = {
    "/ws/console": {"auth": {"ticket": "x"}, **GENERATIONS, "replay": {"after": 1}},
    "/ws/inference": {"auth": {"key": "lk_x_y"}, **GENERATIONS},
}


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_LOGIN_RATE": "1000/min", "LORIKEET_LOGIN_ACCOUNT_RATE": "1000/min"}


def owner(web: WebProcess, tenant: str = "acme") -> Signed:
    access = web.tenants[tenant]
    return Signed(web.url, access.email, access.password)


def member(web: WebProcess, role: Role) -> Signed:
    """A new member of acme, by invitation."""
    email = f"{os.urandom(4).hex()}@acme.example"
    invited = owner(web).send("POST", "/api/tenants/acme/invitations", {"email": email, "role": role.value})
    assert invited.status_code == 201, invited.text
    token = invited.json()["link"].partition("#")[2]
    body = {"token": token, "name": "", "password": PASSWORD}
    stranger = owner(web, "globex")
    stranger.http.cookies.clear()
    stranger._csrf = stranger.http.get("/api/session").json()["csrf_token"]
    assert stranger.send("POST", "/api/invitations/accept", body).status_code == 200
    return Signed(web.url, email, PASSWORD)


async def closing(socket: ClientConnection) -> tuple[str, int]:
    """The last error that is told, and the code of the close."""
    code = ""
    try:
        while True:
            code = (await receive(socket)).get("error", {}).get("code", code)
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return code, closed.rcvd.code


def test_every_action_is_walked() -> None:
    for pattern in sockets:
        path, consumer = f"/{pattern.pattern}", pattern.callback.consumer_class
        assert issubclass(consumer, AuthenticatedSocket), f"{path}: AuthenticatedSocket checks who may send what"
        assert set(MESSAGES.get(path, {})) == set(consumer.actions), (
            f"{path}: add its messages to MESSAGES, so that each is sent as every role and as strangers"
        )


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("path", BOTH)
async def test_each_role(web: WebProcess, engine: FakeEngine, path: str, role: Role) -> None:
    consumer = next(one.callback.consumer_class for one in sockets if f"/{one.pattern}" == path)
    ticket = member(web, role).ticket("acme")
    async with page_socket(web.url, path, ticket) as socket:
        first = await receive(socket)
        if consumer.needs not in CAPABILITIES[role]:
            assert first["error"]["code"] == "role_not_allowed"
            assert (await closing(socket))[1] == 4403
            return
        assert first["type"] == "hello"
        refused = 0
        for kind, body in MESSAGES[path].items():
            if kind == "auth":
                continue
            needed = consumer.actions[kind]
            refused += needed is not None and needed not in CAPABILITIES[role]
            await socket.send(json.dumps({"type": kind, **body}))
        await socket.send('{"type": "ping"}')
        frames = [await receive(socket)]
        while [frame["type"] for frame in frames].count("pong") < 2:
            frames.append(await receive(socket))
        errors = [frame["error"]["code"] for frame in frames if frame["type"] == "error"]
        assert errors == ["role_not_allowed"] * refused


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path in BOTH for kind in MESSAGES[path]])
async def test_strangers(web: WebProcess, path: str, kind: str) -> None:
    """Without a ticket nothing is done, cookie or not; another tenant's ticket is never made."""
    headers = {"Cookie": owner(web).cookies}
    for extra in ({}, headers):
        async with page_socket(web.url, path, headers=extra) as socket:
            await socket.send(json.dumps({"type": kind, **MESSAGES[path][kind]}))
            if kind == "ping":
                assert (await receive(socket))["type"] == "pong"
                continue
            code, closed = await closing(socket)
            assert closed == 4401
            assert code in {"not_authenticated", "ticket_invalid", "invalid_api_key"}


def test_tickets_are_made_for_own_tenants_only(web: WebProcess) -> None:
    refused = owner(web, "globex").send("POST", "/api/tenants/acme/socket-ticket")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "tenant_not_found")


@pytest.mark.parametrize("path", BOTH)
async def test_a_ticket_is_good_once(web: WebProcess, path: str) -> None:
    ticket = owner(web).ticket("acme")
    async with page_socket(web.url, path, ticket) as socket:
        assert (await receive(socket))["type"] == "hello"
    async with page_socket(web.url, path, ticket) as socket:
        assert await closing(socket) == ("ticket_invalid", 4401)


async def test_a_ticket_from_another_site(web: WebProcess) -> None:
    with pytest.raises(InvalidStatus):
        async with page_socket(web.url, "/ws/console", owner(web).ticket("acme"), origin="https://evil.example"):
            pass
    ticket = owner(web).ticket("acme")
    async with page_socket(web.url, "/ws/inference", ticket, origin="https://evil.example") as socket:
        assert await closing(socket) == ("ticket_invalid", 4401)


@pytest_asyncio.fixture
async def both_open(web: WebProcess, engine: FakeEngine) -> AsyncIterator[tuple[Signed, list[ClientConnection]]]:
    """A developer with both sockets open and a long answer running."""
    person = member(web, Role.DEVELOPER)
    console = page_socket(web.url, "/ws/console", person.ticket("acme"))
    inference = page_socket(web.url, "/ws/inference", person.ticket("acme"))
    async with console as one, inference as two:
        for socket in (one, two):
            assert (await receive(socket))["type"] == "hello"
        await stream(two)
        yield person, [one, two]


async def stream(socket: ClientConnection) -> None:
    """Begin a long answer."""
    request = {"model": "support", "messages": [{"role": "user", "content": "words 20000"}]}
    await socket.send(json.dumps({"type": "generate", "id": "g", "request": request}))
    while (await receive(socket))["type"] != "delta":
        pass


async def cut_within(sockets: list[ClientConnection], seconds: float = 3) -> set[tuple[str, int]]:
    async with asyncio.timeout(seconds):
        return {await closing(socket) for socket in sockets}


async def test_signing_out_cuts(engine: FakeEngine, both_open: tuple[Signed, list[ClientConnection]]) -> None:
    person, opened = both_open
    assert person.send("DELETE", "/api/session").status_code == 200
    assert await cut_within(opened) == {("not_authenticated", 4401)}
    await asyncio.to_thread(eventually, lambda: not engine.running, what="the engine's abort")


async def test_another_session_ending_does_not_cut(
    web: WebProcess, both_open: tuple[Signed, list[ClientConnection]]
) -> None:
    person, opened = both_open
    email = person.http.get("/api/session").json()["user"]["email"]
    other = Signed(web.url, email, PASSWORD)
    assert other.send("DELETE", "/api/session").status_code == 200
    await asyncio.sleep(0.3)
    await opened[0].send('{"type": "ping"}')
    while (await receive(opened[0]))["type"] != "pong":
        pass


async def test_a_new_password_cuts(web: WebProcess, both_open: tuple[Signed, list[ClientConnection]]) -> None:
    person, opened = both_open
    email = person.http.get("/api/session").json()["user"]["email"]
    body = {"current_password": PASSWORD, "password": "a wholly new pass phrase"}
    assert Signed(web.url, email, PASSWORD).send("POST", "/api/password", body).status_code == 200
    assert await cut_within(opened) == {("not_authenticated", 4401)}


async def test_removal_cuts(web: WebProcess, both_open: tuple[Signed, list[ClientConnection]]) -> None:
    person, opened = both_open
    user = person.http.get("/api/session").json()["user"]["id"]
    assert owner(web).send("DELETE", f"/api/tenants/acme/members/{user}").status_code == 204
    assert await cut_within(opened) == {("tenant_not_found", 4404)}


async def test_a_smaller_role_cuts_what_it_may_not(
    web: WebProcess, both_open: tuple[Signed, list[ClientConnection]]
) -> None:
    person, opened = both_open
    user = person.http.get("/api/session").json()["user"]["id"]
    changed = owner(web).send("PATCH", f"/api/tenants/acme/members/{user}", {"role": "viewer"})
    assert changed.status_code == 200
    assert await cut_within(opened[1:]) == {("role_not_allowed", 4403)}
    await opened[0].send('{"type": "ping"}')
    while (await receive(opened[0]))["type"] != "pong":
        pass


async def test_a_revoked_key_cuts(web: WebProcess, engine: FakeEngine) -> None:
    person = owner(web)
    made = person.send("POST", "/api/tenants/acme/keys", {"name": "short"}).json()
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    async with page_socket(web.url, "/ws/inference", headers=bearer) as socket:
        assert (await receive(socket))["type"] == "hello"
        await stream(socket)
        assert person.send("DELETE", f"/api/tenants/acme/keys/{made['id']}").status_code == 204
        assert await cut_within([socket]) == {("invalid_api_key", 4401)}


async def test_a_rotated_secret_cuts_without_grace(web: WebProcess) -> None:
    person = owner(web)
    made = person.send("POST", "/api/tenants/acme/keys", {"name": "short"}).json()
    bearer = {"Authorization": f"Bearer {made['secret']}"}
    async with page_socket(web.url, "/ws/inference", headers=bearer) as socket:
        assert (await receive(socket))["type"] == "hello"
        path = f"/api/tenants/acme/keys/{made['id']}/rotate"
        assert person.send("POST", path, {"grace_s": 60}).status_code == 200
        await socket.send('{"type": "ping"}')
        assert (await receive(socket))["type"] == "pong"
        assert person.send("POST", path, {"grace_s": 0}).status_code == 200
        assert await cut_within([socket]) == {("invalid_api_key", 4401)}


async def test_draining(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sockets are told to move, what runs ends whole, nothing new begins, then the process stops."""
    own = WebProcess(tmp_path_factory.mktemp("drain") / "var", f"local={engine_thread.engine.address}")
    await asyncio.to_thread(own.seed)
    await asyncio.to_thread(own.start)
    await asyncio.to_thread(own.wait_until_ready, "support")
    engine_thread.engine.behaviour.steps_per_second = 20
    person = await asyncio.to_thread(owner, own)
    async with page_socket(own.url, "/ws/inference", person.ticket("acme")) as socket:
        assert (await receive(socket))["type"] == "hello"
        request = {"model": "support", "messages": [{"role": "user", "content": "words 150"}]}
        await socket.send(json.dumps({"type": "generate", "id": "g", "request": request}))
        while (await receive(socket))["type"] != "delta":
            pass
        assert own.process is not None
        own.process.send_signal(signal.SIGTERM)
        kinds = [(await receive(socket))["type"]]
        while "move" not in kinds:
            kinds.append((await receive(socket))["type"])
        ready = await asyncio.to_thread(person.http.get, "/readyz")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
        await socket.send(json.dumps({"type": "generate", "id": "late", "request": request}))
        last: dict[str, Any] = {}
        refused: dict[str, Any] = {}
        while last.get("type") != "done":
            frame = await receive(socket)
            last, refused = (frame, refused) if frame["id"] == "g" else (last, frame)
            if refused:
                engine_thread.engine.behaviour.steps_per_second = 200
        assert refused["error"]["code"] == "server_draining"
        assert last["finish_reason"] == ["stop"]
    own.process.wait(15)
    assert own.process.returncode in (0, -signal.SIGTERM)
    own.process = None
