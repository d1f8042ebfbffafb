"""Many generations on one websocket: interleaved, numbered, one cancelled, none mixed up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.launched import Access
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

GENERATIONS = 8
CANCELLED = "g3"


def socket_url(access: Access) -> str:
    return f"{access.url.replace('http', 'ws', 1)}/ws/inference"


@pytest.fixture
async def socket(access: Access) -> AsyncIterator[ClientConnection]:
    async with connect(socket_url(access), additional_headers=access.bearer, proxy=None) as connection:
        hello = json.loads(await connection.recv())
        assert hello["type"] == "hello"
        assert hello["session"]
        yield connection


async def generate(socket: ClientConnection, name: str, model: str, **options: Any) -> None:
    request = {"model": model, "messages": [{"role": "user", "content": "Tell me about the shop."}], **options}
    await socket.send(json.dumps({"type": "generate", "id": name, "request": request}))


async def collect(socket: ClientConnection, names: set[str]) -> dict[str, list[dict[str, Any]]]:
    """Messages by generation, until each of `names` has its last one."""
    messages: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    open_names = set(names)
    while open_names:
        message = json.loads(await socket.recv())
        messages[message["id"]].append(message)
        if message["type"] in {"done", "error"}:
            open_names.discard(message["id"])
    return messages


async def test_eight_generations_one_cancelled(socket: ClientConnection, api: Any) -> None:
    models = [model["id"] for model in api.get("/v1/models").json()["data"]]
    names = [f"g{number}" for number in range(GENERATIONS)]
    for number, name in enumerate(names):
        long = {"ignore_eos": True, "max_tokens": 400} if name == CANCELLED else {"max_tokens": 40}
        await generate(socket, name, models[number % len(models)], temperature=0, **long)
    await socket.send(json.dumps({"type": "cancel", "id": CANCELLED}))
    messages = await collect(socket, set(names))

    for name, received in messages.items():
        assert received[0]["type"] == "accepted", received
        assert received[0]["request_id"]
        numbers = [message["seq"] for message in received if "seq" in message]
        assert numbers == sorted(set(numbers)), f"{name}: {numbers}"
        assert received[-1]["type"] == "done", received[-1]
    finished = [received[-1] for name, received in messages.items() if name != CANCELLED]
    assert all(done["finish_reason"][0] in {"stop", "length"} for done in finished)
    assert all(done["usage"]["completion_tokens"] > 0 for done in finished)
    assert all(done["timings"]["first_token_ms"] > 0 for done in finished)
    cancelled = messages[CANCELLED][-1]
    assert cancelled["finish_reason"] == ["abort"]
    assert cancelled["usage"]["completion_tokens"] < 400


async def test_the_text_is_that_of_the_rest_api(socket: ClientConnection, api: Any) -> None:
    for model in [entry["id"] for entry in api.get("/v1/models").json()["data"]]:
        await generate(socket, "one", model, temperature=0, max_tokens=30)
        messages = (await collect(socket, {"one"}))["one"]
        text = "".join(message["text"] for message in messages if message["type"] == "delta")
        body = {"model": model, "temperature": 0, "max_tokens": 30}
        body["messages"] = [{"role": "user", "content": "Tell me about the shop."}]
        whole = api.post("/v1/chat/completions", json=body).json()
        assert text == whole["choices"][0]["message"]["content"]
        assert messages[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


async def test_ping_and_mistakes_keep_the_socket_open(socket: ClientConnection) -> None:
    await socket.send(json.dumps({"type": "ping"}))
    assert json.loads(await socket.recv())["type"] == "pong"
    for mistake in ("not json", "[]", json.dumps({"type": "dance"}), json.dumps({"type": "generate", "id": "x"})):
        await socket.send(mistake)
        answer = json.loads(await socket.recv())
        assert answer["type"] == "error"
        assert answer["error"]["code"]
        assert answer["error"]["fix"]
    await socket.send(json.dumps({"type": "ping"}))
    assert json.loads(await socket.recv())["type"] == "pong"


async def test_the_key_may_come_in_the_first_message(access: Access) -> None:
    async with connect(socket_url(access), proxy=None) as connection:
        await connection.send(json.dumps({"type": "auth", "key": access.key}))
        assert json.loads(await connection.recv())["type"] == "hello"


async def test_a_wrong_key_gets_nothing(access: Access) -> None:
    with pytest.raises(ConnectionClosed):
        async with connect(socket_url(access), proxy=None) as connection:
            await connection.send(json.dumps({"type": "auth", "key": "lk_wrong_key"}))
            for _ in range(3):
                assert json.loads(await connection.recv())["type"] != "hello"


async def test_a_ticket_is_for_the_consoles_own_pages(access: Access) -> None:
    person = Signed(access.url, access.email, access.password)
    async with page_socket(access.url, "/ws/inference", person.ticket(person.tenants[0])) as connection:
        assert (await receive(connection))["type"] == "hello"
    ticket, cookies = person.ticket(person.tenants[0]), {"Cookie": person.cookies}
    async with page_socket(
        access.url, "/ws/inference", ticket, origin="https://evil.example", headers=cookies
    ) as connection:
        assert (await receive(connection))["error"]["code"] == "ticket_invalid"
