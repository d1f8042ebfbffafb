"""Tool calls by the shipped demo model on the engine itself: what must be a call is one, whatever the model knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.server.chat import ChatFormat
from lora_engine.server.input_processor import InputProcessor
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.text.output import ChoiceParser, ToolFormat
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[2] / "demo" / "model"
CITY = {"type": "string", "maxLength": 12}
SCHEMA = {"type": "object", "properties": {"city": CITY}, "required": ["city"], "additionalProperties": False}
WEATHER = pb.Tool(name="get_weather", description="Weather of a city.", parameters=json.dumps(SCHEMA))
CLOCK = pb.Tool(name="get_time", parameters=json.dumps(SCHEMA), strict=True)
MODES = pb.ToolChoice


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=DEMO), LoadedAdapters())
    yield engine
    engine.grammars.close()


def demo_format(**settings: Any) -> ChatFormat:
    return ChatFormat(ChatTemplate.load(DEMO), Tokenizer.load(DEMO), **settings)


def answer(engine: Engine, chat: pb.Chat, format: ChatFormat | None = None, **sampling: Any) -> tuple[str, list[Any]]:
    """Text and calls (name, arguments) of choice 0, as the host reads them."""
    submit = pb.Submit(request_id=f"r{id(chat)}", chat=chat, sampling=pb.Sampling(**{"max_tokens": 120, **sampling}))
    request, output = InputProcessor(engine.tokenizer, format or demo_format(), engine.grammars).convert(submit)
    assert output is not None
    parser: ChoiceParser = output.choice(0)
    engine.add_request(request)
    text, calls = "", []
    while engine.has_work():
        for delta in engine.step().deltas:
            parsed = parser.finish(delta.text) if delta.finish_reason else parser.feed(delta.text)
            text += parsed.text
            for call in parsed.calls:
                calls += [[call.name, ""]] if call.id else []
                calls[-1][1] += call.arguments
    return text, [(name, arguments) for name, arguments in calls]


def chat_of(mode: Any, *tools: pb.Tool, name: str = "", single: bool = True) -> pb.Chat:
    return pb.Chat(
        messages=[pb.ChatMessage(role="user", content="What is the capital of Peru?")],
        tools=tools,
        tool_choice=pb.ToolChoice(mode=mode, name=name),
        single_tool_call=single,
    )


# With harmony the answer may begin with a thought, which this model need not end.
@pytest.mark.parametrize("format", [name for name in ToolFormat if name not in (ToolFormat.NONE, ToolFormat.HARMONY)])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_call_that_must_be_is_one_in_every_format(engine: Engine, format: ToolFormat, temperature: float) -> None:
    chat = chat_of(MODES.NAMED, WEATHER, CLOCK, name="get_weather")
    text, calls = answer(engine, chat, demo_format(tool_format=format), temperature=temperature, seed=1)
    assert not text
    ((name, arguments),) = calls
    assert name == "get_weather"
    assert set(json.loads(arguments)) == {"city"}


def test_some_call_is_required(engine: Engine) -> None:
    text, calls = answer(engine, chat_of(MODES.REQUIRED, WEATHER, CLOCK))
    assert not text
    assert {name for name, _ in calls} <= {"get_weather", "get_time"} and calls


def test_text_stays_free_beside_strict_tools(engine: Engine) -> None:
    text, calls = answer(engine, chat_of(MODES.AUTO, CLOCK))
    assert text and not calls


def test_without_tools_nothing_is_read_or_held(engine: Engine) -> None:
    request, output = InputProcessor(engine.tokenizer, demo_format(), engine.grammars).convert(
        pb.Submit(chat=chat_of(MODES.NONE, CLOCK))
    )
    assert output is None and request.grammar is None
    assert "get_time" not in engine.tokenizer.decode(request.prompt_token_ids)


def test_a_model_whose_calls_cannot_be_read_refuses_tools(engine: Engine) -> None:
    submit = pb.Submit(chat=chat_of(MODES.AUTO, WEATHER))
    with pytest.raises(RequestError) as caught:
        InputProcessor(engine.tokenizer, demo_format(tool_format="none"), engine.grammars).convert(submit)
    assert (caught.value.code, caught.value.param) == ("tools_not_supported", "tools")


def test_a_conversation_with_calls_by_the_demo_template() -> None:
    call = pb.ToolCall(id="call_1", name="get_weather", arguments='{"city": "Oslo"}')
    chat = pb.Chat(
        messages=[
            pb.ChatMessage(role="system", content="Be brief."),
            pb.ChatMessage(role="user", content="Weather?"),
            pb.ChatMessage(role="assistant", tool_calls=[call]),
            pb.ChatMessage(role="tool", content="4 degrees", tool_call_id="call_1"),
        ],
        tools=[WEATHER],
    )
    assert demo_format().render(chat) == (
        "<|begin|><|system|>Be brief.\nTools:\n- get_weather(city): Weather of a city.<|end|><|user|>Weather?<|end|>"
        '<|assistant|><tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call><|end|>'
        "<|user|><tool_response>4 degrees</tool_response><|end|><|assistant|>"
    )
