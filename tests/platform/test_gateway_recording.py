"""What a real web process writes behind requests: text where it is wanted, refusals by kind; nothing into its log."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from lorikeet_testing.browser import receive
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.web import WebProcess, eventually
from websockets.asyncio.client import connect

PREFIX = "/api/tenants/acme"
SECRET_TEXT = "xylophone-marmalade"


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_LOG_LEVEL": "DEBUG"}


@pytest.fixture
def recording(console: Console) -> Iterator[None]:
    console.http.put(f"{PREFIX}/recording", json={"enabled": True, "days": 1})
    yield
    console.http.put(f"{PREFIX}/recording", json={"enabled": False, "days": 1})


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "support", "messages": [{"role": "user", "content": text}], **more}


def post(web: WebProcess, path: str, content: Any, key: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else web.tenants["acme"].bearer
    return httpx.post(f"{web.url}/v1/{path}", json=content, headers=headers, trust_env=False, timeout=30)


def kept(console: Console, request_id: str) -> dict[str, Any]:
    path = f"{PREFIX}/requests/{request_id}/transcript"
    return dict(eventually(lambda: (a := console.http.get(path)).status_code == 200 and a.json(), what="the text"))


def refusals(console: Console, code: str) -> list[dict[str, Any]]:
    rows = console.http.get(f"{PREFIX}/refusals?limit=200").json()["results"]
    return [row for row in rows if row["code"] == code]


def test_text_only_where_it_is_wanted(web: WebProcess, console: Console, engine: FakeEngine, recording: None) -> None:
    answer = post(web, "chat/completions", body(f"say yes {SECRET_TEXT}"))
    text = kept(console, answer.headers["x-request-id"])
    assert text["prompt"] == [{"role": "user", "content": f"say yes {SECRET_TEXT}"}]
    assert text["answers"] == [answer.json()["choices"][0]["message"]["content"]]
    console.http.put(f"{PREFIX}/recording", json={"enabled": False, "days": 1})
    off = post(web, "chat/completions", body(f"say no {SECRET_TEXT}")).headers["x-request-id"]
    time.sleep(1.5)
    assert console.http.get(f"{PREFIX}/requests/{off}/transcript").json()["error"]["code"] == "transcript_not_found"
    assert SECRET_TEXT not in web.log.read_text(errors="replace")


def test_streams_and_several_prompts(web: WebProcess, console: Console, engine: FakeEngine, recording: None) -> None:
    streamed = post(web, "chat/completions", body("say one two three", stream=True))
    assert kept(console, streamed.headers["x-request-id"])["answers"] == ["one two three"]
    asked = {"model": "support", "prompt": ["say first", "say second"], "n": 2}
    both = post(web, "completions", asked)
    ids = [submit.request_id for submit in engine.submits[-2:]]
    assert ids[0] == both.headers["x-request-id"]
    assert [kept(console, each)["prompt"][0]["content"] for each in ids] == ["say first", "say second"]
    assert len(kept(console, ids[1])["answers"]) == 2


def test_what_was_said_before_the_client_left(
    web: WebProcess, console: Console, engine: FakeEngine, recording: None
) -> None:
    engine.behaviour.steps_per_second = 20
    asked, headers = body("words 400", stream=True), web.tenants["acme"].bearer
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream("POST", f"{web.url}/v1/chat/completions", json=asked, headers=headers) as answer,
    ):
        request_id = answer.headers["x-request-id"]
        lines = answer.iter_lines()
        for _ in range(8):
            next(lines)
    assert 0 < len(kept(console, request_id)["answers"][0]) < 2000


def test_on_the_socket(web: WebProcess, console: Console, engine: FakeEngine, recording: None) -> None:
    async def talk() -> tuple[str, dict[str, Any]]:
        url = f"{web.url.replace('http', 'ws')}/ws/inference"
        async with connect(url, additional_headers=web.tenants["acme"].bearer, proxy=None) as socket:
            await receive(socket)
            await socket.send(json.dumps({"type": "generate", "id": "a", "request": body("say on a socket")}))
            request_id = (await receive(socket))["request_id"]
            while (await receive(socket))["type"] != "done":
                pass
            await socket.send(json.dumps({"type": "generate", "id": "b", "request": {"model": "support"}}))
            refused = await receive(socket)
            await socket.send(json.dumps({"type": "generate", "id": "", "request": body("hi")}))
            await receive(socket)
            return request_id, refused

    request_id, refused = asyncio.run(talk())
    assert kept(console, request_id)["answers"] == ["on a socket"]
    assert refused["error"]["code"] == "missing_required_parameter"
    (row,) = eventually(lambda: refusals(console, "missing_required_parameter"), what="the refusal")
    assert (row["count"], row["param"], row["model"], row["status"]) == (1, "messages", "support", 400)
    assert eventually(lambda: [row for row in refusals(console, "invalid_value") if row["param"] == "id"], what="it")


def test_a_flood_is_one_row(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(requests_per_minute=1)
    asked = {"model": "support", "prompt": "say x"}
    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(lambda _: post(web, "completions", asked, key).status_code, range(60)))
    assert statuses.count(429) == 59

    def counted() -> bool:
        rows = [row for row in refusals(console, "rate_limit_exceeded") if row["limit"] == "requests_per_minute"]
        return sum(row["count"] for row in rows) == 59 and len(rows) <= 2

    eventually(counted, what="59 refusals in one or two rows")
    assert refusals(console, "rate_limit_exceeded")[0]["endpoint"] == "completions"


def test_what_an_engine_refused_is_in_the_ledger_alone(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    refused = post(web, "chat/completions", body("fail slo_unattainable"))
    assert refused.status_code == 429
    request_id = refused.headers["x-request-id"]

    def logged() -> bool:
        rows = console.http.get(f"{PREFIX}/requests").json()["results"]
        return any(row["id"] == request_id and row["outcome"] == "refused" for row in rows)

    eventually(logged, what="the refusal in the ledger")
    time.sleep(2.5)
    assert not refusals(console, "slo_unattainable")


def test_without_a_key_there_is_no_tenant_to_tell(web: WebProcess, console: Console) -> None:
    assert post(web, "completions", {}, "lk_abcdefgh_wrong").status_code == 401
    assert post(web, "completions", {"model": "nobody", "prompt": "x"}).status_code == 404
    rows = eventually(lambda: refusals(console, "model_not_found"), what="the refusal")
    assert rows[0]["model"] == "nobody"
    assert not refusals(console, "invalid_api_key")
