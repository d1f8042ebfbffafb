"""Keywords of schemas that no grammar enforces: finished answers are checked, and what they violate is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI

from control_plane.gateway.anthropic.response_models import MessageObject
from control_plane.gateway.openai.response_models import ChatCompletionResponse, CompletionResponse, ResponseObject

TAGS: dict[str, Any] = {
    "type": "object",
    "properties": {"tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
    "required": ["tags"],
    "additionalProperties": False,
}
GOOD, TWICE = 'say {"tags": ["a", "b"]}', 'say {"tags": ["a", "a"]}'
VIOLATION = {"path": "tags", "keyword": "properties.tags.uniqueItems", "message": "An item occurs twice."}
FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "tags", "schema": TAGS, "strict": True}}
CHECKED = "X-Lorikeet-Checked-At-End"


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    """It generates whatever the prompt says: the answer of a real engine obeys all but the checked keywords."""
    return Behaviour(steps_per_second=2000, known_digests_only=True)


@pytest.fixture(scope="module")
def http(web: WebProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=web.url, timeout=30, trust_env=False, headers=web.tenants["acme"].bearer) as client:
        yield client


def chat(http: httpx.Client, prompt: str, **more: Any) -> httpx.Response:
    body = {"model": "support", "messages": [{"role": "user", "content": prompt}], "response_format": FORMAT, **more}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def console(web: WebProcess) -> Console:
    return Console(web, web.tenants["acme"])


def row(console: Console, answer: httpx.Response) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []

    def is_there() -> bool:
        params = {"id": answer.headers["X-Request-Id"]}
        rows[:] = console.http.get("/api/tenants/acme/requests", params=params).json()["results"]
        return bool(rows)

    eventually(is_there, what="its row")
    return rows[0]


def test_a_violation_is_named(http: httpx.Client, console: Console) -> None:
    good, bad = chat(http, GOOD), chat(http, TWICE)
    assert good.headers[CHECKED] == "response_format.json_schema.schema.properties.tags.uniqueItems"
    assert "schema_violations" not in good.text
    ChatCompletionResponse.model_validate(bad.json())
    assert bad.json()["choices"][0]["schema_violations"] == [VIOLATION]
    for answer, violated in ((good, []), (bad, ["properties.tags.uniqueItems"])):
        shown = row(console, answer)
        assert (shown["schema_violations"], shown["outcome"]) == (violated, "finished")


@pytest.mark.parametrize("usage", [False, True])
def test_a_violation_is_in_the_last_chunk_of_its_choice(http: httpx.Client, console: Console, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    bad = chat(http, TWICE, stream=True, n=2, **options)
    assert bad.headers[CHECKED]
    ends = [choice for event in events(bad) for choice in event["choices"] if choice["finish_reason"]]
    assert [(end["index"], end["schema_violations"]) for end in ends] == [(0, [VIOLATION]), (1, [VIOLATION])]
    assert "schema_violations" not in chat(http, GOOD, stream=True).text
    assert row(console, bad)["schema_violations"] == ["properties.tags.uniqueItems"]


def test_the_official_client_hands_it_on(openai_client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": TWICE}]
    answer = openai_client.chat.completions.create(model="support", messages=messages, response_format=FORMAT)  # type: ignore[call-overload]
    assert answer.choices[0].model_extra["schema_violations"] == [VIOLATION]


def test_answers_that_are_not_whole(http: httpx.Client) -> None:
    """An answer that its limit cuts off is incomplete, and not judged; one that a stop string cuts off says so."""
    assert "schema_violations" not in chat(http, TWICE, max_tokens=2).text
    [cut] = chat(http, TWICE, stop=['"a"]']).json()["choices"][0]["schema_violations"]
    assert (cut["path"], cut["keyword"]) == ("", "") and "could not be checked" in cut["message"]


def test_without_strict_it_is_checked_too(http: httpx.Client) -> None:
    schema = {"oneOf": [TAGS, {"required": ["tags"]}], "properties": {"when": {"type": "string", "format": "moon"}}}
    lenient = {"type": "json_schema", "json_schema": {"name": "tags", "schema": schema}}
    answer = chat(http, GOOD, response_format=lenient)
    assert answer.headers["X-Lorikeet-Ignored"] == "format[moon]"
    [violation] = answer.json()["choices"][0]["schema_violations"]
    assert (violation["path"], violation["keyword"]) == ("", "oneOf")


def test_formats_that_are_annotations_are_named(http: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"a": {"format": "moon"}, "b": {"format": "é\n" * 60}}}
    strict = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    answer = chat(http, "say {}", response_format=strict, chat_id="1", stream=True)
    named = answer.headers["X-Lorikeet-Ignored"].split(", ")
    assert named[:2] == ["chat_id", "format[moon]"] and len(named) == 3
    assert CHECKED not in answer.headers


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_of_calls(http: httpx.Client, stream: bool) -> None:
    function = {"name": "tag", "parameters": TAGS, "strict": True}
    call = json.dumps({"name": "tag", "arguments": {"tags": ["a", "a"]}})
    answer = chat(http, f"say <tool_call>\n{call}\n</tool_call>", tools=[{"type": "function", "function": function}],
                  response_format=None, stream=stream)  # fmt: skip
    choices = [choice for event in (events(answer) if stream else [answer.json()]) for choice in event["choices"]]
    [violations] = [choice["schema_violations"] for choice in choices if "schema_violations" in choice]
    assert violations == [{**VIOLATION, "path": "tool_calls[0].function.arguments.tags"}]


@pytest.mark.parametrize("stream", [False, True])
def test_other_doors(http: httpx.Client, web: WebProcess, stream: bool) -> None:
    text = {"model": "support", "prompt": [TWICE, GOOD], "guided_json": TAGS, "max_tokens": 50, "stream": stream}
    answer = http.post("/v1/completions", json=text)
    whole = events(answer) if stream else [answer.json()]
    if not stream:
        CompletionResponse.model_validate(answer.json())
    ends = {choice["index"]: choice for event in whole for choice in event["choices"] if choice["finish_reason"]}
    assert ends[0]["schema_violations"] == [VIOLATION] and "schema_violations" not in ends[1]

    response = {"model": "support", "input": TWICE, "stream": stream,
                "text": {"format": {"type": "json_schema", "name": "a", "schema": TAGS, "strict": True}}}  # fmt: skip
    answer = http.post("/v1/responses", json=response)
    body = events(answer)[-1]["response"] if stream else answer.json()
    assert body["schema_violations"] == [VIOLATION]
    ResponseObject.model_validate(body)
    assert http.get(f"/v1/responses/{body['id']}").json()["schema_violations"] == [VIOLATION]

    message = {"model": "support", "max_tokens": 50, "messages": [{"role": "user", "content": TWICE}], "stream": stream,
               "output_config": {"format": {"type": "json_schema", "schema": TAGS}}}  # fmt: skip
    answer = http.post("/v1/messages", json=message)
    last = events(answer)[-2] if stream else answer.json()
    assert last["schema_violations"] == [VIOLATION]
    if not stream:
        MessageObject.model_validate(last)
    with anthropic.Anthropic(base_url=web.url, api_key=web.tenants["acme"].key) as client:
        made = client.messages.create(**{**message, "stream": False})
        assert made.model_extra["schema_violations"] == [VIOLATION]  # type: ignore[index]


def test_a_socket(web: WebProcess) -> None:
    from websockets.sync.client import connect

    url = web.url.replace("http", "ws") + "/ws/inference"
    with connect(url, additional_headers=web.tenants["acme"].bearer, proxy=None) as socket:
        request = {"model": "support", "messages": [{"role": "user", "content": TWICE}], "response_format": FORMAT}
        socket.send(json.dumps({"type": "generate", "id": "a", "request": request}))
        frames = []
        while not frames or frames[-1]["type"] not in ("done", "error"):
            frames.append(json.loads(socket.recv(timeout=20)))
    assert frames[-1]["schema_violations"] == [{"choice": 0, **VIOLATION}]


def test_leaving_before_the_check_is_an_abort(http: httpx.Client, console: Console) -> None:
    body = {"model": "support", "messages": [{"role": "user", "content": "words 4000"}], "response_format": FORMAT,
            "stream": True}  # fmt: skip
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())
    assert row(console, answer)["outcome"] == "aborted"
