"""Tools and reasoning by openai-python and on the websocket: a web process and a scripted engine."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from lorikeet_testing.browser import receive
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.web import WebProcess
from openai import BadRequestError, OpenAI
from websockets.asyncio.client import connect

from control_plane.gateway.openai.response_models import ChatCompletionResponse
from lora_engine.wire import engine_pb2 as pb

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": f"say {text}"}]


def test_a_whole_answer_with_calls(openai_client: OpenAI, web: WebProcess) -> None:
    answer = openai_client.chat.completions.create(
        model="support", messages=say(f"Sure. {CALL} {CALL}"), tools=[WEATHER]
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Sure."
    calls: Any = choice.message.tool_calls
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("get_weather", '{"city": "Oslo"}')
    ] * 2
    assert len({call.id for call in calls}) == 2
    body = {"model": "support", "messages": say(CALL), "tools": [WEATHER]}
    raw = httpx.post(f"{web.url}/v1/chat/completions", json=body, headers=web.tenants["acme"].bearer, trust_env=False)
    assert raw.json()["choices"][0]["message"]["content"] is None
    ChatCompletionResponse.model_validate_json(raw.content)


def test_a_streamed_answer_with_calls(openai_client: OpenAI) -> None:
    """No part of a call shows as text, and openai-python's helper puts the pieces together."""
    messages = say(f"Let me see. {CALL}")
    with openai_client.chat.completions.stream(model="support", messages=messages, tools=[WEATHER]) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion().choices[0]
    assert text == "Let me see."
    assert final.finish_reason == "tool_calls"
    call: Any = (final.message.tool_calls or [None])[0]
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Oslo"}')


def test_what_does_not_parse_is_text(openai_client: OpenAI) -> None:
    for broken in (CALL.replace("get_weather", "nothing"), CALL.replace('"Oslo"', "Oslo")):
        answer = openai_client.chat.completions.create(model="support", messages=say(broken), tools=[WEATHER])
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (broken, "stop")
    for options in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        asked: Any = {"model": "support", "messages": say(CALL), **options}
        assert openai_client.chat.completions.create(**asked).choices[0].message.content == CALL


def test_a_loop_of_calls_and_results(openai_client: OpenAI, engine: FakeEngine) -> None:
    """The second turn, as an agent sends it: the call with null for its content, and the tool's result."""
    messages = say(CALL)
    first = (
        openai_client.chat.completions.create(model="support", messages=messages, tools=[WEATHER]).choices[0].message
    )
    call: Any = (first.tool_calls or [None])[0]
    messages += [
        first.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "say 4 degrees"}]},
    ]
    answer = openai_client.chat.completions.create(model="support", messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "4 degrees"
    sent = engine.submits[-1].chat
    assert [message.role for message in sent.messages] == ["user", "assistant", "tool"]
    assert [(made.id, made.name, made.arguments) for made in sent.messages[1].tool_calls] == [
        (call.id, "get_weather", '{"city": "Oslo"}')
    ]
    assert sent.messages[2].tool_call_id == call.id
    (tool,) = sent.tools
    assert json.loads(tool.parameters) == WEATHER["function"]["parameters"]


def test_what_a_request_says_of_tools_reaches_the_engine(openai_client: OpenAI, engine: FakeEngine) -> None:
    openai_client.chat.completions.create(
        model="support",
        messages=[{"role": "developer", "content": "be brief"}, *say("x")],
        tools=[WEATHER],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning_effort="low",
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    chat = engine.submits[-1].chat
    assert chat.single_tool_call and chat.tool_choice.mode == pb.ToolChoice.AUTO
    assert chat.messages[0].role == "system"
    assert (chat.reasoning_effort, json.loads(chat.template_kwargs)) == ("low", {"enable_thinking": False})


REASONING = ("reasoning", "reasoning_content")  # as vLLM has it, and its older name


def test_reasoning_stands_beside_the_answer(openai_client: OpenAI) -> None:
    messages = say("<think>\nHm, well.\n</think>\n\nYes.")
    message = openai_client.chat.completions.create(model="support", messages=messages).choices[0].message
    assert (message.content, message.model_extra) == ("Yes.", dict.fromkeys(REASONING, "Hm, well."))
    chunks = list(openai_client.chat.completions.create(model="support", messages=messages, stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    for name in REASONING:
        assert "".join((delta.model_extra or {}).get(name, "") for delta in deltas) == "Hm, well."
    assert "".join(delta.content or "" for delta in deltas) == "Yes."


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[1"}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "[]"}}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "x", "tool_call_id": "a"},
        {"role": "user", "content": "x", "reasoning_content": "y"},
        {"role": "user", "content": "x", "reasoning": "y"},
        {"role": "user", "content": "x", "refusal": "y"},
        {"role": "user", "content": [{"type": "refusal", "refusal": "y"}]},
    ],
)
def test_messages_that_contradict_themselves_are_refused(web: WebProcess, message: dict[str, Any]) -> None:
    body = {"model": "support", "messages": [*say("x"), message]}
    answer = httpx.post(
        f"{web.url}/v1/chat/completions", json=body, headers=web.tenants["acme"].bearer, trust_env=False
    )
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"].startswith("messages[1]")


def test_definitions_are_bounded(web: WebProcess) -> None:
    def refused(tools: list[Any]) -> bool:
        body = {"model": "support", "messages": say("x"), "tools": tools}
        url, bearer = f"{web.url}/v1/chat/completions", web.tenants["acme"].bearer
        return httpx.post(url, json=body, headers=bearer, trust_env=False, timeout=30).status_code == 400

    def named(name: str, **more: Any) -> Any:
        return {"type": "function", "function": {"name": name, **more}}

    assert refused([named(f"f{i}") for i in range(200)])
    assert refused([named("f"), named("f")])
    assert refused([named(f"f{i}", description="x" * 10_000) for i in range(30)])


def test_what_must_be_enforced_is_checked_at_the_door(openai_client: OpenAI, engine: FakeEngine) -> None:
    def ask(parameters: dict[str, Any], strict: bool, choice: Any) -> None:
        tool: Any = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": strict}}
        openai_client.chat.completions.create(model="support", messages=say("x"), tools=[tool], tool_choice=choice)

    unfit = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    with pytest.raises(BadRequestError) as caught:
        ask(unfit, True, "auto")
    body: Any = caught.value.body
    assert body["code"] == "invalid_constraint" and body["param"].startswith("tools[0].function.parameters"), body
    ask(unfit, False, "auto")  # is not enforced
    named = {"type": "function", "function": {"name": "f"}}
    ask({"type": "object", "properties": {"a": {"type": "string"}}}, False, named)
    chat = engine.submits[-1].chat
    assert (chat.tool_choice.mode, chat.tool_choice.name) == (pb.ToolChoice.NAMED, "f")
    with pytest.raises(BadRequestError):
        ask({"type": "string"}, False, "required")


async def test_calls_on_a_websocket(web: WebProcess) -> None:
    url = f"{web.url.replace('http', 'ws')}/ws/inference"
    async with connect(url, additional_headers=web.tenants["acme"].bearer, proxy=None) as socket:
        request = {"model": "support", "messages": say(f"<think>Hm.</think>Sure. {CALL}"), "tools": [WEATHER]}
        await socket.send(json.dumps({"type": "generate", "id": "a", "request": request}))
        frames: list[dict[str, Any]] = []
        while not frames or frames[-1]["type"] != "done":
            frames.append(await asyncio.wait_for(receive(socket), 20))
    deltas = [frame for frame in frames if frame["type"] == "delta"]
    assert "".join(frame["text"] for frame in deltas) == "Sure."
    assert "".join(frame.get("reasoning", "") for frame in deltas) == "Hm."
    (call,) = [call for frame in deltas for call in frame.get("tool_calls", [])]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    assert frames[-1]["finish_reason"] == ["tool_calls"]
