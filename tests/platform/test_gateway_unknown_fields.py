"""Fields that other servers have: left out and named, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import WebProcess, eventually

from control_plane.gateway.openai.unknown_fields import MAX_IGNORED, meant_name

CHAT, TEXT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "say it is"}]},
    TEXT: {"prompt": "say it is"},
    RESPONSES: {"input": "say it is"},
    EMBEDDINGS: {"input": "it is"},
}
IGNORED = "X-Lorikeet-Ignored"


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(steps_per_second=2000, known_digests_only=True)


@pytest.fixture(scope="module")
def http(web: WebProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=web.url, timeout=30, trust_env=False, headers=web.tenants["acme"].bearer) as client:
        yield client


@pytest.fixture(scope="module")
def console(web: WebProcess) -> Console:
    return Console(web, web.tenants["acme"])


def post(http: httpx.Client, path: str, **fields: Any) -> httpx.Response:
    return http.post(path, json={"model": "support", **BODIES[path], **fields})


def ignored(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return answer.headers.get(IGNORED, "").split(", ") if IGNORED in answer.headers else []


# As Open WebUI, LibreChat, Cline and OpenRouter's clients send them.
FRONT_ENDS: dict[str, Any] = {
    "chat_id": "5f1", "session_id": "a", "features": {"web_search": False}, "provider": {"order": ["x"]},
    "plugins": [], "transforms": ["middle-out"], "usage": {"include": True}, "client_metadata": {"a": "b"},
}  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
def test_fields_of_front_ends_are_left_out_and_named(
    http: httpx.Client, engine: FakeEngine, console: Console, path: str
) -> None:
    plain = post(http, path)
    assert ignored(plain) == []
    answer = post(http, path, **FRONT_ENDS)
    assert set(ignored(answer)) == set(FRONT_ENDS)
    request_id = answer.headers["X-Request-Id"]

    def row() -> list[dict[str, Any]]:
        rows = console.http.get("/api/tenants/acme/requests", params={"id": request_id}).json()["results"]
        return list(rows)

    eventually(row, what="the request's row")
    assert set(row()[0]["ignored"]) == set(FRONT_ENDS)


def test_fields_inside_messages_and_tools(http: httpx.Client, engine: FakeEngine) -> None:
    marked = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", **marked}], "id": "m1"},
        {"role": "user", "content": [{"type": "text", "text": "say it is", **marked}], "id": "m2"},
    ]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, **marked}}
    answer = post(http, CHAT, messages=messages, tools=[tool])
    assert ignored(answer) == [
        "messages[].id", "messages[].content[].cache_control", "tools[].function.cache_control"
    ]  # fmt: skip
    sent = engine.submits[-1].chat
    assert [message.content for message in sent.messages] == ["Be brief.", "say it is"]
    part = {"type": "input_text", "text": "say it is", **marked}
    made = {"type": "function", "name": "f", "parameters": {"type": "object"}, **marked}
    answer = post(http, RESPONSES, input=[{"role": "user", "content": [part]}], tools=[made])
    assert ignored(answer) == ["tools[].cache_control"]
    assert "cache_control" not in answer.json()["tools"][0]


def test_a_stream_names_them_too(http: httpx.Client) -> None:
    assert ignored(post(http, CHAT, stream=True, chat_id="1")) == ["chat_id"]
    assert ignored(post(http, RESPONSES, stream=True, chat_id="1")) == ["chat_id"]


def test_names_are_bounded_and_plain(http: httpx.Client) -> None:
    names = ["a\r\nSet-Cookie: b", "ü", "y" * 500, *(f"field_{number}" for number in range(50))]
    found = ignored(post(http, CHAT, **dict.fromkeys(names, 1)))
    assert len(found) == MAX_IGNORED
    assert found[0] == '"a\\r\\nSet-Cookie: b"' and found[1] == '"\\u00fc"'
    assert max(map(len, found)) == 64


@pytest.mark.parametrize(
    ("path", "fields", "param", "words"),
    [
        (CHAT, {"temprature": 1}, "temprature", "Did you mean 'temperature'?"),
        (CHAT, {"maxTokens": 1}, "maxTokens", "Did you mean 'max_tokens'?"),
        (CHAT, {"stop_sequences": ["x"]}, "stop_sequences", "Did you mean 'stop'?"),
        (CHAT, {"max_output_tokens": 1}, "max_output_tokens", "Did you mean 'max_completion_tokens'?"),
        (CHAT, {"tool": []}, "tool", "Did you mean 'tools'?"),
        (RESPONSES, {"max_tokens": 1}, "max_tokens", "Did you mean 'max_output_tokens'?"),
        (RESPONSES, {"response_format": {}}, "response_format", "Did you mean 'text'?"),
        (EMBEDDINGS, {"dimension": 1}, "dimension", "Did you mean 'dimensions'?"),
        (TEXT, {"n_predict": 1}, "n_predict", "Did you mean 'max_tokens'?"),
        (CHAT, {"mirostat": 2}, "mirostat", "not supported"),
        (TEXT, {"typical_p": 0.9}, "typical_p", "not supported"),
        (RESPONSES, {"dry_multiplier": 0.8}, "dry_multiplier", "not supported"),
        (CHAT, {"response_format": {"type": "text", "more": 1}}, "response_format.more", "Unknown parameter"),
        (TEXT, {"structured_outputs": {"regex": "a", "structural_tag": "x"}}, "structured_outputs.structural_tag",
         "Unknown parameter"),
    ],
)  # fmt: skip
def test_what_would_change_the_answer_is_refused(
    http: httpx.Client, path: str, fields: dict[str, Any], param: str, words: str
) -> None:
    answer = post(http, path, chat_id="1", **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"], words in error["message"]) == (param, True), error


def test_values_that_choose_no_tokens_otherwise_are_accepted(http: httpx.Client) -> None:
    neutral = {"mirostat": 0, "typical_p": 1.0, "dry_multiplier": 0, "xtc_probability": 0, "top_a": 0, "tfs_z": 1}
    assert ignored(post(http, CHAT, **neutral)) == []


def test_other_problems_are_named_beside_unknown_fields(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": "x", "cache_control": {}}]
    error = post(http, CHAT, messages=messages, n=0, temprature=1, chat_id="1").json()["error"]
    assert [problem["param"] for problem in error["problems"]] == ["temprature", "n"]


def test_a_tenant_can_refuse_unknown_fields(http: httpx.Client, console: Console) -> None:
    settings = "/api/tenants/acme/api-settings"
    default = console.http.get(settings).json()
    assert default == {"refuse_unknown_fields": False, "never_store_responses": False}
    assert http.put(settings, json=default).status_code == 403
    try:
        assert console.http.put(settings, json={**default, "refuse_unknown_fields": True}).status_code == 200

        def codes() -> set[tuple[int, str]]:
            answers = [post(http, path, frobnicate=1) for path in BODIES]
            return {(answer.status_code, answer.json().get("error", {}).get("code")) for answer in answers}

        eventually(lambda: codes() == {(400, "unknown_parameter")}, what="refusals")
        assert ignored(post(http, CHAT, user="u")) == ["user"], "documented as harmless"
    finally:
        console.http.put(settings, json=default)
    eventually(lambda: post(http, CHAT, frobnicate=1).status_code == 200, what="the default again")


@pytest.mark.parametrize(
    ("path", "fields", "effort", "name"),
    [
        (CHAT, {"reasoning_effort": "high"}, "high", "reasoning_effort"),
        (CHAT, {"reasoning": {"effort": "low", "exclude": False}}, "low", "reasoning.effort"),
        (CHAT, {"reasoning": {"enabled": True}}, "medium", "reasoning.enabled"),
        (CHAT, {"enable_thinking": True}, "medium", "enable_thinking"),
        (CHAT, {"thinking": {"type": "enabled"}}, "medium", "thinking"),
        (RESPONSES, {"reasoning": {"effort": "high"}}, "high", "reasoning.effort"),
    ],
)
def test_an_effort_that_the_template_does_not_read(
    http: httpx.Client, engine: FakeEngine, path: str, fields: dict[str, Any], effort: str, name: str
) -> None:
    more = ["reasoning.exclude"] if "exclude" in fields.get("reasoning", {}) else []
    assert ignored(post(http, path, **fields)) == more
    assert engine.submits[-1].chat.reasoning_effort == effort
    engine.behaviour.reads_effort = False
    try:
        for stream in (False, True):
            answer = post(http, path, **fields, stream=stream)
            assert ignored(answer) == [*more, name]
            assert "it is" in answer.text.replace('"', "") or stream
            assert engine.submits[-1].chat.reasoning_effort == ""
    finally:
        engine.behaviour.reads_effort = True


def test_switches_without_an_effort(http: httpx.Client, engine: FakeEngine) -> None:
    assert ignored(post(http, CHAT, reasoning={})) == []
    assert engine.submits[-1].chat.reasoning_effort == ""
    assert ignored(post(http, CHAT, enable_thinking=False)) == []
    assert engine.submits[-1].chat.reasoning_effort == "none"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("Top_P", ["top_p"], "top_p"),
        ("temp", ["temperature"], "temperature"),
        ("seeds", ["seed"], "seed"),
        ("id", ["n"], None),
        ("top_q", ["top_p", "top_k"], None),
        ("input_schema", ["name", "parameters"], "parameters"),
        ("x" * 10_000, ["x"], None),
    ],
)
def test_names_that_are_meant(name: str, known: list[str], meant: str | None) -> None:
    assert meant_name(name, known) == meant
