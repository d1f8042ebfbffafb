"""`Idempotency-Key` on a real web process; and the two stores behind it, with one suite."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.web import WebProcess, eventually

from control_plane.gateway.dispatch.idempotency_store import (
    AnswerLimits,
    AnswerStore,
    MemoryStore,
    Name,
    RedisStore,
    StoredAnswer,
)

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")


def post(web: WebProcess, name: str, content: str, tenant: str = "acme", **more: Any) -> httpx.Response:
    model = "support" if tenant == "acme" else "fake-base"
    body = {"model": model, "messages": [{"role": "user", "content": content}], **more}
    headers = {**web.tenants[tenant].bearer, "Idempotency-Key": name}
    return httpx.post(f"{web.url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_answer_twice(web: WebProcess, engine: FakeEngine, stream: bool) -> None:
    name = uuid.uuid4().hex
    first = post(web, name, "hello", stream=stream)
    assert "idempotent-replayed" not in first.headers
    again = eventually(lambda: (r := post(web, name, "hello", stream=stream)).status_code == 200 and r, what="a replay")
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.content == first.content
    assert len(engine.submits) == 1


def test_a_key_belongs_to_its_request_and_its_caller(web: WebProcess, engine: FakeEngine) -> None:
    name = uuid.uuid4().hex
    assert post(web, name, "hello").status_code == 200
    other = post(web, name, "something else")
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    foreign = post(web, name, "say mine", tenant="globex")
    assert foreign.json()["choices"][0]["message"]["content"] == "mine"
    assert post(web, "x" * 300, "hello").status_code == 400


def test_while_it_runs(web: WebProcess, engine: FakeEngine) -> None:
    name = uuid.uuid4().hex
    body = {"model": "support", "messages": [{"role": "user", "content": "words 5000"}], "stream": True}
    headers = {**web.tenants["acme"].bearer, "Idempotency-Key": name}
    with (
        httpx.Client(trust_env=False, timeout=30) as http,
        http.stream("POST", f"{web.url}/v1/chat/completions", json=body, headers=headers) as stream,
    ):
        chunks = stream.iter_bytes()  # closing it would close the connection
        next(chunks)
        second = post(web, name, "words 5000", stream=True)
        assert (second.status_code, second.json()["error"]["code"]) == (409, "idempotency_in_progress")
        assert second.headers["retry-after"] == "1"
    # The client left: what it did not get to its end does not count.
    eventually(lambda: _frees(web, name), what="the key to be free")


def _frees(web: WebProcess, name: str) -> bool:
    answer = post(web, name, "say hi")
    return answer.status_code == 200


def test_an_error_frees_the_key(web: WebProcess, engine: FakeEngine) -> None:
    name = uuid.uuid4().hex
    for stream in (False, True, False):
        # The key is freed behind the answer.
        refused = eventually(lambda s=stream: _unless_running(post(web, name, "fail overloaded", stream=s)), what="it")
        assert refused.status_code == 503, refused.text
    assert len(engine.submits) == 3


def _unless_running(answer: httpx.Response) -> httpx.Response | None:
    return None if answer.status_code == 409 else answer


@pytest_asyncio.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def answers(request: pytest.FixtureRequest) -> AsyncIterator[AnswerStore]:
    made: AnswerStore = MemoryStore() if request.param == "memory" else RedisStore(REDIS_URL)
    yield made
    await made.close()


async def test_stores(answers: AnswerStore) -> None:
    name = Name(uuid.uuid4().hex, "key")
    running, done = StoredAnswer("f", "one"), StoredAnswer("f", "one", "text/plain", b"\x00\xff answer")
    assert await answers.claim(name, running, 60) is None
    assert await answers.claim(name, StoredAnswer("g", "two"), 60) == running
    await answers.keep(name, done, AnswerLimits(60, 10, 1000))
    assert await answers.claim(name, running, 60) == done
    await answers.drop(name, running)
    assert await answers.claim(name, running, 60) is None
