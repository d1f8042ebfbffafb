"""Bodies that nobody should read, hold or stumble over: of strangers, too many at once, JSON of every bad kind."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from django.core.exceptions import RequestAborted
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess
from websockets.sync.client import connect

from control_plane.adapters.registry.upload_bounds import largest_upload_bytes
from control_plane.adapters.uploads.asgi import Handler
from control_plane.adapters.uploads.authorization import authorize_upload
from control_plane.adapters.uploads.spool import PIECE, PIECES, batches, require_room
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError
from control_plane.core.http import json_body
from control_plane.core.http.body_budget import BodiesInFlightError, BodyBudget, budget
from control_plane.core.http.body_guard import BODY_MAX_BYTES, BodyGuard
from control_plane.core.http.json_body import JsonError, read_object
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.runtime import runtime
from control_plane.gateway.openai.asgi import GatewayHandler
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.openai.unknown_fields import MAX_IGNORED
from control_plane.gateway.recording.refusals import REFUSED_CPU_BURST_S, RefusalLog

SLOW_S = 2.5
"""For what takes a few hundredths of a second when the machine has nothing else to do, and took 20 s."""

# Each is refused wherever JSON is read; the words name what is wrong.
BAD: dict[str, tuple[bytes, str]] = {
    "half a pair": (b'{"a": "\\ud800"}', "surrogate"),
    "half a pair, the other one": (b'{"a": ["x", {"y": "\\uDC00 "}]}', "surrogate"),
    "half a pair as a name": (b'{"\\udfff": 1}', "surrogate"),
    "half a pair in bytes": (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
    "not UTF-8": (b'{"a": "\xff"}', "UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "deep arrays": (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "nested"),
    "deep objects": (b'{"a":' * 70 + b"1" + b"}" * 70, "nested"),
    "deep enough for Python": (b'{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested"),
    "deep and open": (b'{"a":' * 5_000, "nested"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b'{"a": [-Infinity]}', "Infinity"),
    "a float without end": (b'{"a": 1e999}', "too large"),
    "a whole number without end": (b'{"a": ' + b"9" * 5000 + b"}", "64 bits"),
    "one more than 64 bits": (b'{"a": 18446744073709551616}', "64 bits"),
    "one less than 64 bits": (b'{"a": -9223372036854775809}', "64 bits"),
    "a name twice": (b'{"a": 1, "b": {"c": 1, "c": 2}}', '"c"'),
    "many names": (b"{" + b",".join(b'"%d":1' % number for number in range(json_body.KEYS + 1)) + b"}", "keys"),
    "many values": (b'{"a": [' + b"1," * (json_body.VALUES + 1) + b"1]}", "values"),
    "many arrays": (b'{"a": [' + b"[]," * (json_body.CONTAINERS + 1) + b"1]}", "arrays"),
    "many strings that do not end": (
        b'"' + b'\\"' * (1 << 20) + b"{" * (json_body.CONTAINERS + 1),
        "a string without end at line 1",
    ),
    "an array": (b"[]", "array"),
    "nothing": (b"", "is empty"),
    "white space": (b" \n", "is empty"),
    "no value": (b'{"a": 1, "b": }', "a value is expected at line 1, column 15"),
    "no name": (b"{a: 1}", "a name in double quotes is expected at line 1, column 2"),
    "no colon": (b'{"a" 1}', "a colon is expected at line 1"),
    "no comma": (b'{"a": 1 "b": 2}', "a comma or an end is expected at line 1"),
    "two objects": (b'{"a": 1}\n{}', "more follows after the end at line 2, column 1"),
    "an unknown escape": (b'{"a": "\\x"}', "an unknown escape"),
    "half an escape": (b'{"a": "\\u12"}', "an incomplete escape"),
    "a line break in a string": (b'{"a": "\n"}', "a control character in a string"),
    "two": (b"{}{}", "more follows after the end"),
}


@pytest.mark.parametrize("body, words", BAD.values(), ids=BAD)
def test_bad_json(body: bytes, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(JsonError) as refused:
        read_object(body)
    assert words in refused.value.message
    assert (refused.value.status, refused.value.code) == (400, "malformed_json")
    assert refused.value.fix
    refused.value.message.encode()
    assert time.monotonic() - began < SLOW_S


def test_nul_is_for_engines_only() -> None:
    with pytest.raises(JsonError, match="NUL"):
        read_object(b'{"a": {"b\\u0000": 1}}')
    assert read_object(b'{"a": "\\u0000"}', nul=True) == {"a": "\0"}
    with pytest.raises(JsonError, match="surrogate"):
        read_object(b'{"a": "\\u0000\\ud800"}', nul=True)


def test_good_json() -> None:
    """What looks like something bad and is not."""
    texts = ["\U0001f600", "\\ud800", "\\u0000", "[" * 100_000, '{"a": [' * 50_000, "1," * 600_000, "NaN 1e999"]
    for text in [*texts, "9" * 50]:
        assert read_object(json.dumps({"text": text}).encode()) == {"text": text}
        assert read_object(json.dumps({text[:1000]: 1}, ensure_ascii=False).encode()) == {text[:1000]: 1}
    numbers = [18446744073709551615, -9223372036854775808, 1e308, -0.0, 1234567890123456789]
    assert read_object(json.dumps({"a": numbers}).encode()) == {"a": numbers}
    deep: Any = 1
    for _ in range(json_body.DEPTH - 1):
        deep = [deep]
    assert read_object(json.dumps({"a": deep}).encode()) == {"a": deep}


MESSAGE = {"role": "user", "content": "x"}
TEDIOUS: dict[str, tuple[type[ChatCompletionRequest | CompletionRequest], dict[str, Any]]] = {
    "prompts that are no tokens": (CompletionRequest, {"prompt": [{}] * 15_000}),
    "negative tokens": (CompletionRequest, {"prompt": [-1] * 500_000}),
    "prompts of negative tokens": (CompletionRequest, {"prompt": [[-1] * 8000] * 60}),
    "parts that are none": (ChatCompletionRequest, {"messages": [{"role": "user", "content": [{}] * 15_000}]}),
    "biases that are words": (
        ChatCompletionRequest,
        {"messages": [MESSAGE], "logit_bias": {str(n): "x" for n in range(2000)}},
    ),
    "stops that are numbers": (ChatCompletionRequest, {"messages": [MESSAGE], "stop": [1] * 500_000}),
}


@pytest.mark.parametrize("kind, body", TEDIOUS.values(), ids=TEDIOUS)
def test_a_body_full_of_faults_is_refused_at_the_first(kind: Any, body: dict[str, Any]) -> None:
    sent = json.dumps({"model": "m", **body}).encode()
    began = time.monotonic()
    with pytest.raises(ApiError) as refused:
        read_parameters(kind, read_object(sent, nul=True))
    assert refused.value.status == 400
    assert time.monotonic() - began < SLOW_S


def test_a_body_full_of_unknown_names_is_read_in_time() -> None:
    messages = [{**MESSAGE, **{str(n): 1 for n in range(2000)}}] * 8
    sent = json.dumps({"model": "m", "messages": messages}).encode()
    began = time.monotonic()
    read = read_parameters(ChatCompletionRequest, read_object(sent, nul=True))
    assert 0 < len(read.ignored) <= MAX_IGNORED
    assert time.monotonic() - began < SLOW_S


@pytest.mark.parametrize("model", ["a\0b", "a\nb", "a\x1b[31m", "‮a"])
def test_names_of_models_are_text(model: str) -> None:
    with pytest.raises(ApiError, match="no model name has"):
        read_parameters(ChatCompletionRequest, {"model": model, "messages": [MESSAGE]})


# -- before a body is read -------------------------------------------------------------------------


class Exchange:
    """One request over ASGI that counts how much of its body was taken."""

    def __init__(self, count: int, size: int = 64 << 10, *, ends: bool = True) -> None:
        self.left, self.size, self.ends = count, size, ends
        self.taken = 0
        self.messages: list[Mapping[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if not self.left:
            await asyncio.Event().wait()
        self.left -= 1
        self.taken += self.size
        return {"type": "http.request", "body": b" " * self.size, "more_body": bool(self.left) or not self.ends}

    async def send(self, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode().lower(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def code(self) -> str:
        body = b"".join(message.get("body", b"") for message in self.messages[1:])
        return str(json.loads(body)["error"]["code"])


def scope(path: str, *headers: tuple[str, str]) -> dict[str, Any]:
    sent = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    sent += [(name.encode(), value.encode()) for name, value in headers]
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": sent,
        "client": ("192.0.2.1", 1), "server": ("localhost", 80), "state": {},
    }  # fmt: skip


@pytest.fixture
async def gateway() -> Any:
    yield GatewayHandler()
    await runtime().close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("key", ["", "lk_abcdefgh_wrong", "nonsense"])
async def test_nobodys_body_is_not_read(gateway: Any, key: str) -> None:
    exchange = Exchange(64, ends=False)
    headers = [("authorization", f"Bearer {key}")] if key else []
    await gateway(scope("/v1/chat/completions", *headers), exchange.receive, exchange.send)
    assert exchange.status == 401
    # What came after the refusal was dropped at once, piece by piece.
    assert budget.in_flight == 0
    unknown = Exchange(64, ends=False)
    await gateway(scope("/v1/unknown", *headers), unknown.receive, unknown.send)
    assert unknown.status == 404


@pytest.mark.django_db(transaction=True)
async def test_bodies_in_flight_are_bounded(gateway: Any, acme: Any, settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"bodies_max_bytes": 1 << 20})
    _, text = await run_db(acme.key)
    bearer = ("authorization", f"Bearer {text}")
    slow = [Exchange(2, ends=False) for _ in range(2)]  # together a quarter, which is what one tenant may have
    running = [asyncio.ensure_future(gateway(scope("/v1/completions", bearer), one.receive, one.send)) for one in slow]
    async with asyncio.timeout(10):
        while budget.in_flight < 1 << 18:
            await asyncio.sleep(0.005)
    refused = Exchange(64)
    await gateway(scope("/v1/completions", bearer), refused.receive, refused.send)
    assert (refused.status, refused.code) == (429, "too_many_bytes_in_flight")
    assert refused.headers["retry-after"] == "1"
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert budget.in_flight == 0


@pytest.mark.django_db(transaction=True)
async def test_reading_what_is_refused_is_charged_to_its_tenant(gateway: Any, acme: Any, globex: Any) -> None:
    """4 MiB of JSON take 0.1 s to refuse, for which the process serves nobody."""
    bearers = [("authorization", f"Bearer {(await run_db(tenant.key))[1]}") for tenant in (acme, globex)]
    left = runtime().refusals.allowance(await run_db(acme.principal))
    left.spend(0.4999)

    async def ask(bearer: tuple[str, str]) -> Exchange:
        exchange = Exchange(16)
        await gateway(scope("/v1/completions", bearer), exchange.receive, exchange.send)
        return exchange

    async with asyncio.timeout(10):
        while (refused := await ask(bearers[0])).status == 400:  # it holds nothing
            pass
    assert (refused.status, refused.code) == (429, "too_many_refused_requests")
    # The last body overdrew the allowance by the processor time that it took, which a busy machine stretches.
    assert int(refused.headers["retry-after"]) == max(1, math.ceil(-left.level / left.per_s))
    assert (await ask(bearers[1])).status == 400
    left.level = 0.1
    assert (await ask(bearers[0])).status == 400


@pytest.mark.django_db(transaction=True)
async def test_reading_what_an_engine_gets_costs_nothing(acme: Any) -> None:
    log, principal = RefusalLog(), await run_db(acme.principal)
    with log.until_dispatched(principal, "completions") as pending:
        with pending.reading():
            sum(range(10_000))
        pending.dispatched()
    assert log.allowance(principal).level == REFUSED_CPU_BURST_S


def test_a_budget_is_shared(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"bodies_max_bytes": 100})
    shared = BodyBudget()
    for owner in range(4):
        shared.take(owner, 25)
    with pytest.raises(BodiesInFlightError) as own:
        shared.take(0, 1)
    with pytest.raises(BodiesInFlightError) as all_of_it:
        shared.take("new", 1)
    assert (own.value.status, all_of_it.value.status) == (429, 503)
    shared.give_back(3, 25)
    shared.take("new", 25)
    assert shared.in_flight == 100


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("declared", [True, False])
async def test_a_strangers_body_is_small(declared: bool) -> None:
    exchange = Exchange(128)
    headers = [("content-length", str(8 << 20))] if declared else [("transfer-encoding", "chunked")]
    await BodyGuard(Handler(), authorize_upload, require_room, largest_upload_bytes)(
        scope("/api/session", *headers), exchange.receive, exchange.send
    )
    assert (exchange.status, exchange.code) == (413, "body_too_large")
    assert exchange.taken <= (0 if declared else BODY_MAX_BYTES + exchange.size)
    assert budget.in_flight == 0


# -- the process as it is started --------------------------------------------------------------------


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_LOGIN_RATE": "1000/min"}


def bad_bodies() -> dict[str, bytes]:
    """Those that are small enough for every address, and what is wrong with words of a request alone."""
    message = '{"model": "support", "messages": [{"role": "user", "content": %s}]}'
    own = {
        "a message with half a pair": message % '"\\ud800"',
        "a deep message": message % ("[" * 500 + "]" * 500),
        "a model with NUL": '{"model": "sup\\u0000port", "messages": [{"role": "user", "content": "x"}]}',
        "a prompt with half a pair": '{"model": "support", "prompt": "\\udead"}',
    }
    small = {name: body for name, (body, _) in BAD.items() if len(body) < 60_000}
    return {**small, **{name: body.encode() for name, body in own.items()}}


@pytest.mark.e2e
def test_no_body_is_the_servers_fault(web: WebProcess) -> None:
    session = httpx.Client(base_url=web.url, trust_env=False, timeout=30)
    token = session.get("/api/session").json()["csrf_token"]
    key = web.tenants["acme"].bearer
    calls = {
        "/v1/chat/completions": key,
        "/v1/completions": key,
        "/api/session": {"X-CSRFToken": token},
        "/api/tenants/acme/exports": key,
    }
    for path, headers in calls.items():
        for name, body in bad_bodies().items():
            answer = session.post(path, content=body, headers={**headers, "Content-Type": "application/json"})
            assert 400 <= answer.status_code < 500, f"{path}, {name}: {answer.status_code}"
            assert answer.json()["error"]["fix"], (path, name)


@pytest.mark.e2e
def test_no_message_is_the_servers_fault(web: WebProcess) -> None:
    with connect(f"ws://127.0.0.1:{web.port}/ws/inference", additional_headers=web.tenants["acme"].bearer) as socket:
        assert json.loads(socket.recv(10))["type"] == "hello"
        for name, body in bad_bodies().items():
            try:
                text = body.decode()
            except UnicodeDecodeError:
                continue  # the server closes for those before anybody sees them
            for message in (text, f'{{"type": "generate", "id": "g", "request": {text}}}'):
                socket.send(message)
                answer = json.loads(socket.recv(10))
                assert (answer["type"], answer["error"]["code"] != "internal_error") == ("error", True), name
        socket.send('{"type": "ping"}')
        assert json.loads(socket.recv(10))["type"] == "pong"


@pytest.mark.e2e
def test_nul_in_prompts_is_answered(web: WebProcess) -> None:
    body = b'{"model": "support", "messages": [{"role": "user", "content": "say a\\u0000b"}]}'
    answer = httpx.post(
        f"{web.url}/v1/chat/completions", content=body, headers=web.tenants["acme"].bearer, trust_env=False, timeout=30
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.django_db
@pytest.mark.parametrize("value", ['"aaaaaaaaaaaa\\000bbbbbbbbbbbbbbbbbbb"', "a" * 33, "A" * 32, '"\\377aaaaaaaaaa"'])
def test_a_session_cookie_has_its_form(client: Any, value: str) -> None:
    """A quoted cookie may hold escapes, which become characters that PostgreSQL does not take."""
    answer = client.get("/api/session", headers={"Cookie": f"lorikeet_session={value}"})
    assert (answer.status_code, answer.json()["authenticated"]) == (200, False)


def test_the_reader_is_the_only_one(settings: Any) -> None:
    assert settings.REST_FRAMEWORK["DEFAULT_PARSER_CLASSES"] == ["control_plane.core.http.parsers.StrictJSONParser"]
    assert issubclass(JsonError, LorikeetError)


async def test_parts_of_an_upload_go_to_the_disk_as_they_came() -> None:
    """Copied into one buffer they took the event loop four times as long. Small ones wait in no great number."""
    part = bytes(PIECE // 2)
    bodies = iter([part, part, *[b"xy"] * PIECES, b"z"])

    async def receive() -> dict[str, Any]:
        body = next(bodies, None)
        return (
            {"type": "http.disconnect"} if body is None else {"type": "http.request", "body": body, "more_body": True}
        )

    taken = []
    with pytest.raises(RequestAborted):
        async for parts in batches(receive):
            taken.append(parts)
    assert [len(parts) for parts in taken] == [2, PIECES, 1]
    assert all(piece is part for piece in taken[0]) and taken[2] == [b"z"], "those before the end are there too"


async def test_a_body_without_an_end_is_cut_off_when_it_is_silent() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0 if not taken else 60)
        return {"type": "http.request", "body": b"x" * PIECE, "more_body": True}

    taken = list[list[bytes]]()
    with pytest.raises(RequestAborted):
        async for parts in batches(receive, 0.05):
            taken.append(parts)
    assert len(taken) == 1
