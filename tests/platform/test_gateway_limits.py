"""Limits at /v1 on real web processes: what is refused and how, and that every end gives back what was set aside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import openai
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.processes import two_processes
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from control_plane.identity.sockets.authenticated_socket import close_code

Limit = Callable[..., None]


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(max_running=512)


def client_of(web: WebProcess, key: str) -> OpenAI:
    return OpenAI(base_url=f"{web.url}/v1", api_key=key, max_retries=0)


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "support", "messages": [{"role": "user", "content": text}], **more}


def test_a_refusal_names_the_limit_and_the_wait(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    client = client_of(web, console.new_key(requests_per_minute=1, tokens_per_minute=5000))
    first = client.chat.completions.with_raw_response.create(**say("say hi", max_tokens=100))
    assert first.headers["x-ratelimit-limit-requests"] == "1"
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    assert first.headers["x-ratelimit-limit-tokens"] == "5000"
    assert 4800 < int(first.headers["x-ratelimit-remaining-tokens"]) < 5000
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**say("say hi", max_tokens=100))
    headers, body = caught.value.response.headers, caught.value.body
    assert isinstance(body, dict)
    assert (body["code"], body["type"]) == ("rate_limit_exceeded", "rate_limit_error")
    assert (body["limit"], body["scope"]) == ("requests_per_minute", "key")
    assert (body["allowed"], body["used"], body["requested"]) == (1, 1, 1)
    assert 55 <= int(headers["retry-after"]) <= 65
    assert 0 < int(headers["retry-after-ms"]) <= 65_000
    assert headers["x-ratelimit-reset-requests"].endswith("s")
    assert len(engine.submits) == 1


def test_streams_carry_the_headers_too(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(requests_per_minute=5)
    body = say("say hi", stream=True)
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{web.url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)
    assert answer.headers["x-ratelimit-remaining-requests"] == "4"


def test_tokens_are_set_aside_and_settled(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(tokens_per_minute=1000)
    client = client_of(web, key)
    client.chat.completions.create(**say("say one two", max_tokens=900))
    eventually(lambda: console.standing(key)["tokens_per_minute"] < 20, what="settled tokens")
    assert console.standing(key)["concurrency"] == 0
    client.chat.completions.create(**say("say one two", max_tokens=900))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**say("say one two", max_tokens=2000))
    assert caught.value.code == "exceeds_limit"


def test_completions_of_several_prompts_are_one_request(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(requests_per_minute=5, tokens_per_minute=10_000, concurrency=2)
    client_of(web, key).completions.create(model="support", prompt=["say a b", "say c", [1, 2, 3]][:2], max_tokens=50)
    used = eventually(lambda: (u := console.standing(key))["concurrency"] == 0 and u, what="an end")
    assert (used["requests_per_minute"], used["tokens_per_minute"]) == (1, 3 + 2 + 2 + 1)


def test_concurrency_ends_with_the_client(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key(concurrency=1)
    client = client_of(web, key)
    with client.chat.completions.create(**say("words 5000", stream=True)) as stream:
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**say("say hi"))
        assert caught.value.response.headers["retry-after"] == "1"
        assert console.standing(key)["concurrency"] == 1
    eventually(lambda: console.standing(key)["concurrency"] == 0, what="the lease's end")
    assert client.chat.completions.create(**say("say hi")).choices[0].message.content == "hi"


def test_a_lost_host_gives_leases_back(
    web: WebProcess, console: Console, engine: FakeEngine, engine_thread: FakeEngineThread
) -> None:
    key = console.new_key(concurrency=1)
    client = client_of(web, key)
    with pytest.raises(openai.APIError):
        for _ in client.chat.completions.create(**say("words 5000", stream=True)):
            if engine.running_server:
                engine_thread.stop()
    eventually(lambda: console.standing(key)["concurrency"] == 0, what="the lease's end")
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(**say("say hi"))
    eventually(lambda: console.standing(key)["concurrency"] == 0, what="the lease's end")
    engine_thread.start()
    ours = client_of(web, web.tenants["acme"].key)
    eventually(lambda: _staged(console, engine) and _served(ours), what="the host to be back with its adapters")


def _staged(console: Console, engine: FakeEngine) -> bool:
    """On the engine as it runs now: until its restart is noticed, what was ready before it counts."""
    if digest_of("acme", "support") not in engine.resident:
        return False
    shown = console.http.get("/api/tenants/acme/adapters/support/versions/1").json()
    return bool(shown["placements"][0]["phase"] == "ready")


def _served(client: OpenAI) -> bool:
    try:
        client.chat.completions.create(**say("say hi"))
    except openai.InternalServerError:
        return False
    return True


def test_output_is_bounded(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    client = client_of(web, console.new_key(max_output_tokens=7))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**say("words 50", max_tokens=8))
    assert (caught.value.code, caught.value.param) == ("max_output_exceeded", "max_tokens")
    answer = client.chat.completions.create(**say("words 50"))
    assert answer.usage is not None and answer.usage.completion_tokens == 7


def test_a_daily_budget_counts_what_the_ledger_has(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = console.new_key()
    client = client_of(web, key)
    answer = client.chat.completions.create(**say("words 50"))
    assert answer.usage is not None
    spent = answer.usage.total_tokens
    eventually(lambda: console.standing(key)["tokens_per_day"] == spent, what="the ledger")
    shown = console.http.get("/api/tenants/acme/limits").json()["keys"]
    key_id = next(each["id"] for each in shown if f"lk_{each['prefix']}_" in key)
    console.http.put(f"/api/tenants/acme/keys/{key_id}/limits", json={"tokens_per_day": spent + 20})
    eventually(lambda: _refused(client, "quota_exceeded"), what="the new limit in force")
    assert client.chat.completions.create(**say("say x", max_tokens=5)).choices[0].message.content == "x"


def _refused(client: OpenAI, code: str) -> bool:
    try:
        client.chat.completions.create(**say("say x", max_tokens=18))
    except openai.RateLimitError as error:
        assert int(error.response.headers["retry-after"]) > 0
        return error.code == code
    return False


async def test_the_websocket_has_the_same_limits(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = await asyncio.to_thread(console.new_key, concurrency=2)
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(f"{web.url.replace('http', 'ws')}/ws/inference", additional_headers=headers, proxy=None) as ws:
        await ws.recv()
        for number in range(3):
            await ws.send(json.dumps({"type": "generate", "id": f"g{number}", "request": say("hang")}))
        frames = [json.loads(await ws.recv()) for _ in range(3)]
        error = next(frame["error"] for frame in frames if frame["type"] == "error")
        assert (error["code"], error["limit"], error["retry_after_s"]) == ("rate_limit_exceeded", "concurrency", 1)
    await asyncio.to_thread(eventually, lambda: console.standing(key)["concurrency"] == 0, what="the leases' end")


def test_members_in_the_console_count_for_the_tenant(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    console.limit_tenant(requests_per_minute=1000)
    try:
        client = client_of(web, console.new_key())
        answer = eventually(lambda: _with_headers(client), what="the new limit in force")
        assert answer["x-ratelimit-limit-requests"] == "1000"
        assert console.standing()["requests_per_minute"] >= 1
    finally:
        console.limit_tenant()


def _with_headers(client: OpenAI) -> Any:
    headers = client.chat.completions.with_raw_response.create(**say("say hi")).headers
    return headers if "x-ratelimit-limit-requests" in headers else None


async def _ask_at_once(urls: list[str], key: str, count: int) -> list[int]:
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=httpx.Limits(max_connections=count)) as http:
        headers = {"Authorization": f"Bearer {key}"}
        answers = await asyncio.gather(
            *(
                http.post(f"{urls[n % len(urls)]}/v1/chat/completions", json=say("say hi"), headers=headers)
                for n in range(count)
            )
        )
    return [answer.status_code for answer in answers]


async def test_two_hundred_requests_pass_fifty(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    key = await asyncio.to_thread(console.new_key, requests_per_minute=50)
    statuses = await _ask_at_once([web.url], key, 200)
    assert (statuses.count(200), statuses.count(429)) == (50, 150)


# -- two processes, PostgreSQL and Redis ---------------------------------------------


@pytest.fixture(scope="module")
def webs(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[WebProcess]]:
    with two_processes(tmp_path_factory.mktemp("two"), f"local={engine_thread.engine.address}") as webs:
        yield webs


@pytest.mark.services
async def test_two_processes_pass_fifty(webs: list[WebProcess], engine: FakeEngine) -> None:
    console = await asyncio.to_thread(Console, webs[0], webs[0].tenants["acme"])
    key = await asyncio.to_thread(console.new_key, requests_per_minute=50)
    statuses = await _ask_at_once([web.url for web in webs], key, 200)
    assert (statuses.count(200), statuses.count(429)) == (50, 150)
    await asyncio.to_thread(eventually, lambda: console.standing(key)["concurrency"] == 0, what="all leases back")
    console.http.close()


# -- what operators take away ------------------------------------------------------------------------------------------


def test_a_suspended_tenant_finishes_what_runs(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    client = client_of(web, console.new_key())
    suspension = "/api/operator/tenants/acme/suspension"
    with client.chat.completions.create(**say("words 300", stream=True)) as stream:
        next(iter(stream))
        assert console.http.put(suspension, json={"reason": "Unpaid."}).status_code == 200
        try:
            with pytest.raises(openai.PermissionDeniedError) as caught:
                client.chat.completions.create(**say("say hi"))
            assert caught.value.code == "tenant_suspended"
            assert "Unpaid" in caught.value.message
            *_, last = stream
            assert last.choices[0].finish_reason == "stop"
        finally:
            assert console.http.delete(suspension).status_code == 200
    assert client.chat.completions.create(**say("say hi")).choices[0].message.content == "hi"


async def test_its_sockets_are_closed(web: WebProcess, console: Console, engine: FakeEngine) -> None:
    headers = {"Authorization": f"Bearer {console.new_key()}"}
    suspension = "/api/operator/tenants/acme/suspension"
    async with connect(
        f"{web.url.replace('http', 'ws')}/ws/inference", additional_headers=headers, proxy=None
    ) as socket:
        await asyncio.to_thread(console.http.put, suspension, json={"reason": "Unpaid."})
        frames = []
        try:
            async with asyncio.timeout(10):
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        frames.append(json.loads(await socket.recv()))
        finally:
            await asyncio.to_thread(console.http.delete, suspension)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4403
    assert frames[-1]["error"]["code"] == "tenant_suspended"


async def test_a_new_socket_of_a_suspended_tenant_is_forbidden(web: WebProcess, console: Console) -> None:
    key, suspension = console.new_key(), "/api/operator/tenants/acme/suspension"
    await asyncio.to_thread(console.http.put, suspension, json={"reason": "Unpaid."})
    try:
        async with connect(f"{web.url.replace('http', 'ws')}/ws/inference", proxy=None) as socket:
            await socket.send(json.dumps({"type": "auth", "key": key}))
            assert json.loads(await socket.recv())["error"]["code"] == "tenant_suspended"
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
    finally:
        await asyncio.to_thread(console.http.delete, suspension)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 4403


@pytest.mark.parametrize(
    ("status", "code"), [(401, 4401), (403, 4403), (404, 4404), (429, 1013), (503, 1013), (500, 1011)]
)
def test_close_codes_say_whether_to_connect_again(status: int, code: int) -> None:
    assert close_code(status) == code


def test_a_cordoned_host_finishes_what_runs_and_gets_nothing_new(
    web: WebProcess, console: Console, engine: FakeEngine
) -> None:
    client = client_of(web, console.new_key())
    service = "/api/operator/hosts/local/service"
    with client.chat.completions.create(**say("words 300", stream=True)) as stream:
        next(iter(stream))
        assert console.http.put(service, json={"service": "cordoned"}).status_code == 200
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(**say("say hi"))
        assert caught.value.code == "no_ready_host"
        *_, last = stream
        assert last.choices[0].finish_reason == "stop"
    assert console.http.put(service, json={"service": "drained"}).status_code == 200
    eventually(lambda: engine.draining, what="a draining engine")
    assert console.http.put(service, json={"service": "serving"}).status_code == 200
    eventually(lambda: not engine.draining, what="an engine that goes on")
    assert eventually(lambda: _served(client), what="an answer")


# -- budgets in money ------------------------------------------------------------------

MICRO = 1_000_000
"""A price of one millionth for each token."""


@pytest.fixture(scope="module")
def priced(console: Console) -> Console:
    day = {"effective_on": datetime.now(UTC).date().isoformat(), "currency": "EUR", "storage_per_gb_month": 0}
    per_million = {"input_per_million": MICRO, "cached_input_per_million": MICRO, "output_per_million": 2 * MICRO}
    assert console.http.post("/api/operator/prices", json={**day, **per_million}).status_code == 201
    return console


def key_with(console: Console, amount: int, **more: Any) -> tuple[str, str]:
    """Its secret and id."""
    made = console.http.post("/api/tenants/acme/keys", json={"name": f"{amount}"}).json()
    body = {"month": {"amount_micros": amount, **more}}
    answer = console.http.put(f"/api/tenants/acme/keys/{made['id']}/budgets", json=body)
    assert answer.status_code == 200, answer.text
    return made["secret"], made["id"]


def spent(console: Console, key_id: str) -> int:
    shown = console.http.get("/api/tenants/acme/budgets").json()["keys"]
    return next(int(each["month"]["spent_micros"]) for each in shown if each["id"] == key_id)


def cost_of(answer: Any) -> int:
    return int(answer.usage.prompt_tokens + 2 * answer.usage.completion_tokens)


def test_a_refusal_names_the_budget(web: WebProcess, priced: Console) -> None:
    secret, key_id = key_with(priced, 300)
    client = OpenAI(base_url=f"{web.url}/v1", api_key=secret)
    cost = cost_of(client.chat.completions.create(**say("say hi", max_tokens=100)))
    eventually(lambda: spent(priced, key_id) == cost, what="the ledger to have the request")
    with pytest.raises(openai.APIStatusError) as caught:  # 402 is not tried again by the client itself
        client.chat.completions.create(**say("say hi", max_tokens=200))
    body = caught.value.body
    assert isinstance(body, dict)
    assert (caught.value.status_code, body["code"], body["type"]) == (402, "budget_exceeded", "invalid_request_error")
    assert (body["scope"], body["span"], body["currency"]) == ("key", "month", "EUR")
    assert (body["allowed_micros"], body["used_micros"]) == (300, cost)
    assert "EUR 0.000300" in body["message"]
    assert spent(priced, key_id) == cost
    client.chat.completions.create(**say("say hi", max_tokens=100))


def test_one_that_warns_refuses_nothing(web: WebProcess, priced: Console) -> None:
    secret, key_id = key_with(priced, 3, at_limit="warn")
    client = client_of(web, secret)
    cost = sum(cost_of(client.chat.completions.create(**say("say hi", max_tokens=100))) for _ in range(2))
    eventually(lambda: spent(priced, key_id) == cost, what="both in the ledger")


def test_it_holds_with_requests_at_once(web: WebProcess, priced: Console) -> None:
    secret, key_id = key_with(priced, 500)
    headers = {"Authorization": f"Bearer {secret}"}

    def ask(_: int) -> httpx.Response:
        # It uses all that it may: 40 tokens for 80.
        body = say("words 40", max_tokens=40)
        return httpx.post(f"{web.url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=60)

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(ask, range(24)))
    assert {answer.status_code for answer in answers} == {200, 402}
    usages = [answer.json()["usage"] for answer in answers if answer.status_code == 200]
    cost = sum(usage["prompt_tokens"] + 2 * usage["completion_tokens"] for usage in usages)
    eventually(lambda: spent(priced, key_id) == cost, what="the ledger to have all that was served")
    assert 300 <= cost <= 500


def test_a_refusal_of_another_limit_gives_the_money_back(web: WebProcess, priced: Console) -> None:
    secret, key_id = key_with(priced, 300)
    priced.http.put(f"/api/tenants/acme/keys/{key_id}/limits", json={"requests_per_minute": 1})
    client = client_of(web, secret)
    served = [_serves(client) for _ in range(2)]
    priced.http.put(f"/api/tenants/acme/keys/{key_id}/limits", json={})
    eventually(lambda: _serves(client), what="the limit's end")
    assert served == [True, False]
    assert _serves(client), "each sets 200 of 300 aside: nothing is held any more"


def _serves(client: OpenAI) -> bool:
    try:
        client.chat.completions.create(**say("say hi", max_tokens=100))
    except openai.RateLimitError:
        return False
    return True
