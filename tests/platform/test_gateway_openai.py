"""The official OpenAI client against a real web process and a scripted engine."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from lorikeet_testing import script
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually
from openai import AsyncOpenAI, OpenAI

from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.dispatch import naming_parts
from control_plane.gateway.openai.response_models import (
    ChatCompletionResponse,
    CompletionResponse,
    ErrorResponse,
    ModelCard,
    ModelList,
)
from lora_engine.peft_format import Part, combined_digest
from lora_engine.wire import engine_pb2 as pb

SUPPORT = digest_of("acme", "support")


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True)


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def expected(prompt: str, digest: str = SUPPORT, choice: int = 0, **sampling: Any) -> str:
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=prompt)])
    return script.plan(pb.Submit(adapter_digest=digest, chat=chat, sampling=pb.Sampling(**sampling)), choice).text


# -- chat ----------------------------------------------------------------------


def test_a_whole_chat_answer(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.chat.completions.create(model="support", messages=say("hello there"))
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert abs(answer.created - time.time()) < 10
    assert answer.model == "support"
    assert answer.system_fingerprint is not None and answer.system_fingerprint.startswith("fp_ba5e")
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == expected("hello there")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == 27
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_a_streamed_chat_answer(openai_client: OpenAI, engine: FakeEngine) -> None:
    chunks = list(openai_client.chat.completions.create(model="support", messages=say("hello"), stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected("hello")
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


def test_usage_in_the_last_chunk_when_asked_for(openai_client: OpenAI, engine: FakeEngine) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        openai_client.chat.completions.create(model="support", messages=say("hi"), stream=True, stream_options=options)
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 24


def test_events_are_framed_exactly(web: WebProcess, engine: FakeEngine) -> None:
    body = {"model": "support", "messages": say("say one two"), "stream": True}
    answer = httpx.post(
        f"{web.url}/v1/chat/completions", json=body, headers=web.tenants["acme"].bearer, trust_env=False
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-request-id"].startswith("req_")
    events = answer.text.split("\n\n")
    assert events[-1] == ""
    assert events[-2] == "data: [DONE]"
    for event in events[:-2]:
        chunk = json.loads(event.removeprefix("data: "))
        assert chunk["object"] == "chat.completion.chunk"
        assert set(chunk) == {"id", "object", "created", "model", "system_fingerprint", "choices"}


def test_several_choices(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.chat.completions.create(model="support", messages=say("hello"), n=2)
    assert [choice.message.content for choice in answer.choices] == [expected("hello", choice=i) for i in range(2)]
    texts = ["", ""]
    for chunk in openai_client.chat.completions.create(model="support", messages=say("hello"), n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [expected("hello", choice=i) for i in range(2)]


def test_stop_and_length(openai_client: OpenAI, engine: FakeEngine) -> None:
    stopped = openai_client.chat.completions.create(model="support", messages=say("say a b END c"), stop="END")
    assert stopped.choices[0].message.content == "a b "
    assert stopped.choices[0].finish_reason == "stop"
    short = openai_client.chat.completions.create(model="support", messages=say("words 50"), max_completion_tokens=5)
    assert short.choices[0].finish_reason == "length"
    assert short.usage is not None and short.usage.completion_tokens == 5


def test_logprobs(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.chat.completions.create(
        model="support", messages=say("say one two"), logprobs=True, top_logprobs=2
    )
    details = answer.choices[0].logprobs
    assert details is not None and details.content is not None
    assert [entry.token for entry in details.content] == ["one", " two"]
    assert details.content[0].logprob == pytest.approx(-0.25)
    assert details.content[0].bytes == list(b"one")
    assert len(details.content[0].top_logprobs) == 2
    streamed = openai_client.chat.completions.create(
        model="support", messages=say("say one two"), logprobs=True, top_logprobs=1, stream=True
    )
    tokens = [
        entry.token
        for chunk in streamed
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content or []
    ]
    assert tokens == ["one", " two"]


def test_sampling_reaches_the_engine(openai_client: OpenAI, engine: FakeEngine) -> None:
    openai_client.chat.completions.create(
        model="support",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "say x"}]},
        ],
        temperature=0,
        top_p=0.5,
        presence_penalty=0.25,
        frequency_penalty=-0.5,
        seed=-1,
        stop=["a", "b"],
        max_tokens=9,
        logit_bias={"5": -100},
        user="someone",
        metadata={"a": "b"},
        store=False,
        parallel_tool_calls=True,
        service_tier="auto",
        extra_body={"top_k": 7, "min_p": 0.125, "repetition_penalty": 1.5, "ignore_eos": True},
    )
    submit = engine.submits[-1]
    assert [(m.role, m.content) for m in submit.chat.messages] == [("system", "be brief"), ("user", "say x")]
    sampling = submit.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 0.5, 7, 0.125)
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0.25, -0.5, 1.5)
    assert (sampling.seed, list(sampling.stop), sampling.max_tokens) == (2**64 - 1, ["a", "b"], 9)
    assert dict(sampling.logit_bias) == {5: -100}
    assert sampling.ignore_eos
    assert submit.tenant
    assert submit.adapter_digest == SUPPORT


def test_the_default_is_to_sample(openai_client: OpenAI, engine: FakeEngine) -> None:
    openai_client.chat.completions.create(model="fake-base", messages=say("say x"))
    assert engine.submits[-1].sampling.temperature == 1.0
    assert engine.submits[-1].sampling.max_tokens == 0
    assert engine.submits[-1].adapter_digest == ""


# -- completions ----------------------------------------------------------------


def test_completions_of_text_tokens_and_lists(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.completions.create(model="support", prompt="say one two three")
    assert answer.object == "text_completion"
    assert answer.choices[0].text == "one two three"
    tokens = openai_client.completions.create(model="support", prompt=[1, 2, 3], max_tokens=4)
    assert tokens.usage is not None and tokens.usage.prompt_tokens == 3
    assert list(engine.submits[-1].token_ids.ids) == [1, 2, 3]
    several = openai_client.completions.create(model="support", prompt=["say one", "say two"], n=2)
    assert [choice.text for choice in several.choices] == ["one", "one", "two", "two"]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.usage is not None and several.usage.completion_tokens == 4
    arrays = openai_client.completions.create(model="support", prompt=[[1, 2], [3]], max_tokens=3)
    assert arrays.usage is not None and arrays.usage.prompt_tokens == 3


def test_completions_stream_several_prompts(openai_client: OpenAI, engine: FakeEngine) -> None:
    texts = ["", ""]
    for chunk in openai_client.completions.create(model="support", prompt=["say a b c", "say d e f"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["a b c", "d e f"]


def test_completions_default_to_sixteen_tokens_and_echo(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.completions.create(model="support", prompt="words 40")
    assert answer.usage is not None and answer.usage.completion_tokens == 16
    echoed = openai_client.completions.create(model="support", prompt="say it", echo=True)
    assert echoed.choices[0].text == "say itit"
    streamed = openai_client.completions.create(model="support", prompt="say it", echo=True, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "say itit"


def test_completions_logprobs(openai_client: OpenAI, engine: FakeEngine) -> None:
    details = openai_client.completions.create(model="support", prompt="say one two", logprobs=1).choices[0].logprobs
    assert details is not None
    assert details.tokens == ["one", " two"]
    assert details.text_offset == [0, 3]
    assert details.top_logprobs == [{"one": -0.25}, {" two": -0.25}]


# -- models ----------------------------------------------------------------------


def test_models(openai_client: OpenAI, engine: FakeEngine) -> None:
    assert {model.id for model in openai_client.models.list()} == {"fake-base", "support", "pirate"}
    assert openai_client.models.retrieve("support@v1").id == "support@v1"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("sql")


def test_a_version_by_number(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.chat.completions.create(model="support@v1", messages=say("hello"))
    assert answer.model == "support@v1"
    assert answer.choices[0].message.content == expected("hello")


# -- several adapters as one ---------------------------------------------------------


def test_several_adapters_answer_as_one_and_the_ledger_names_them(
    web: WebProcess, openai_client: OpenAI, engine: FakeEngine
) -> None:
    digest = combined_digest([Part(SUPPORT, 1.0), Part(digest_of("acme", "pirate"), -0.5)])
    answer = openai_client.chat.completions.create(model="support@v1+pirate:-0.5", messages=say("hello"))
    assert answer.model == "support@v1+pirate:-0.5"
    assert engine.submits[-1].adapter_digest == digest
    assert answer.choices[0].message.content == expected("hello", digest)

    def names() -> list[str]:
        return [row["model"] for row in web.query("select model from usage_usageevent")]

    eventually(lambda: "support@v1:1+pirate@v1:-0.5" in names(), what="the request in the ledger")


def test_a_combination_of_another_tenants_adapter_is_none(openai_client: OpenAI, engine: FakeEngine) -> None:
    for name, code in (("support+sql", "model_not_found"), ("support+pirate:0", "invalid_value")):
        with pytest.raises(openai.APIStatusError) as caught:
            openai_client.chat.completions.create(model=name, messages=say("hello"))
        assert caught.value.code == code
    assert not engine.submits


def test_what_cannot_be_combined_is_refused_by_its_name(openai_client: OpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.BadRequestError, match="refused as scripted"):
        openai_client.chat.completions.create(model="support+pirate", messages=say("fail adapters_cannot_be_combined"))
    failure = HostError("rank_too_high", f"{SUPPORT[:19]} is too much.", "Take less.")
    version = SimpleNamespace(digest=SUPPORT, number=1, adapter=SimpleNamespace(name="support"))
    model: Any = SimpleNamespace(versions=(version,))
    assert naming_parts(failure, model).message == '"support@v1" is too much.'


# -- refusals ----------------------------------------------------------------------


def test_another_tenants_adapter_is_as_unknown_as_any(openai_client: OpenAI, engine: FakeEngine) -> None:
    errors = []
    for name in ("sql", "nonsense"):
        with pytest.raises(openai.NotFoundError) as caught:
            openai_client.chat.completions.create(model=name, messages=say("hello"))
        body: Any = caught.value.body
        assert body["code"] == "model_not_found"
        assert body["param"] == "model"
        errors.append(body["message"].replace(name, "…"))
    assert errors[0] == errors[1]
    assert not engine.submits


@pytest.mark.parametrize("key", ["", "nonsense", "lk_aaaaaaaa_wrong"])
def test_wrong_keys(web: WebProcess, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": 3}
    answer = httpx.post(f"{web.url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] in {"missing_api_key", "invalid_api_key"}


def test_authentication_and_permission_errors(web: WebProcess) -> None:
    view_only = web.tenants["acme"].view_only_key
    for key, error in (("lk_aaaaaaaa_wrong", openai.AuthenticationError), (view_only, openai.PermissionDeniedError)):
        with OpenAI(base_url=f"{web.url}/v1", api_key=key, max_retries=0) as client, pytest.raises(error):
            client.chat.completions.create(model="support", messages=say("hello"))


def test_retryable_refusals_say_when(openai_client: OpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.RateLimitError) as limited:
        openai_client.chat.completions.create(model="support", messages=say("fail rate_limit_exceeded"))
    assert limited.value.response.headers["retry-after"] == "2"
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as overloaded:
            openai_client.chat.completions.create(model="support", messages=say("fail overloaded"), stream=stream)
        assert overloaded.value.status_code == 503
        assert overloaded.value.response.headers["retry-after"] == "2"


def test_too_long_a_prompt(openai_client: OpenAI, engine: FakeEngine) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client.chat.completions.create(model="support", messages=say("word " * 5000), stream=stream)
        body: Any = caught.value.body
        assert body["code"] == "context_length_exceeded"
        assert body["param"] == "messages"


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "invalid_value", "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_value", "tools[0].function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "invalid_value", "tool_choice"),
        ({"functions": [{"name": "f"}]}, "unsupported_parameter", "functions"),
        ({"function_call": {"name": "f"}}, "unsupported_parameter", "function_call"),
        ({"reasoning_effort": "wild"}, "invalid_value", "reasoning_effort"),
        ({"chat_template_kwargs": {"x": "y" * 20_000}}, "invalid_value", "chat_template_kwargs"),
        ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
        ({"use_beam_search": True}, "unsupported_parameter", "use_beam_search"),
        ({"temprature": 1}, "unknown_parameter", "temprature"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"temperature": "hot"}, "invalid_value", "temperature"),
        ({"n": 0}, "invalid_value", "n"),
        ({"max_tokens": -1}, "invalid_value", "max_tokens"),
        ({"stop": ["x"] * 20}, "invalid_value", "stop"),
        ({"logit_bias": {"abc": 1}}, "invalid_value", "logit_bias"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0]"),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_value", "messages[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "invalid_value", "messages[0].content"),
        ({"messages": None}, "missing_required_parameter", "messages"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"model": None}, "missing_required_parameter", "model"),
    ],
)
def test_bad_parameters_are_named(web: WebProcess, change: dict[str, Any], code: str, param: str | None) -> None:
    body = {"model": "support", "messages": say("say x"), **change}
    url = f"{web.url}/v1/chat/completions"
    answer = httpx.post(url, json=body, headers=web.tenants["acme"].bearer, trust_env=False, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["code"], error["param"]) == (code, param), error
    assert error["type"] == "invalid_request_error"
    assert error["fix"]


def test_neutral_values_of_unsupported_parameters(openai_client: OpenAI, engine: FakeEngine) -> None:
    neutral: Any = {"tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "modalities": ["text"]}
    openai_client.chat.completions.create(model="support", messages=say("say x"), extra_body=neutral)


def test_a_schema_reaches_the_engine_and_a_bad_one_is_refused_before_it(
    openai_client: OpenAI, engine: FakeEngine
) -> None:
    def create(schema: dict[str, Any]) -> None:
        named: Any = {"name": "answer", "schema": schema, "strict": True}
        asked: Any = {"type": "json_schema", "json_schema": named}
        openai_client.chat.completions.create(model="support", messages=say("say x"), response_format=asked)

    create({"type": "object"})
    constraint = engine.submits[-1].constraint
    assert (constraint.kind, constraint.text) == (pb.Constraint.JSON_SCHEMA, '{"type": "object"}')
    engine.submits.clear()
    with pytest.raises(openai.BadRequestError) as refused:
        create({"properties": {"a": {"$dynamicRef": "#b"}}})
    assert refused.value.code == "invalid_constraint"
    assert refused.value.param == "response_format.json_schema.schema.properties.a.$dynamicRef"
    assert not engine.submits


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff", b"[" * 100_000, b""])
def test_malformed_json(web: WebProcess, body: bytes) -> None:
    url = f"{web.url}/v1/chat/completions"
    answer = httpx.post(url, content=body, headers=web.tenants["acme"].bearer, trust_env=False, timeout=30)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "malformed_json"


def test_a_body_over_the_limit(web: WebProcess) -> None:
    url, headers = f"{web.url}/v1/chat/completions", web.tenants["acme"].bearer
    answer = httpx.post(url, content=b"x" * (5 << 20), headers=headers, trust_env=False, timeout=30)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    pieces = (b"x" * (1 << 20) for _ in range(6))
    assert httpx.post(url, content=pieces, headers=headers, trust_env=False, timeout=30).status_code == 413


def test_unknown_addresses_and_methods(web: WebProcess) -> None:
    headers = web.tenants["acme"].bearer
    missing = httpx.get(f"{web.url}/v1/images", headers=headers, trust_env=False, timeout=30)
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_url")
    wrong = httpx.get(f"{web.url}/v1/chat/completions", headers=headers, trust_env=False, timeout=30)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


# -- going away ----------------------------------------------------------------------


def test_closing_a_stream_aborts(openai_client: OpenAI, engine: FakeEngine) -> None:
    stream = openai_client.chat.completions.create(model="support", messages=say("words 5000"), stream=True)
    next(stream)
    stream.close()
    eventually(lambda: engine.aborts, 3, what="abort")
    assert engine.aborts == [engine.submits[-1].request_id]


@pytest.mark.parametrize("stream", [True, False])
def test_a_closed_connection_aborts(web: WebProcess, engine: FakeEngine, stream: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", web.port)
    body = json.dumps({"model": "support", "messages": say("words 5000"), "stream": stream})
    connection.request("POST", "/v1/chat/completions", body, web.tenants["acme"].bearer)
    eventually(lambda: engine.submits, 5, what="submit")
    assert connection.sock is not None
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    eventually(lambda: engine.aborts == [engine.submits[-1].request_id], 3, what="abort")


def test_a_connection_closed_at_any_moment_aborts(web: WebProcess, engine: FakeEngine) -> None:
    """Before the first token, with it, after it: nothing may be left running for nobody."""
    for attempt in range(40):
        connection = http.client.HTTPConnection("127.0.0.1", web.port)
        body = json.dumps({"model": "support", "messages": say("words 5000"), "stream": True})
        connection.request("POST", "/v1/chat/completions", body, web.tenants["acme"].bearer)
        eventually(lambda count=attempt + 1: len(engine.submits) >= count, 5, what="submit")
        time.sleep(attempt % 8 * 0.001)
        connection.close()
    submitted = {submit.request_id for submit in engine.submits}
    eventually(lambda: set(engine.aborts) == submitted, 5, what="an abort for each")
    eventually(lambda: not engine.running, 5, what="every request's end")


async def test_cancelling_the_async_client_aborts(web: WebProcess, engine: FakeEngine) -> None:
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=web.tenants["acme"].key, max_retries=0) as client:
        stream = await client.chat.completions.create(model="support", messages=say("words 5000"), stream=True)
        await anext(aiter(stream))
        await stream.close()
        whole = asyncio.create_task(client.chat.completions.create(model="support", messages=say("hang")))
        await asyncio.to_thread(eventually, lambda: len(engine.submits) == 2, 15, what="submits")
        whole.cancel()
        await asyncio.to_thread(eventually, lambda: len(engine.aborts) == 2, 3, what="aborts")


async def test_many_async_streams_at_once(web: WebProcess, engine: FakeEngine) -> None:
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=web.tenants["acme"].key, max_retries=0) as client:

        async def one(number: int) -> str:
            prompt = f"question {number}"
            stream = await client.chat.completions.create(model="support", messages=say(prompt), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(*(one(number) for number in range(40)))
    assert texts == [expected(f"question {number}") for number in range(40)]
    assert engine.sessions <= 2


def test_streams_hold_no_database_connection(web: WebProcess, engine: FakeEngine) -> None:
    engine.behaviour.steps_per_second = 20
    sockets = []
    for number in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", web.port)
        body = json.dumps({"model": "support", "messages": say(f"words 50{number}"), "stream": True})
        connection.request("POST", "/v1/chat/completions", body, web.tenants["acme"].bearer)
        sockets.append(connection)
    eventually(lambda: len(engine.running) == 20, 10, what="20 running")
    # The watcher and the worker open one now and then, PostgreSQL's pool keeps some, and so do the threads for queries
    # of a SQLite file; the twenty streams hold none.
    eventually(lambda: web.database_connections() <= 10, 10, what="at most 10 connections")
    assert len(engine.running) == 20
    for connection in sockets:
        connection.close()
    eventually(lambda: not engine.running, 5, what="all aborted")


# -- failures ----------------------------------------------------------------------


def test_a_failure_in_the_middle_is_an_event(openai_client: OpenAI, engine: FakeEngine) -> None:
    stream = openai_client.chat.completions.create(model="support", messages=say("break 8"), stream=True)
    tokens = 0
    with pytest.raises(openai.APIError) as caught:
        for chunk in stream:
            tokens += len((chunk.choices[0].delta.content or "").split())
    assert tokens == 8
    assert caught.value.code == "device_error"
    with pytest.raises(openai.InternalServerError):
        openai_client.chat.completions.create(model="support", messages=say("break 8"))


def test_an_overflow_is_the_adapters_fault(openai_client: OpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        openai_client.chat.completions.create(model="support", messages=say("overflow now"))
    assert caught.value.code == "adapter_overflow"
    assert "Train it smaller." in str(caught.value)


def test_an_engine_that_dies_and_returns(
    openai_client: OpenAI, engine: FakeEngine, engine_thread: FakeEngineThread, web: WebProcess
) -> None:
    stream = openai_client.chat.completions.create(model="support", messages=say("words 5000"), stream=True)
    next(stream)
    engine_thread.stop()
    with pytest.raises(openai.APIError) as caught:
        list(stream)
    assert caught.value.code == "engine_disconnected"
    with pytest.raises(openai.InternalServerError) as refused:
        openai_client.chat.completions.create(model="support", messages=say("hello"))
    assert refused.value.status_code == 503
    assert refused.value.response.headers["retry-after"]
    engine.stage_calls.clear()
    engine_thread.start()

    def answers(model: str) -> bool:
        try:
            return bool(openai_client.chat.completions.create(model=model, messages=say("hello")))
        except openai.InternalServerError:
            return False

    for model in ("support", "pirate"):
        eventually(lambda model=model: answers(model), 20, what=f"recovery of {model}")
    assert SUPPORT in {call.digest for call in engine.stage_calls}


def test_the_ledger_equals_the_engines_journal(web: WebProcess, openai_client: OpenAI, engine: FakeEngine) -> None:
    openai_client.chat.completions.create(model="pirate", messages=say("words 12"))
    eventually(lambda: engine.journal.keys() == engine.acknowledged, 60, what="acknowledged")
    rows = {row["request_id"]: row for row in web.query("select * from usage_usageevent")}
    assert rows.keys() == engine.journal.keys()
    for request_id, record in engine.journal.items():
        row = rows[request_id]
        if row["outcome"] == "failed":  # billed what arrived: tests/attack/test_died_requests.py
            assert record.outcome in ("failed", "aborted")  # of a session that broke
        else:
            assert row["prompt_tokens"] == record.prompt_tokens
            assert row["completion_tokens"] == record.completion_tokens
            assert row["outcome"] == record.outcome
            assert row["queue_ms"] == record.queue_ms
        assert str(row["tenant_id"]).replace("-", "") == record.tenant.replace("-", "")
        assert row["api_key_id"]
    assert not [name for row in rows.values() for name in row if "text" in name]


# -- the forms that the schema shows -------------------------------------------


@pytest.mark.parametrize(
    ("path", "form", "more"),
    [
        ("chat/completions", ChatCompletionResponse, {"messages": say("hello"), "n": 2}),
        ("chat/completions", ChatCompletionResponse, {"messages": say("hello"), "logprobs": True, "top_logprobs": 2}),
        ("completions", CompletionResponse, {"prompt": ["say one", "say two"]}),
        ("completions", CompletionResponse, {"prompt": "say one", "logprobs": 2}),
        ("completions", CompletionResponse, {"prompt": [1, 2], "user": "u", "metadata": {"a": "b"}}),
    ],
)
def test_answers_have_the_form_that_the_schema_shows(
    web: WebProcess, engine: FakeEngine, path: str, form: Any, more: dict[str, Any]
) -> None:
    bearer = web.tenants["acme"].bearer
    answer = httpx.post(
        f"{web.url}/v1/{path}", json={"model": "support", **more}, headers=bearer, trust_env=False, timeout=30
    )
    assert answer.status_code == 200, answer.text
    form.model_validate_json(answer.content)


def test_models_have_the_form_that_the_schema_shows(web: WebProcess) -> None:
    bearer = web.tenants["acme"].bearer
    ModelList.model_validate_json(
        httpx.get(f"{web.url}/v1/models", headers=bearer, trust_env=False, timeout=30).content
    )
    ModelCard.model_validate_json(
        httpx.get(f"{web.url}/v1/models/support", headers=bearer, trust_env=False, timeout=30).content
    )
    refused = httpx.get(f"{web.url}/v1/models/nobody", headers=bearer, trust_env=False, timeout=30)
    ErrorResponse.model_validate_json(refused.content)
