"""What one client can make a web process do over a websocket, and how many sequences one request may run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from lorikeet_testing.browser import receive
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.web import TenantAccess, WebProcess, eventually
from websockets.asyncio.client import ClientConnection, connect


@pytest.fixture(scope="module")
def engine_thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeEngineThread]:
    thread = FakeEngineThread(f"unix:{tmp_path_factory.mktemp('engine')}/e.sock", Behaviour(max_running=512))
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def web(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    env = {"LORIKEET_REQUEST_MAX_CHOICES": "16"}
    web = WebProcess(tmp_path_factory.mktemp("web") / "var", f"local={engine_thread.engine.address}", env)
    web.seed()
    web.start()
    web.wait_until_ready("support", "fake-base")
    yield web
    web.stop()


@pytest.fixture
def engine(engine_thread: FakeEngineThread) -> FakeEngine:
    engine = engine_thread.engine
    eventually(lambda: not (engine.running or engine.waiting), what="an idle engine")
    engine.submits.clear()
    return engine


@pytest.fixture(scope="module")
def console(web: WebProcess) -> Iterator[Console]:
    console = Console(web, web.tenants["acme"])
    yield console
    console.http.close()


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
    eventually(lambda: console.standing(key)["concurrency"] == 0, what="what ended")
