"""`/v1/responses`: the official OpenAI client against a real web process and a scripted engine."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI
from openai.types.responses.response_item import ResponseItem
from pydantic import BaseModel, TypeAdapter

from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai.response_models import ResponseObject
from control_plane.gateway.responses.request import in_responses_terms
from control_plane.gateway.responses.tools import function_name

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": None,
}
GOOD: dict[str, Any] = {"role": "user", "content": "x"}
CALL = 'say <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True, steps_per_second=1000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_RESPONSES_MAX_STORED": "5"}


def roles(engine: FakeEngine) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in engine.submits[-1].chat.messages]


def test_create(openai_client: OpenAI, engine: FakeEngine, web: WebProcess) -> None:
    answer = openai_client.responses.create(
        model="support", input="say hello there", instructions="Be kind.", metadata={"a": "b"}, max_output_tokens=50
    )
    assert answer.id.startswith("resp_")
    assert (answer.object, answer.status, answer.output_text) == ("response", "completed", "hello there")
    assert (answer.instructions, answer.metadata, answer.max_output_tokens) == ("Be kind.", {"a": "b"}, 50)
    assert answer.usage is not None
    assert (answer.usage.output_tokens, answer.usage.total_tokens) == (2, answer.usage.input_tokens + 2)
    assert roles(engine) == [("system", "Be kind."), ("user", "say hello there")]
    body = {
        "model": "support",
        "input": "say x",
        "text": {"format": {"type": "text"}},
        "tools": [WEATHER],
        "cache_salt": "s",
    }
    headers = web.tenants["acme"].bearer
    told = httpx.post(f"{web.url}/v1/responses", json=body, headers=headers, trust_env=False, timeout=30)
    ResponseObject.model_validate(told.json())
    assert engine.submits[-1].cache_salt == "s"
    cut = openai_client.responses.create(model="support", input="words 50", max_output_tokens=3)
    assert (cut.status, cut.incomplete_details and cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_conversation_as_items(openai_client: OpenAI, engine: FakeEngine) -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "What is the weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "c1",
            "name": "weather",
            "arguments": "{}",
            "status": "completed",
        },
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Both.", "annotations": []}],
        },
        {"role": "user", "content": "say thanks"},
    ]
    answer = openai_client.responses.create(model="support", input=items, tools=[WEATHER])
    assert answer.output_text == "thanks"
    sent = engine.submits[-1].chat.messages
    assert [message.role for message in sent] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert [call.id for call in sent[1].tool_calls] == ["c1", "c2"]
    assert (sent[1].reasoning, sent[3].content) == ("Hm.", "rain")


def test_stream(openai_client: OpenAI, engine: FakeEngine) -> None:
    events = list(openai_client.responses.create(model="support", input="say one two three", stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "one two three"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last: Any = events[-1]
    assert last.response.output_text == "one two three"
    assert last.response.usage.output_tokens == 3


def test_the_clients_own_stream_helper(openai_client: OpenAI, engine: FakeEngine) -> None:
    with openai_client.responses.stream(model="support", input="say a b c") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == "a b c"


def test_a_tool_is_called(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.responses.create(model="support", input=CALL, tools=[WEATHER], tool_choice="auto")
    [call] = [item for item in answer.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Rome"})
    assert answer.output_text == ""
    with openai_client.responses.stream(model="support", input=CALL, tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds and "response.output_text.delta" not in kinds
    [again] = [item for item in final.output if item.type == "function_call"]
    assert (again.name, json.loads(again.arguments)) == ("weather", {"city": "Rome"})


# As Codex sends them: fields of its own, hosted tools, a namespace, and a tool with a grammar.
PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
CODEX: dict[str, Any] = {
    "model": "support",
    "instructions": "You are Codex.",
    "tools": [
        {**WEATHER, "name": "exec_command", "strict": False},
        PATCH,
        {
            "type": "namespace",
            "name": "mcp__files",
            "description": "Files.",
            "tools": [{**WEATHER, "name": "read"}, PATCH],
        },
        {"type": "web_search", "external_web_access": False},
        {"type": "tool_search", "execution": "client"},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "c1",
    "client_metadata": {"x-codex-installation-id": "i"},
}


def calling(name: str, **arguments: Any) -> str:
    return f"say <tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def codex(web: WebProcess, items: Any, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any], httpx.Headers]:
    """The events of a request of Codex, the last one's response, and the headers."""
    answer = httpx.post(f"{web.url}/v1/responses", json={**CODEX, "input": items, **more},
                        headers=web.tenants["acme"].bearer, trust_env=False, timeout=30)  # fmt: skip
    assert answer.status_code == 200, answer.text
    events = [json.loads(part.split("data: ", 1)[1]) for part in answer.text.strip().split("\n\n")]
    return events, events[-1]["response"], answer.headers


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def test_requests_of_codex(web: WebProcess, engine: FakeEngine) -> None:
    _, response, headers = codex(web, [message("say done")])
    assert response["output"][0]["content"][0]["text"] == "done"
    assert set(headers["X-Lorikeet-Ignored"].split(", ")) == {
        "prompt_cache_key", "client_metadata", "tools[web_search]", "tools[tool_search]"
    }  # fmt: skip
    assert [tool["type"] for tool in response["tools"]] == ["function", "custom", "namespace"]
    tools = {tool.name: tool for tool in engine.submits[-1].chat.tools}
    assert list(tools) == ["exec_command", "apply_patch", "mcp__files__read", "mcp__files__apply_patch"]
    assert tools["apply_patch"].description.endswith("lark grammar:\nstart: /.+/")
    assert json.loads(tools["apply_patch"].parameters)["required"] == ["input"]
    assert tools["mcp__files__read"].description == "Files.\n\nOf a city."


@pytest.mark.parametrize("namespace", [None, "mcp__files"])
def test_a_custom_tool_goes_round(web: WebProcess, engine: FakeEngine, namespace: str | None) -> None:
    function = "mcp__files__apply_patch" if namespace else "apply_patch"
    events, response, _ = codex(web, [message(calling(function, input='*** "a"\n+b'))])
    [item] = response["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", '*** "a"\n+b')
    assert item.get("namespace") == namespace
    kinds = [event["type"] for event in events]
    assert [kind for kind in kinds if "call" in kind or "item" in kind] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]
    output = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Applied."}
    _, response, _ = codex(web, [message("Edit."), item, output, message("say done")])
    assert response["output"][0]["content"][0]["text"] == "done"
    sent = engine.submits[-1].chat.messages[2:4]
    assert [each.role for each in sent] == ["assistant", "tool"]
    call = sent[0].tool_calls[0]
    assert (call.name, json.loads(call.arguments)) == (function, {"input": '*** "a"\n+b'})
    assert (sent[1].tool_call_id, sent[1].content) == (item["call_id"], "Applied.")


def test_a_function_of_a_namespace_goes_round(web: WebProcess, engine: FakeEngine) -> None:
    _, response, _ = codex(web, [message(calling("mcp__files__read", city="Rome"))])
    [item] = response["output"]
    assert (item["type"], item["namespace"], item["name"]) == ("function_call", "mcp__files", "read")
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "text"}
    codex(web, [message("Read."), item, output, message("say done")])
    assert engine.submits[-1].chat.messages[2].tool_calls[0].name == "mcp__files__read"
    codex(web, [message("say x")], tool_choice={"type": "function", "namespace": "mcp__files", "name": "read"})
    assert engine.submits[-1].chat.tool_choice.name == "mcp__files__read"
    codex(web, [message("say x")], tool_choice={"type": "custom", "name": "apply_patch"})
    assert engine.submits[-1].chat.tool_choice.name == "apply_patch"


def test_the_official_client_reads_custom_calls(openai_client: OpenAI) -> None:
    prompt = calling("apply_patch", input="*** Begin")
    with openai_client.responses.stream(model="support", input=prompt, tools=[PATCH]) as stream:
        for _ in stream:
            pass
        [item] = stream.get_final_response().output
    assert item.type == "custom_tool_call" and item.input == "*** Begin"


@pytest.mark.parametrize(
    ("namespace", "name", "function"),
    [
        (None, "f", "f"),
        ("crm", "find", "crm__find"),
        ("mcp__a b__", "f", "mcp__a_b__f"),
        ("n" * 80, "f", ""),
    ],
)
def test_names_of_functions_in_namespaces(namespace: str | None, name: str, function: str) -> None:
    assert len(function_name(namespace, name)) <= 64
    if len(namespace or "") < 64:
        assert function_name(namespace, name) == function
    else:
        assert function_name(namespace, name) != function_name(namespace, "g")


def test_reasoning_is_an_item(openai_client: OpenAI, engine: FakeEngine) -> None:
    prompt = "say <think>Let me see.</think>Yes."
    answer = openai_client.responses.create(model="support", input=prompt)
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output_text == "Yes."
    events = list(openai_client.responses.create(model="support", input=prompt, stream=True))
    thought = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert thought == "Let me see."
    added = [event.output_index for event in events if event.type == "response.output_item.added"]
    assert added == [0, 1]


def test_structured_text(openai_client: OpenAI, engine: FakeEngine) -> None:
    class Answer(BaseModel):
        city: str

    parsed = openai_client.responses.parse(model="support", input='say {"city": "Rome"}', text_format=Answer)
    assert parsed.output_parsed == Answer(city="Rome")
    assert engine.submits[-1].HasField("constraint")


def test_logprobs(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.responses.create(
        model="support", input="say one two", include=["message.output_text.logprobs"], top_logprobs=2
    )
    part: Any = answer.output[0]
    logprobs = part.content[0].logprobs
    assert [entry.token for entry in logprobs] == ["one", " two"]
    assert len(logprobs[0].top_logprobs) == 2


# -- stored conversations ------------------------------------------------------------------------------


STORED = "SELECT count(*) AS n FROM conversations_storedresponse"


def assert_not_stored(client: OpenAI, answer: Any) -> None:
    assert answer.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="support", input="say y", previous_response_id=answer.id)
    assert unknown.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):  # a text that PostgreSQL does not take
        client.responses.create(model="support", input="say y", previous_response_id="resp_\0")


def test_a_response_is_stored_unless_its_request_says_otherwise(openai_client: OpenAI, web: WebProcess) -> None:
    answer = openai_client.responses.create(model="support", input="say x")
    assert answer.store is True
    assert openai_client.responses.retrieve(answer.id).output_text == "x"
    before = web.query(STORED)[0]["n"]
    assert_not_stored(openai_client, openai_client.responses.create(model="support", input="say x", store=False))
    assert web.query(STORED)[0]["n"] == before


def test_a_tenant_can_have_none_stored(openai_client: OpenAI, web: WebProcess) -> None:
    console, path = Console(web, web.tenants["acme"]), "/api/tenants/acme/api-settings"
    default = console.http.get(path).json()
    assert console.http.put(path, json={**default, "never_store_responses": True}).status_code == 200
    try:

        def stored() -> Any:
            return openai_client.responses.create(model="support", input="say x", store=True)

        eventually(lambda: stored().store is False, what="the setting")
        assert_not_stored(openai_client, stored())
        raw = openai_client.responses.with_raw_response.create(model="support", input="say x", store=True)
        assert raw.headers["X-Lorikeet-Ignored"] == "store"
    finally:
        console.http.put(path, json=default)
    eventually(lambda: stored().store is True, what="the default again")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_stored_conversation_goes_on(openai_client: OpenAI, engine: FakeEngine, streamed: bool) -> None:
    def ask(text: str, **more: Any) -> Any:
        if not streamed:
            return openai_client.responses.create(model="support", input=text, store=True, **more)
        last: Any = list(openai_client.responses.create(model="support", input=text, store=True, stream=True, **more))[
            -1
        ]
        return last.response

    first = ask("say one", instructions="Count.")
    second = ask("say two", previous_response_id=first.id)
    assert roles(engine) == [("user", "say one"), ("assistant", "one"), ("user", "say two")]
    third = ask("say three", previous_response_id=second.id)
    assert [content for _, content in roles(engine)] == ["say one", "one", "say two", "two", "say three"]
    assert openai_client.responses.retrieve(third.id).output_text == "three"
    openai_client.responses.delete(third.id)
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(third.id)


def test_a_stored_conversation_is_its_tenants(openai_client: OpenAI, web: WebProcess) -> None:
    """Another tenant's is as unknown as one that never was."""
    name = openai_client.responses.create(model="support", input="say secret", store=True).id
    with httpx.Client(base_url=web.url, trust_env=False, headers=web.tenants["globex"].bearer) as http:
        missing = "resp_" + "0" * 22
        for method in ("GET", "DELETE"):
            answer = http.request(method, f"/v1/responses/{name}")
            unknown = http.request(method, f"/v1/responses/{missing}")
            assert answer.status_code == unknown.status_code == 404
            assert answer.text.replace(name, "…") == unknown.text.replace(missing, "…")
        body = {"model": "fake-base", "input": "x", "previous_response_id": name}
        assert http.post("/v1/responses", json=body).status_code == 404
    assert openai_client.responses.retrieve(name).output_text == "secret"


def test_a_tenant_keeps_a_bounded_number(openai_client: OpenAI, web: WebProcess) -> None:
    for _ in range(8):
        openai_client.responses.create(model="support", input="say x", store=True)
    kept = "SELECT count(*) AS n FROM conversations_storedresponse"
    eventually(lambda: web.query(kept)[0]["n"] == 5, what="the oldest to go")


def test_the_oldest_messages_are_dropped_on_request(openai_client: OpenAI, engine: FakeEngine) -> None:
    """The context is 4,096 tokens, one a word; a quarter is kept free for the answer."""
    turns: Any = [
        part
        for number in range(8)
        for part in (
            {"role": "user", "content": f"n{number} " + "a " * 700},
            {"type": "function_call", "call_id": f"c{number}", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": "sunny"},
        )
    ]
    items = [*turns, {"role": "user", "content": "say it fits"}]
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.responses.create(model="support", input=items, tools=[WEATHER])
    assert refused.value.code == "context_length_exceeded"
    answer = openai_client.responses.create(
        model="support", input=items, tools=[WEATHER], truncation="auto", instructions="Be kind."
    )
    assert (answer.output_text, answer.truncation) == ("it fits", "auto")
    sent = engine.submits[-1].chat.messages
    kept = [message.content.split()[0] for message in sent if message.role == "user"]
    assert (sent[0].content, sent[1].role, kept) == ("Be kind.", "user", ["n4", "n5", "n6", "n7", "say"])
    short = openai_client.responses.create(model="support", input="say all", truncation="auto")
    assert short.output_text == "all" and len(engine.submits[-1].chat.messages) == 1


# -- items ---------------------------------------------------------------------------------------------


STORED_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
TALK: Any = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": [{"type": "input_text", "text": "What is the weather?"}]},
    {"type": "reasoning", "id": "rs_mine", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "+a"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Applied."}]},
    {"role": "assistant", "content": "Both."},
    {"role": "user", "content": "say thanks"},
]


def create(client: OpenAI, items: Any, **more: Any) -> Any:
    if not more.pop("streamed", False):
        return client.responses.create(model="support", input=items, **more)
    last: Any = list(client.responses.create(model="support", input=items, stream=True, **more))[-1]
    return last.response


@pytest.mark.parametrize("streamed", [False, True])
def test_input_items_are_listed(openai_client: OpenAI, streamed: bool) -> None:
    answer = create(openai_client, TALK, streamed=streamed)
    rows = list(openai_client.responses.input_items.list(answer.id, order="asc", limit=4))  # reads every page
    assert [row.type for row in rows] == [item.get("type", "message") for item in TALK]
    assert len({row.id for row in rows}) == len(rows) and rows[2].id == "rs_mine"
    for row in rows:
        STORED_ITEM.validate_python(row.model_dump())  # the client itself does not check
    texts = [row.content[0].text for row in rows if row.type == "message"]
    assert texts == ["Be kind.", "What is the weather?", "Both.", "say thanks"]
    assert (rows[4].output, rows[5].input) == ("sunny", "+a")
    newest = list(openai_client.responses.input_items.list(answer.id, include=["message.output_text.logprobs"]))
    assert [row.id for row in newest] == [row.id for row in rows][::-1]
    page = openai_client.responses.input_items.list(answer.id, limit=2, order="asc", after=rows[6].id)
    assert ([row.id for row in page.data], page.has_more) == ([rows[7].id, rows[8].id], False)


def test_input_items_include_the_conversation_before(openai_client: OpenAI) -> None:
    first = create(openai_client, "say one")
    second = create(openai_client, "say two", previous_response_id=first.id)
    third = create(openai_client, [{**GOOD, "id": first.output[0].id}], previous_response_id=second.id)
    rows = list(openai_client.responses.input_items.list(third.id, order="asc"))
    assert [row.content[0].text for row in rows] == ["say one", "one", "say two", "two", "x"]
    assert (rows[1].id, rows[3].id) == (first.output[0].id, second.output[0].id)
    assert rows[4].id not in (first.output[0].id, first.id)  # one that the conversation has is replaced
    assert rows[:3] == list(openai_client.responses.input_items.list(second.id, order="asc"))
    openai_client.responses.delete(first.id)
    assert len(list(openai_client.responses.input_items.list(third.id))) == 5
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.input_items.list(first.id)


@pytest.mark.parametrize(
    ("query", "param"), [({"limit": 0}, "limit"), ({"limit": 101}, "limit"), ({"order": "up"}, "order"),
                         ({"after": "msg_x"}, "after"), ({"before": "msg_x"}, "before")]
)  # fmt: skip
def test_pages_that_are_not_there(openai_client: OpenAI, query: dict[str, Any], param: str) -> None:
    answer = create(openai_client, "say x")
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.responses.input_items.list(answer.id, extra_query=query)
    assert refused.value.param == param


@pytest.mark.parametrize("streamed", [False, True])
def test_items_are_referred_to(openai_client: OpenAI, engine: FakeEngine, streamed: bool) -> None:
    first = create(openai_client, CALL, tools=[WEATHER], streamed=streamed)
    [call] = first.output
    [asked] = openai_client.responses.input_items.list(first.id)
    items = [
        {"type": "item_reference", "id": asked.id},
        {"id": call.id},  # the type may be absent
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        {"role": "user", "content": "say fine"},
    ]
    second = create(openai_client, items, streamed=streamed)
    assert second.output_text == "fine"
    sent = engine.submits[-1].chat.messages
    assert [message.role for message in sent] == ["user", "assistant", "tool", "user"]
    assert (sent[0].content, sent[1].tool_calls[0].id) == (CALL, call.call_id)
    rows = list(openai_client.responses.input_items.list(second.id, order="asc"))
    assert [row.id for row in rows][:2] == [asked.id, call.id]
    for twice in (
        {"input": items[:1], "previous_response_id": first.id},
        {"input": [*items[:1], *items[:1]]},
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.responses.create(model="support", **twice)
        assert refused.value.code == "duplicate_item"


def test_items_that_are_not_there(openai_client: OpenAI, web: WebProcess) -> None:
    kept, unstored = create(openai_client, "say secret"), create(openai_client, "say x", store=False)
    deleted, expired = create(openai_client, "say x"), create(openai_client, "say x")
    [asked] = openai_client.responses.input_items.list(kept.id)
    openai_client.responses.delete(deleted.id)
    sql = f"UPDATE conversations_storedresponse SET expires_at = '2020-01-01' WHERE name = '{expired.id}' RETURNING id"
    assert len(web.query(sql)) == 1
    for response in (unstored, deleted, expired):
        with pytest.raises(openai.NotFoundError):
            openai_client.responses.input_items.list(response.id)
    gone = [unstored.output[0].id, deleted.output[0].id, expired.output[0].id, "msg_" + "0" * 22, "msg_1", "x y"]
    for name in [*gone, asked.id.replace("_i0", "_i7")]:
        with pytest.raises(openai.NotFoundError) as missing:
            create(openai_client, [GOOD, {"type": "item_reference", "id": name}])
        assert (missing.value.code, missing.value.param) == ("item_not_found", "input[1]"), name
    with httpx.Client(base_url=web.url, trust_env=False, headers=web.tenants["globex"].bearer) as http:
        for item in (asked.id, kept.output[0].id):
            body = {"model": "fake-base", "input": [{"type": "item_reference", "id": item}]}
            for path in ("", "/input_tokens", "/compact"):
                assert http.post(f"/v1/responses{path}", json=body).json()["error"]["code"] == "item_not_found"
        foreign = http.get(f"/v1/responses/{kept.id}/input_items")
        unknown = http.get(f"/v1/responses/resp_{'0' * 22}/input_items")
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.text.replace(kept.id, "") == unknown.text.replace(f"resp_{'0' * 22}", "")


def test_many_references_are_bounded(openai_client: OpenAI) -> None:
    items: Any = [{"type": "item_reference", "id": f"msg_{index:022}"} for index in range(513)]
    with pytest.raises(openai.BadRequestError) as refused:
        create(openai_client, items)
    assert "512" in refused.value.message


# -- counting and compaction -----------------------------------------------------------------------------


def test_input_tokens_are_those_of_the_request(openai_client: OpenAI, web: WebProcess) -> None:
    first = create(openai_client, "say hello there", instructions="Be kind.")
    assert first.usage
    count = openai_client.responses.input_tokens.count(
        model="support", input="say hello there", instructions="Be kind."
    )
    assert (count.object, count.input_tokens) == ("response.input_tokens", first.usage.input_tokens)
    more: Any = {"previous_response_id": first.id, "tools": [WEATHER], "reasoning": {"effort": "low"}}
    counted = openai_client.responses.input_tokens.count(model="support", input="say more", truncation="auto", **more)
    assert counted.input_tokens == create(openai_client, "say more", **more).usage.input_tokens
    alone = openai_client.responses.input_tokens.count(model="support", previous_response_id=first.id)
    assert 0 < alone.input_tokens < counted.input_tokens
    raw = openai_client.responses.input_tokens.with_raw_response.count(
        model="support", input="x", extra_body={"stream": True, "max_output_tokens": 5, "personality": "friendly"}
    )
    assert raw.headers["X-Lorikeet-Ignored"] == "personality, stream, max_output_tokens"
    rows = Console(web, web.tenants["acme"]).http.get("/api/tenants/acme/requests").json()["results"]
    assert not any(row["id"] == raw.headers["x-request-id"] for row in rows)
    with pytest.raises(openai.BadRequestError) as empty:
        openai_client.responses.input_tokens.count(model="support")
    assert empty.value.param == "input"
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.input_tokens.count(model="support", input="x", previous_response_id="resp_x")


@pytest.mark.filterwarnings("ignore:Pydantic serializer")  # the client's types have no messages of the user here
def test_a_conversation_is_compacted(openai_client: OpenAI, engine: FakeEngine) -> None:
    first = create(openai_client, TALK)
    compacted = openai_client.responses.compact(
        model="support", previous_response_id=first.id, instructions="Be brief.", input="say a b"
    )
    assert compacted.object == "response.compaction" and compacted.usage.output_tokens > 10
    *kept, summary = compacted.output
    texts = [item.content[0].text for item in kept]
    assert texts == ["Be kind.", "What is the weather?", "say thanks", "say a b"]
    assert (summary.type, summary.id[:4]) == ("compaction", "cmp_")
    asked = engine.submits[-1]
    roles_sent = [message.role for message in asked.chat.messages]
    assert roles_sent == ["system", "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "user",
                          "assistant", "user"]  # fmt: skip
    assert asked.chat.messages[-1].content.startswith("say a b\n\nSummarise")
    assert asked.sampling.max_tokens == 2048
    answer = create(openai_client, [*compacted.output, {"role": "user", "content": "say on"}])
    assert answer.output_text == "on"
    sent = engine.submits[-1].chat.messages
    assert [message.role for message in sent] == ["system", "user", "user", "user", "assistant", "user"]
    assert sent[4].content.startswith("a b\n\nSummarise")
    rows = list(openai_client.responses.input_items.list(answer.id, order="asc"))
    assert rows[4].encrypted_content == summary.encrypted_content
    again = openai_client.responses.compact(model="support", previous_response_id=answer.id)
    assert [item.type for item in again.output] == ["message"] * 5 + ["compaction"]
    assert engine.submits[-1].chat.messages[-1].content.startswith("Summarise")
    with pytest.raises(openai.NotFoundError):
        openai_client.responses.retrieve(compacted.id)


def test_a_compaction_is_a_request(openai_client: OpenAI, web: WebProcess) -> None:
    key = {"Idempotency-Key": "compact-1"}
    raw = openai_client.responses.with_raw_response.compact(model="support", input="say a b", extra_headers=key)
    again = openai_client.responses.with_raw_response.compact(model="support", input="say a b", extra_headers=key)
    assert again.parse().output == raw.parse().output and again.headers["Idempotent-Replayed"] == "true"
    http, params = Console(web, web.tenants["acme"]).http, {"id": raw.headers["x-request-id"]}

    def rows() -> list[dict[str, Any]]:
        return list(http.get("/api/tenants/acme/requests", params=params).json()["results"])

    eventually(rows, what="its row")
    row = rows()[0]
    assert (row["endpoint"], row["completion_tokens"]) == ("chat.completions", raw.parse().usage.output_tokens)
    with pytest.raises(openai.BadRequestError) as too_long:
        openai_client.responses.compact(model="support", input="a " * 5000)
    assert (too_long.value.code, too_long.value.param) == ("context_length_exceeded", "input")


def test_a_conversation_beyond_the_context_is_compacted(openai_client: OpenAI, engine: FakeEngine) -> None:
    turns: Any = [{"role": "user", "content": f"n{number} " + "a " * 900} for number in range(8)]
    compacted = openai_client.responses.compact(model="support", input=[*turns, {"role": "assistant", "content": "b"}])
    assert len(compacted.output) == 9
    assert engine.submits[-1].chat.messages[0].content[:2] == "n6"
    # The engine refuses what does not fit beside the prompt: the summary gets what is left of the context.
    openai_client.responses.compact(model="support", input="a " * 3000)
    submit = engine.submits[-1]
    prompt = sum(len(message.content.split()) + 1 for message in submit.chat.messages)
    assert submit.sampling.max_tokens == 4096 - prompt < 2048


@pytest.mark.parametrize("content", ["", "gAAAAABm", "lorikeet1.é", "lorikeet1.####", "lorikeet1._w==", 5, None])
def test_compaction_items_of_others(web: WebProcess, content: Any) -> None:
    body = {"model": "support", "input": [GOOD, {"type": "compaction", "encrypted_content": content}]}
    answer = httpx.post(f"{web.url}/v1/responses", json=body, headers=web.tenants["acme"].bearer, trust_env=False)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[1].encrypted_content"


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [{"type": "image_generation_call"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"temperature": 3}, "temperature"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": 3}}}}, "text.format"),
    ],
)
def test_what_is_not_served_is_refused_by_name(web: WebProcess, change: dict[str, Any], param: str | None) -> None:
    body = {"model": "support", "input": "say x", **change}
    headers = web.tenants["acme"].bearer
    answer = httpx.post(f"{web.url}/v1/responses", json=body, headers=headers, trust_env=False, timeout=30)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"] or "").startswith(param or ""), error


CALLED: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"input": [GOOD, {**CALLED, "arguments": "[1]"}]}, "input[1].arguments", "JSON object"),
        ({"input": [GOOD, {**CALLED, "name": ""}]}, "input[1].name", "at least 1"),
        ({"input": [GOOD, {"role": "user"}]}, "input[1].content", "Missing"),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "input": "x"}, GOOD]}, "input[0].name", "Missing"),
        ({"input": [{**GOOD, "content": [{"type": "input_image"}]}]}, "input[0].content[0]", "input_image"),
        ({"input": [{**GOOD, "content": [{"type": "input_text"}]}]}, "input[0].content[0].text", "Missing"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name", "Missing"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "web_search"}]}]},
            "tools[0].tools[0]",
            "web_search",
        ),
        ({"tools": [{**WEATHER, "parameters": {"type": "string"}}]}, "tools[0].parameters", "object"),
        ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice", "allowed_tools"),
        ({"tool_choice": "some"}, "tool_choice", "required"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a b", "schema": {}}}},
            "text.format.name",
            "text.format.name",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "strict": True, "schema": {"type": 3}}}},
            "text.format.schema",
            "text.format.schema",
        ),
    ],
)
def test_one_error_for_one_fault_in_the_words_of_this_door(
    web: WebProcess, change: dict[str, Any], param: str, said: str
) -> None:
    body = {"model": "support", "input": "say x", **change}
    headers = web.tenants["acme"].bearer
    answer = httpx.post(f"{web.url}/v1/responses", json=body, headers=headers, trust_env=False, timeout=30)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert said in error["message"] and "problems" not in error, error
    for theirs in ("messages", "reasoning_effort", "response_format", "json_schema.", "function.", "tool_calls["):
        assert theirs not in error["message"], error


def test_errors_of_the_chat_are_told_in_the_words_of_responses() -> None:
    theirs = ApiError(
        400,
        "invalid_value",
        "Unsupported 'messages' and 'reasoning_effort'; the messages need max_tokens.",
        "Leave 'reasoning_effort' out; see \"tools[3].function.parameters.a\".",
        "response_format.json_schema.schema.a",
        details={"problems": [{"param": "messages[3].content", "code": "invalid_value", "message": "x"}]},
    )
    ours = in_responses_terms(theirs)
    assert ours.message == "Unsupported 'input' and 'reasoning.effort'; the messages need max_output_tokens."
    assert ours.fix == "Leave 'reasoning.effort' out; see \"tools[3].parameters.a\"."
    assert ours.param == "text.format.schema.a"
    assert ours.details == {"problems": [{"param": "input[3].content", "code": "invalid_value", "message": "x"}]}


def test_failures_are_told(openai_client: OpenAI, engine: FakeEngine) -> None:
    with pytest.raises(openai.InternalServerError):
        openai_client.responses.create(model="support", input="fail overloaded")
    events = list(openai_client.responses.create(model="support", input="break 3", stream=True))
    last: Any = events[-1]
    assert (last.type, last.response.status) == ("response.failed", "failed")
    assert last.response.error.message
