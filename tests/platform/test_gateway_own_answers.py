"""Whatever an endpoint answered, whole or streamed, cut anywhere, is a valid part of the next request."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import WebProcess

from control_plane.gateway.openai.call_arguments import complete_arguments

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
TOOL = {"type": "function", "name": "f", "parameters": PARAMETERS}
CALL = '<tool_call>\n{"name": "f", "arguments": {"city": "Os lo \\"x\\"", "days": [1, 2]}}\n</tool_call>'
PROMPTS = {
    "text": "say Yes it is.",
    "nothing": "say ",
    "reasoning": "say <think>\nHm, well.\n</think>\n\nYes.",
    "a call": f"say {CALL}",
    "text and calls": f"say Let me see. {CALL} {CALL}",
    "all of it": f"say <think>\nHm.\n</think>\n\nSo: {CALL}",
}
CUTS = (1, 2, 4, 6, 9, 100)
FULL = json.dumps({"note": 'Os"lo } \u00e9 \U0001f44d \\ \n', "n": [1, -2.5e3, True, None, {"a": {}}], "x": {"y": "z"}})


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True, steps_per_second=1000)


@pytest.fixture
def client(web: WebProcess) -> Iterator[httpx.Client]:
    headers = web.tenants["acme"].bearer
    with httpx.Client(base_url=web.url, headers=headers, trust_env=False, timeout=30) as client:
        yield client


def post(client: httpx.Client, path: str, **body: Any) -> Any:
    answer = client.post(f"/v1/{path}", json={"model": "support", **body})
    assert answer.status_code == 200, (body, answer.text)
    if not body.get("stream"):
        return answer.json()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def chat(client: httpx.Client, prompt: str, cut: int, *, streamed: bool) -> dict[str, Any]:
    """The assistant's message, put together by a client where it was streamed."""
    body = {"messages": [{"role": "user", "content": prompt}], "tools": [CHAT_TOOL], "max_tokens": cut}
    if not streamed:
        message: dict[str, Any] = post(client, "chat/completions", **body)["choices"][0]["message"]
        return message
    message = {}
    for chunk in post(client, "chat/completions", stream=True, **body):
        for name, value in chunk["choices"][0]["delta"].items():
            if name == "tool_calls":
                for call in value:
                    calls = message.setdefault("tool_calls", [])
                    if call["index"] == len(calls):
                        calls.append(call)
                    else:
                        calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            elif isinstance(value, str) and name != "role":
                message[name] = message.get(name, "") + value
            else:
                message[name] = value
    return message


def response(client: httpx.Client, prompt: str, cut: int, *, streamed: bool, store: bool = False) -> dict[str, Any]:
    body = {"input": prompt, "tools": [TOOL], "max_output_tokens": cut, "store": store}
    if not streamed:
        answer: dict[str, Any] = post(client, "responses", **body)
        return answer
    final = post(client, "responses", stream=True, **body)[-1]["response"]
    return dict(final)


def as_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A chat's message as items of a response."""
    items: list[dict[str, Any]] = []
    if thought := message.get("reasoning"):
        items.append({"type": "reasoning", "content": [{"type": "reasoning_text", "text": thought}]})
    if message.get("content"):
        items.append({"role": "assistant", "content": message["content"]})
    return items + [
        {"type": "function_call", "call_id": call["id"], **call["function"]} for call in message.get("tool_calls") or ()
    ]


def as_message(output: list[dict[str, Any]]) -> dict[str, Any]:
    """A response's items as the message of a chat."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    for item in output:
        if item["type"] == "reasoning":
            message["reasoning"] = "".join(part["text"] for part in item["content"])
        elif item["type"] == "message":
            message["content"] = "".join(part["text"] for part in item["content"])
        else:
            function = {"name": item["name"], "arguments": item["arguments"]}
            message.setdefault("tool_calls", []).append(
                {"id": item["call_id"], "type": "function", "function": function}
            )
    return message


def go_on(client: httpx.Client, engine: FakeEngine, prompt: str, message: dict[str, Any], items: list[Any]) -> None:
    """Both endpoints take it, and the engine gets the same from both: calls whose arguments are objects."""
    user, thanks = {"role": "user", "content": prompt}, {"role": "user", "content": "say ok"}
    calls = message.get("tool_calls") or []
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "cut off"} for call in calls]
    outputs = [{"type": "function_call_output", "call_id": call["id"], "output": "cut off"} for call in calls]
    engine.submits.clear()
    post(client, "chat/completions", messages=[user, message, *results, thanks], tools=[CHAT_TOOL], max_tokens=1)
    post(client, "responses", input=[user, *items, *outputs, thanks], tools=[TOOL], max_output_tokens=1)
    first, second = ([sent for sent in submit.chat.messages if sent.content or sent.tool_calls]
                     for submit in engine.submits)  # fmt: skip
    assert first == second
    for call in itertools.chain.from_iterable(sent.tool_calls for sent in first):
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", PROMPTS)
def test_an_answer_goes_back_in_at_both_endpoints(
    client: httpx.Client, engine: FakeEngine, kind: str, streamed: bool
) -> None:
    for cut in CUTS:
        message = chat(client, PROMPTS[kind], cut, streamed=streamed)
        go_on(client, engine, "x", message, as_items(message))
        output = response(client, PROMPTS[kind], cut, streamed=streamed)["output"]
        go_on(client, engine, "x", as_message(output), output)


@pytest.mark.parametrize("cut", range(0, len(FULL), 7))
def test_a_call_that_was_cut_off_goes_back_in(client: httpx.Client, engine: FakeEngine, cut: int) -> None:
    """Where tools are enforced, a call's arguments are passed on as they are written, and end where the answer does."""
    function = {"name": "f", "arguments": FULL[:cut]}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }
    go_on(client, engine, "x", message, as_items(message))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stored_response_goes_on(client: httpx.Client, engine: FakeEngine, streamed: bool) -> None:
    for kind, cut in itertools.product(PROMPTS, (2, 5, 100)):
        first = response(client, PROMPTS[kind], cut, streamed=streamed, store=True)
        calls = [item for item in first["output"] if item["type"] == "function_call"]
        outputs = [{"type": "function_call_output", "call_id": call["call_id"], "output": "no"} for call in calls]
        more = [*outputs, {"role": "user", "content": "say ok"}]
        engine.submits.clear()
        post(client, "responses", previous_response_id=first["id"], input=more)
        user = {"role": "user", "content": PROMPTS[kind]}
        post(client, "responses", input=[user, *first["output"], *more])
        stored, explicit = (submit.chat.messages for submit in engine.submits)
        assert stored == explicit, kind


def test_token_ids_of_an_answer_are_a_prompt(client: httpx.Client, engine: FakeEngine) -> None:
    for path, body in (
        ("chat/completions", {"messages": [{"role": "user", "content": "say one two three"}]}),
        ("completions", {"prompt": "say one two three"}),
    ):
        answer = post(client, path, return_token_ids=True, **body)
        choice = answer["choices"][0]
        ids = (choice.get("prompt_token_ids") or answer.get("prompt_token_ids")) + choice["token_ids"]
        post(client, "completions", prompt=ids, max_tokens=1)
        assert list(engine.submits[-1].token_ids.ids) == ids


def test_what_other_servers_answer_goes_in_too(client: httpx.Client, engine: FakeEngine) -> None:
    user = {"role": "user", "content": "x"}
    for said in (
        {"content": None, "refusal": "No."},
        {"content": [{"type": "refusal", "refusal": "No."}]},
        {"content": "No.", "refusal": None, "reasoning": "Hm."},
        {"content": "No.", "reasoning_content": "Hm."},
        {"content": "No.", "reasoning": "Hm.", "reasoning_content": "Hm."},
    ):
        engine.submits.clear()
        post(client, "chat/completions", messages=[user, {"role": "assistant", **said}, user], max_tokens=1)
        sent = engine.submits[-1].chat.messages[1]
        reasoned = any(name.startswith("reasoning") for name in said)
        assert (sent.content, sent.reasoning) == ("No.", "Hm." if reasoned else ""), said
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    post(client, "responses", input=[user, refusal, user], max_output_tokens=1)
    assert engine.submits[-1].chat.messages[1].content == "No."


def test_arguments_are_completed_wherever_they_are_cut() -> None:
    for text in (FULL, json.dumps(json.loads(FULL), ensure_ascii=False, indent=2)):
        for end in range(len(text)):
            completed = complete_arguments(text[:end])
            assert completed is not None, text[:end]
            assert json.loads(completed).items() <= json.loads(FULL).items() or end < len(text)
        assert complete_arguments(text) == text
    assert complete_arguments('{"a": "Os') == '{"a": "Os"}'
    assert complete_arguments('{"a": "x", "b": [1, {"c": tr') == '{"a": "x", "b": [1, {}]}'
    for bad in ("[1", "[]", "x", "{x", '{"a" b', "{1", "}", '{"a":1}}', '{"a":tru,', "nul", '"a', '{"a":]', "{" * 99):
        assert complete_arguments(bad) is None, bad
