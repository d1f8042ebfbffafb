"""Grammars of tool calls: what they allow, and that all they allow is read as the call that it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from lorikeet_testing.tool_outputs import FORMATS, THINK, Read, output_of, read

from lora_engine.constraints import Constraint, Kind, compile_constraint
from lora_engine.text.output import ToolFormat
from lora_engine.text.output.formats import MARKERS
from lora_engine.text.output.grammar import CallGrammar, GrammarTool, UnfitSchemaError, Vocabulary, json_rule

BYTES = LLTokenizer("byte")
TEXT_ONLY = Vocabulary(lambda _name: None)
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS = (GrammarTool("get_weather", WEATHER, strict=True), GrammarTool("f", None, strict=False))
CONTENT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CALLS = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}\n</tool_call>',
    "llama_json": '{"name": "get_weather", "parameters": {"city": "Oslo", "unit": "c"}}',
    "llama_pythonic": '[get_weather(city="Oslo", unit="c")]',
    "mistral": '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "c"}}]',
    "harmony": (
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo", "unit": "c"}'
    ),
}
WITHOUT_HEADERS = [format for format in FORMATS if format != "harmony"]
FINAL, THOUGHT = "<|channel|>final<|message|>", "<|channel|>analysis<|message|>hm <b><|end|><|start|>assistant"
BETWEEN = {"hermes": "\n", "llama_json": "; "}


def matcher(format: str, **options: Any) -> LLMatcher:
    grammar = CallGrammar(ToolFormat(format), TOOLS, **{"required": False, "single": False, **options})
    return compile_constraint(Constraint(Kind.GRAMMAR, grammar.lark(TEXT_ONLY)), BYTES).matcher


def allows(matcher: LLMatcher, text: str) -> bool:
    """The whole of it, and an end after it."""
    copy, tokens = matcher.deep_copy(), list(text.encode())
    return bool(copy.try_consume_tokens(tokens) == len(tokens) and copy.is_accepting())


@pytest.mark.parametrize("format", FORMATS)
def test_required_calls_are_calls_and_nothing_else(format: str) -> None:
    required, call = matcher(format, required=True), CALLS[format]
    assert allows(required, call)
    for other in ("", "text", "text " + call, call.replace("get_weather", "h"), call.replace("unit", "u"), call[:-1]):
        assert not allows(required, other), other
    assert not allows(required, call.replace('"c"', '"k"'))


@pytest.mark.parametrize("format", ["hermes", "llama_json"])
def test_several_calls_or_one(format: str) -> None:
    twice = CALLS[format] + BETWEEN[format] + CALLS[format]
    assert allows(matcher(format, required=True), twice)
    assert not allows(matcher(format, required=True, single=True), twice)


def test_messages_of_harmony() -> None:
    call, content = CALLS["harmony"], json_rule(CONTENT, strict=True)
    free, required = matcher("harmony"), matcher("harmony", required=True)
    for answer in (f"{FINAL}Hello <b>", f"{THOUGHT}{FINAL}a\nb", call, THOUGHT + call, THOUGHT + THOUGHT + call):
        assert allows(free, answer), answer
        assert allows(required, answer) == (FINAL not in answer), answer
    for answer in ("Hello", f"{FINAL}Hello<|end|><|start|>assistant{call}", THOUGHT, call.replace("unit", "u")):
        assert not allows(free, answer), answer
    held = matcher("harmony", content=content)
    assert allows(held, THOUGHT + FINAL + '{"a": 1}') and allows(held, call)
    assert not allows(held, FINAL + '{"a": "x"}')
    opening = "<|start|>assistant"
    assert allows(matcher("harmony", content=content, opening=f"{opening}{FINAL}"), '{"a": 1}')
    thinking = matcher("harmony", required=True, opening=f"{opening}<|channel|>analysis<|message|>h")
    assert allows(thinking, f"m<|end|>{opening}{call}") and not allows(thinking, call)
    writing = matcher("harmony", required=True, opening=f"{opening}{FINAL}I")
    assert allows(writing, f" look<|end|>{opening}{call}") and not allows(writing, " look")
    no_tools = CallGrammar(ToolFormat.HARMONY, (), False, False, content).lark(TEXT_ONLY)
    assert "commentary" not in no_tools


def test_markers_of_harmony_that_are_special_tokens() -> None:
    ids = {marker: number for number, marker in enumerate(MARKERS[ToolFormat.HARMONY], 5)}
    lark = CallGrammar(ToolFormat.HARMONY, TOOLS, required=False, single=True).lark(Vocabulary(ids.get))
    assert 'thought: <[6]> "analysis" <[7]> FREE <[9]>\n' in lark
    assert '"commentary to=functions.get_weather " <[8]> "json" <[7]> arguments_0' in lark


@pytest.mark.parametrize("format", WITHOUT_HEADERS)
def test_text_is_free_until_a_call_begins(format: str) -> None:
    free, call = matcher(format), CALLS[format]
    for text in ("", "Hello <b> [1] {", "a\nb", '{"city": 1}', "<tool", call):
        assert allows(free, text), text
    assert not allows(free, call.replace("unit", "u"))
    assert not allows(free, call[: len(call) // 2])
    if format in ("hermes", "mistral"):
        assert allows(free, "Let me see. " + call)
        assert not allows(free, "Let me see. " + call.replace('"c"', '"k"'))


def test_a_marker_that_is_a_special_token() -> None:
    grammar = CallGrammar(ToolFormat.MISTRAL, TOOLS, required=False, single=False)
    ids = {"[TOOL_CALLS]": 5, "[ARGS]": 6}
    lark = grammar.lark(Vocabulary(ids.get))
    assert '"get_weather" <[6]> arguments_0' in lark
    assert "TEXT <[5]> call" in lark


@pytest.mark.parametrize("format", WITHOUT_HEADERS)
@pytest.mark.parametrize("required", [True, False])
def test_reasoning_comes_first_and_is_free(format: str, required: bool) -> None:
    call = CALLS[format]
    opened = matcher(format, required=required, reasoning=THINK, reasoning_opened=True)
    assert allows(opened, f"hm, {call} or not</think>\n\n{call}")
    assert not allows(opened, call)
    maybe = matcher(format, required=required, reasoning=THINK)
    assert allows(maybe, f"<think>hm {call}</think>{call}")
    assert allows(maybe, call)
    assert not allows(maybe, "<think>hm</think>" + call.replace("unit", "u"))


def test_content_of_a_schema_or_calls() -> None:
    held = matcher("hermes", content=json_rule(CONTENT, strict=True))
    assert allows(held, '{"a": 1}')
    assert allows(held, CALLS["hermes"])
    assert not allows(held, '{"a": "x"}')
    assert not allows(held, "text")
    alone = CallGrammar(ToolFormat.NONE, (), False, False, json_rule(CONTENT, strict=True), THINK, True)
    reasoned = compile_constraint(Constraint(Kind.GRAMMAR, alone.lark(TEXT_ONLY)), BYTES).matcher
    assert allows(reasoned, 'so {it} is</think>\n{"a": 1}')
    assert not allows(reasoned, '{"a": 1}')


def test_arguments_in_pythons_form() -> None:
    required = matcher("llama_pythonic", required=True)
    assert allows(required, '[get_weather(city="Oslo", days=3, unit="c"), f()]')
    assert not allows(required, '[get_weather(unit="c", city="Oslo")]')
    assert not allows(required, "[get_weather()]")
    odd = GrammarTool("f", {"type": "object", "properties": {"a-b": {}}}, strict=True)
    with pytest.raises(UnfitSchemaError, match="a-b"):
        CallGrammar(ToolFormat.LLAMA_PYTHONIC, [odd], required=True, single=True).lark(TEXT_ONLY)


@pytest.mark.parametrize("format", FORMATS)
def test_whatever_is_allowed_is_read(format: str) -> None:
    """Walk through the grammar at random: the answer is calls with arguments that are objects, and no text."""
    start = matcher(format, required=True, single=True)
    begun = "<|channel|>c" if format == "harmony" else ""  # a thought would hardly end by chance
    assert start.try_consume_tokens(list(begun.encode())) == len(begun)
    for seed in range(12):
        text = begun + walk(start, random.Random(seed))
        whole = read(output_of(format), [text])
        assert len(whole.calls) == 1 and not whole.text, text
        arguments = json.loads(whole.calls[0][1])
        if whole.calls[0][0] == "get_weather":
            assert {"city", "unit"} <= set(arguments) <= {"city", "unit", "days"}
        streamed = read(output_of(format, certain=True), text)
        assert streamed == Read(calls=whole.calls)


def walk(start: LLMatcher, rng: random.Random, allowed: Callable[[int], bool] = lambda byte: 32 <= byte < 127) -> str:
    """Printable bytes chosen at random; after a while those that end strings and objects first."""
    matcher, made = start.deep_copy(), bytearray()
    while not matcher.is_stopped() and not (matcher.is_accepting() and len(made) > 20):
        mask = matcher.compute_bitmask()
        choices = [byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1]
        printable = [byte for byte in choices if allowed(byte)] or choices
        closing = [byte for byte in printable if byte in b'"}])']
        byte = rng.choice(closing if closing and len(made) > 60 else printable)
        assert matcher.consume_token(byte)
        made.append(byte)
    return made.decode()
