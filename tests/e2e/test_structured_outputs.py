"""Structured outputs by the official client's helpers, against the real engine with the demo's adapters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest
from lorikeet_testing.launched import Access
from websockets.asyncio.client import connect

MESSAGES: list[Any] = [{"role": "user", "content": "Where is my order?"}]


class Item(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    amount: int = pydantic.Field(ge=0, le=99)


class Ticket(pydantic.BaseModel):
    kind: Literal["order", "refund", "question"]
    urgent: bool
    items: list[Item] = pydantic.Field(max_length=2)


@pytest.fixture(scope="module")
def client(access: Access) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{access.url}/v1", api_key=access.key, max_retries=0, timeout=60) as made:
        yield made


@pytest.mark.parametrize("model", ["lorikeet-demo", "support-agent", "pirate"])
def test_parse_gives_the_callers_own_type(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.parse(
        model=model, messages=MESSAGES, response_format=Ticket, max_tokens=300, n=2, temperature=1.0, seed=4
    )
    for choice in answer.choices:
        assert isinstance(choice.message.parsed, Ticket)
        assert choice.finish_reason == "stop"


def test_a_stream_is_parsed_too(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="support-agent", messages=MESSAGES, response_format=Ticket, max_tokens=300
    ) as stream:
        kinds = {event.type for event in stream}
        assert "content.delta" in kinds
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Ticket)


def test_a_cut_answer_is_said_to_be_cut(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="pirate", messages=MESSAGES, response_format=Ticket, max_tokens=3)


def test_vllms_forms_and_completions(client: openai.OpenAI) -> None:
    chosen = client.chat.completions.create(
        model="pirate", messages=MESSAGES, extra_body={"structured_outputs": {"choice": ["yes", "no"]}}
    )
    assert chosen.choices[0].message.content in ("yes", "no")
    numbers = client.completions.create(
        model="lorikeet-demo", prompt="Call", max_tokens=20, extra_body={"guided_regex": "[0-9]{3}-[0-9]{4}"}
    )
    assert re.fullmatch("[0-9]{3}-[0-9]{4}", numbers.choices[0].text)
    thing = client.chat.completions.create(
        model="json-answers", messages=MESSAGES, response_format={"type": "json_object"}, max_tokens=300, temperature=0
    )
    assert isinstance(json.loads(thing.choices[0].message.content or ""), dict)


def test_what_cannot_be_enforced_is_named(client: openai.OpenAI) -> None:
    """Some keywords are checked when the answer has ended; what cannot be judged even then is refused."""

    def strict(items: dict[str, Any]) -> Any:
        schema = {"type": "object", "properties": {"a": {"type": "array", **items}}, "required": ["a"]}
        return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}

    checked = strict({"items": {"enum": [1, 2]}, "contains": {"const": 3}})
    answer = client.chat.completions.with_raw_response.create(
        model="json-answers", messages=MESSAGES, response_format=checked, max_tokens=100, temperature=0
    )
    assert "contains" in answer.headers["X-Lorikeet-Checked-At-End"]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="pirate", messages=MESSAGES, response_format=strict({"$dynamicRef": "#x"}))
    assert refused.value.param == "response_format.json_schema.schema.properties.a.$dynamicRef"


async def test_on_a_websocket(access: Access) -> None:
    url = f"{access.url.replace('http', 'ws', 1)}/ws/inference"
    bodies = {
        "good": {"model": "pirate", "messages": MESSAGES, "structured_outputs": {"choice": ["aye", "nay"]}},
        "bad": {"model": "pirate", "messages": MESSAGES, "guided_regex": "(?=a)"},
    }
    text = ""
    ends: dict[str, Any] = {}
    async with connect(url, additional_headers=access.bearer, proxy=None) as socket:
        for name, body in bodies.items():
            await socket.send(json.dumps({"type": "generate", "id": name, "request": body}))
        while len(ends) < 2:
            frame = json.loads(await socket.recv())
            text += frame["text"] if frame["type"] == "delta" else ""
            if frame["type"] in ("done", "error"):
                ends[frame["id"]] = frame
    assert text in ("aye", "nay") and ends["good"]["finish_reason"] == ["stop"]
    assert (ends["bad"]["error"]["code"], ends["bad"]["error"]["param"]) == ("invalid_constraint", "guided_regex")
