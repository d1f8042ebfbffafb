"""`/v1/messages`: the official Anthropic client against a real web process and a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import WebProcess, eventually

from control_plane.gateway.anthropic.request import in_anthropic_terms
from control_plane.gateway.dispatch.errors import ApiError

WEATHER: Any = {
    "name": "weather",
    "description": "Of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = 'say Let me look. <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = "say <think>Let me see.</think>Yes."


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True, steps_per_second=1000)


@pytest.fixture(scope="module")
def client(web: WebProcess) -> Iterator[Anthropic]:
    with Anthropic(base_url=web.url, api_key=web.tenants["acme"].key, max_retries=0, timeout=60) as made:
        yield made


def body_of(content: Any, **more: Any) -> Any:
    return {"model": "support", "max_tokens": 50, "messages": [{"role": "user", "content": content}], **more}


def ask(client: Anthropic, content: Any, **more: Any) -> Any:
    return client.messages.create(**body_of(content, **more))


def streamed(client: Anthropic, content: Any, **more: Any) -> tuple[str, list[str], Any]:
    """The text, the kinds of events, and the whole message that the client makes of them."""
    with client.messages.stream(**body_of(content, **more)) as stream:
        events = list(stream)
        text = "".join(event.text for event in events if event.type == "text")
        return text, [event.type for event in events], stream.get_final_message()


def raw(web: WebProcess, body: Any, path: str = "", **headers: str) -> httpx.Response:
    key = headers or {"x-api-key": web.tenants["acme"].key}
    return httpx.post(f"{web.url}/v1/messages{path}", json=body, headers=key, trust_env=False, timeout=30)


def sent(engine: FakeEngine) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in engine.submits[-1].chat.messages]


def test_a_message(client: Anthropic, engine: FakeEngine) -> None:
    older = {"temperature": 0.5, "top_k": 7}  # which the client's current version no longer has
    answer = ask(client, "say hello there", system="Be kind.", metadata={"user_id": "u"}, extra_body=older)
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", "support")
    assert answer.id.startswith("msg_")
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert [(block.type, block.text) for block in answer.content] == [("text", "hello there")]
    assert answer.usage.output_tokens == 2
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens > 0
    assert sent(engine) == [("system", "Be kind."), ("user", "say hello there")]
    sampling = engine.submits[-1].sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_k) == (50, 0.5, 7)
    assert answer._request_id
    cut = ask(client, "words 50", max_tokens=3)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)


def test_a_stream(client: Anthropic, web: WebProcess) -> None:
    text, _, final = streamed(client, "say one two three")
    assert text == final.content[0].text == "one two three"
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 3)
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens > 0
    answer = raw(web, body_of("say a b", stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [part.split("\n") for part in answer.text.strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}
    assert [json.loads(data.removeprefix("data: "))["type"] for _, data in events] == names


def test_tools_go_round(client: Anthropic, engine: FakeEngine) -> None:
    answer = ask(client, CALL, tools=[WEATHER])
    assert answer.stop_reason == "tool_use"
    text, call = answer.content
    assert (text.text.strip(), call.name, call.input) == ("Let me look.", "weather", {"city": "Rome"})
    tool = engine.submits[-1].chat.tools[0]
    assert (tool.name, tool.description, json.loads(tool.parameters)) == (
        "weather", "Of a city.", WEATHER["input_schema"]
    )  # fmt: skip
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]},
        {"type": "tool_result", "tool_use_id": "other", "content": "rain", "is_error": True},
        {"type": "text", "text": "say it shines"},
    ]
    messages: Any = [
        {"role": "user", "content": "What is the weather?"},
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": results},
    ]
    again: Any = client.messages.create(model="support", max_tokens=50, messages=messages, tools=[WEATHER])
    assert again.content[0].text == "it shines"
    chat = engine.submits[-1].chat.messages
    assert [message.role for message in chat] == ["user", "assistant", "tool", "tool", "user"]
    assert (chat[1].tool_calls[0].name, json.loads(chat[1].tool_calls[0].arguments)) == ("weather", {"city": "Rome"})
    assert (chat[2].tool_call_id, chat[2].content, chat[3].content) == (call.id, "sunny", "rain")


def test_a_tool_call_is_streamed(client: Anthropic) -> None:
    _, kinds, final = streamed(client, CALL, tools=[WEATHER])
    assert "input_json" in kinds
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert (final.content[1].input, final.stop_reason) == ({"city": "Rome"}, "tool_use")


@pytest.mark.parametrize(
    ("choice", "mode", "name", "single"),
    [
        ({"type": "auto"}, 0, "", False),
        ({"type": "any", "disable_parallel_tool_use": True}, 2, "", True),
        ({"type": "tool", "name": "weather"}, 3, "weather", False),
        ({"type": "none"}, 1, "", False),
    ],
)
def test_the_choice_of_tools(
    client: Anthropic, engine: FakeEngine, choice: Any, mode: int, name: str, single: bool
) -> None:
    ask(client, "say x", tools=[WEATHER], tool_choice=choice)
    chat = engine.submits[-1].chat
    assert (chat.tool_choice.mode, chat.tool_choice.name, chat.single_tool_call) == (mode, name, single)


def test_thinking(client: Anthropic, web: WebProcess, engine: FakeEngine) -> None:
    ask(client, "say x")
    assert engine.submits[-1].chat.reasoning_effort == "none"
    answer = ask(client, THOUGHT, thinking={"type": "enabled", "budget_tokens": 1024})
    assert engine.submits[-1].chat.reasoning_effort == "medium"
    thinking, text = answer.content
    assert (thinking.type, thinking.thinking, text.type, text.text) == ("thinking", "Let me see.", "text", "Yes.")
    _, kinds, final = streamed(client, THOUGHT, thinking={"type": "adaptive"})
    assert {"thinking", "signature"} <= set(kinds)
    assert (final.content[0].thinking, final.content[1].text) == ("Let me see.", "Yes.")
    assert bool(final.content[0].signature) and bool(thinking.signature)
    redacted = {"type": "redacted_thinking", "data": "x"}
    history: Any = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [redacted, *answer.content]},
        {"role": "user", "content": "say more"},
    ]
    client.messages.create(model="support", max_tokens=50, messages=history)
    before = engine.submits[-1].chat.messages[1]
    assert (before.reasoning, before.content) == ("Let me see.", "Yes.")
    engine.behaviour.reads_effort = False
    try:
        answer = raw(web, body_of("say x", thinking={"type": "enabled", "budget_tokens": 1024}))
        assert answer.headers["X-Lorikeet-Ignored"] == "thinking.budget_tokens, thinking"
    finally:
        engine.behaviour.reads_effort = True


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("stops", "text", "reason", "sequence"),
    [
        (["three", "zzz"], "one two ", "stop_sequence", "three"),
        (["two th"], "one ", "stop_sequence", "two th"),
        (["four"], "one two three", "end_turn", None),
        (["three four"], "one two three", "end_turn", None),
    ],
)
def test_stop_sequences(
    client: Anthropic, streams: bool, stops: list[str], text: str, reason: str, sequence: str | None
) -> None:
    if streams:
        deltas, _, answer = streamed(client, "say one two three", stop_sequences=stops)
        assert deltas == text
    else:
        answer = ask(client, "say one two three", stop_sequences=stops)
    assert (answer.content[0].text, answer.stop_reason, answer.stop_sequence) == (text, reason, sequence)


def test_the_last_message_may_begin_the_answer(client: Anthropic, engine: FakeEngine) -> None:
    messages: Any = [{"role": "user", "content": "say x"}, {"role": "assistant", "content": "The answer is"}]
    client.messages.create(model="support", max_tokens=5, messages=messages)
    chat = engine.submits[-1].chat
    assert chat.no_generation_prompt and chat.continue_final_message


def test_messages_without_text(client: Anthropic, engine: FakeEngine) -> None:
    """A message whose blocks are all left out is an empty one."""
    ask(client, [{"type": "redacted_thinking", "data": "x"}])
    assert sent(engine) == [("user", "")]


def test_an_answer_in_a_format(client: Anthropic, engine: FakeEngine) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
              "additionalProperties": False}  # fmt: skip
    ask(client, 'say {"city": "Rome"}', output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(engine.submits[-1].constraint.text) == schema


def test_tokens_are_counted(client: Anthropic, web: WebProcess, engine: FakeEngine) -> None:
    messages: Any = [{"role": "user", "content": "say hello there"}]
    count = client.messages.count_tokens(model="support", messages=messages, system="Be kind.", tools=[WEATHER])
    usage = ask(client, "say hello there", system="Be kind.", tools=[WEATHER]).usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    assert raw(web, body_of("x", stream=True, temperature=1), "/count_tokens?beta=true").json()["input_tokens"] > 0


# As Claude Code sends them: its own headers, marked blocks, and fields of betas.
CLAUDE_CODE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "user-agent": "claude-cli/2.0 (external, cli)",
}
MARK = {"cache_control": {"type": "ephemeral"}}
TOOLS = ("Task", "Bash", "Glob", "Grep", "Read", "Edit", "Write", "WebFetch", "TodoWrite", "mcp__ide__getDiagnostics")


def claude_code(**more: Any) -> dict[str, Any]:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "additionalProperties": False,
    }
    tools: list[Any] = [{"name": name, "description": f"{name}, at length.", "input_schema": schema} for name in TOOLS]
    tools[-1] |= MARK
    reminder = {"type": "text", "text": "<system-reminder>Today.</system-reminder>"}
    return {
        "model": "support",
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.0; cch=1a2b3;"},
            {"type": "text", "text": "You are Claude Code.", **MARK},
            {"type": "text", "text": "Follow the rules.", **MARK},
        ],
        "messages": [{"role": "user", "content": [reminder, {"type": "text", "text": "say done", **MARK}]}],
        "tools": [*tools, {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "metadata": {"user_id": "user_1_account__session_2"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        **more,
    }


@pytest.mark.parametrize("scheme", ["Authorization", "x-api-key", "api-key"])
def test_requests_of_claude_code(web: WebProcess, engine: FakeEngine, scheme: str) -> None:
    key = web.tenants["acme"].key
    headers = {**CLAUDE_CODE_HEADERS, scheme: f"Bearer {key}" if scheme == "Authorization" else key}
    plain = claude_code(messages=[{"role": "user", "content": "say done"}])
    answer = raw(web, plain, "?beta=true", **headers)
    assert answer.status_code == 200, answer.text
    assert '"text":"done"' in answer.text and '"stop_reason":"end_turn"' in answer.text
    answer = raw(web, claude_code(), "?beta=true", **headers)
    assert answer.headers["request-id"] == answer.headers["X-Request-Id"]
    assert set(answer.headers["X-Lorikeet-Ignored"].split(", ")) == {
        "metadata",
        "context_management",
        "system[].cache_control",
        "system[x-anthropic-billing-header]",
        "messages[].content[].cache_control",
        "tools[].cache_control",
        "tools[web_search_20250305]",
    }
    chat = engine.submits[-1].chat
    assert sent(engine)[0] == ("system", "You are Claude Code.\nFollow the rules.")
    assert sent(engine)[1][1].endswith("\nsay done")
    assert (len(chat.tools), chat.reasoning_effort) == (10, "high")
    probe = claude_code(max_tokens=1, stream=False, tools=[], thinking={"type": "disabled"}, temperature=0)
    assert raw(web, probe, "?beta=true", **headers).json()["stop_reason"] == "max_tokens"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"model": "nobody"}, anthropic.NotFoundError, "nobody"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError, "temperature"),
        ({"tools": [{**WEATHER, "input_schema": {"type": "string"}}]}, anthropic.BadRequestError, "input_schema"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "f"}}, anthropic.BadRequestError, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, anthropic.BadRequestError, "tool_choice"),
        ({"extra_body": {"stop": ["x"]}}, anthropic.BadRequestError, "Did you mean 'stop_sequences'"),
        ({"extra_body": {"mirostat": 2}}, anthropic.BadRequestError, "mirostat"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, anthropic.BadRequestError,
         "image"),
        ({"messages": [{"role": "user", "content": "fail overloaded"}]}, anthropic.InternalServerError, "overloaded"),
    ],
)  # fmt: skip
def test_errors_have_anthropics_shape(client: Anthropic, body: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        ask(client, "say x", **body)
    refused: Any = caught.value
    assert words in str(refused)
    assert (refused.body["type"], refused.body["request_id"]) == ("error", refused.request_id)


def test_errors_before_the_body_is_read(web: WebProcess) -> None:
    missing = raw(web, {}, **{"anthropic-version": "2023-06-01"})
    assert (missing.status_code, missing.json()["error"]["type"]) == (401, "authentication_error")
    wrong = httpx.get(f"{web.url}/v1/messages", headers={"x-api-key": web.tenants["acme"].key}, trust_env=False)
    assert (wrong.status_code, wrong.json()["type"]) == (405, "error")


def test_a_stream_that_fails_says_so(client: Anthropic) -> None:
    with pytest.raises(anthropic.APIStatusError):
        streamed(client, "break 3")


def test_it_is_a_row_of_the_ledger(client: Anthropic, console: Any) -> None:
    answer = ask(client, "say hello there")

    def rows() -> list[dict[str, Any]]:
        found = console.http.get("/api/tenants/acme/requests", params={"id": answer._request_id}).json()["results"]
        return list(found)

    eventually(rows, what="its row")
    assert (rows()[0]["endpoint"], rows()[0]["completion_tokens"]) == ("chat.completions", 2)


def test_errors_of_the_chat_are_in_the_words_of_messages() -> None:
    theirs = ApiError(
        400, "x", "'max_completion_tokens' and 'reasoning_effort'; max_tokens.", "See tools[3].function.parameters.a.",
        "response_format.json_schema.schema.a",
    )  # fmt: skip
    ours = in_anthropic_terms(theirs)
    assert ours.message == "'max_tokens' and 'thinking'; max_tokens."
    assert ours.fix == "See tools[3].input_schema.a."
    assert ours.param == "output_config.format.schema.a"
