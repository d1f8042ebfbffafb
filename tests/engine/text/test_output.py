"""Tool calls and reasoning are read alike however the text is cut on its way."""

from __future__ import annotations

import json
import random
import time

import pytest
from lorikeet_testing.tool_outputs import FORMATS, THINK, Read, cut, output_of, random_output, read

from lora_engine.text.output import ToolFormat, find_reasoning_tags, find_tool_format
from lora_engine.text.output.harmony import opening_of

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
F = ("f", '{"a": 1}')
HARMONY_CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}'
THOUGHT = "<|channel|>analysis<|message|>Hm, <x>.<|end|>"
# What a model wrote, and what is read of it.
OUTPUTS: list[tuple[str, str, Read]] = [
    ("hermes", "Only text, a < b.", Read("Only text, a < b.")),
    ("hermes", f"Sure.\n{CALL}\n", Read("Sure.", calls=[F])),
    ("hermes", f"{CALL}\n{CALL}", Read(calls=[F, F])),
    ("hermes", f"A\n{CALL}\nB", Read("A\nB", calls=[F])),
    ("hermes", CALL.removesuffix("</tool_call>"), Read(calls=[F])),
    ("hermes", '<tool_call>{"arguments": {"x": "</tool_call>"}, "name": "f"}</tool_call>',
     Read(calls=[("f", '{"x": "</tool_call>"}')])),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', Read(calls=[("f", "{}")])),
    ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', Read(calls=[F])),
    ("hermes", f"<tool_call>{CALL}", Read("<tool_call>", calls=[F])),
    # What is no call of an offered tool is text, as it was written.
    ("hermes", CALL.replace('"f"', '"g"'), Read(CALL.replace('"f"', '"g"'))),
    ("hermes", CALL.replace("1}}", "1}}}"), Read(CALL.replace("1}}", "1}}}"))),
    ("hermes", CALL.replace("1}", "1,}"), Read(CALL.replace("1}", "1,}"))),
    ("hermes", CALL.replace("1}", "NaN}"), Read(CALL.replace("1}", "NaN}"))),
    ("hermes", CALL[:30], Read(CALL[:30])),
    ("hermes", "<tool_c", Read("<tool_c")),
    ("llama_json", '{"name": "f", "parameters": {"a": 1}}', Read(calls=[F])),
    ("llama_json", ' {"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {"a": 1}}', Read(calls=[F, F])),
    ("llama_json", '{"name": "f", "parameters": {"a": 1}}\n{"name": "f", "parameters": {"a": 1}}', Read(calls=[F, F])),
    ("llama_json", 'I look: <|python_tag|>{"type": "function", "name": "f", "parameters": {"a": 1}}',
     Read("I look:", calls=[F])),
    ("llama_json", '{"city": "Oslo"}', Read('{"city": "Oslo"}')),
    ("llama_json", 'Said: {"name": "f", "parameters": {}}', Read('Said: {"name": "f", "parameters": {}}')),
    ("llama_pythonic", '[f(a=1), get_weather(city="Oslo)]", deep=[True, None, {"k": -1.5}])]',
     Read(calls=[F, ("get_weather", '{"city": "Oslo)]", "deep": [true, null, {"k": -1.5}]}')])),
    ("llama_pythonic", "I look <|python_start|>[f(a=1)]", Read("I look", calls=[F])),
    ("llama_pythonic", "[1] a note", Read("[1] a note")),
    ("llama_pythonic", "[f(__import__('os').system('x'))]", Read("[f(__import__('os').system('x'))]")),
    ("llama_pythonic", "[f(a=b)]", Read("[f(a=b)]")),
    ("mistral", 'Yes.[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "abcdefghi"}]', Read("Yes.", calls=[F])),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 1}}]',
     Read(calls=[F, F])),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"a": 1}', Read(calls=[F, F])),
    ("mistral", '[TOOL_CALLS]f{"a": 1}', Read(calls=[F])),
    ("mistral", '[TOOL_CALLS]g[ARGS]{"a": 1}', Read('[TOOL_CALLS]g[ARGS]{"a": 1}')),
    ("harmony", f"{THOUGHT}<|start|>assistant<|channel|>final<|message|>a < b<|return|>", Read("a < b", "Hm, <x>.")),
    ("harmony", f"{THOUGHT}<|start|>assistant{HARMONY_CALL}<|call|>", Read("", "Hm, <x>.", [F])),
    ("harmony", HARMONY_CALL, Read(calls=[F])),
    ("harmony", '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
     Read(calls=[F])),
    ("harmony", '<|channel|>analysis to=functions.f<|message|>{"a": 1}', Read(calls=[F])),
    ("harmony", f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{HARMONY_CALL}",
     Read("I look.", calls=[F])),
    ("harmony", f"{THOUGHT}{THOUGHT}<|channel|>final<|message|>A<|end|><|channel|>final<|message|>B",
     Read("A\n\nB", "Hm, <x>.\n\nHm, <x>.")),
    ("harmony", "<|channel|>analysis<|message|>cut <|en", Read("", "cut <|en")),
    ("harmony", "<|channel|>fin", Read()),
    ("harmony", "<|channel|>analysis to=python<|message|>1 + 1<|call|>", Read("", "1 + 1")),
    ("harmony", " no header, to=x", Read(" no header, to=x")),
    ("harmony", "to=x", Read("to=x")),
    ("harmony", "<|end|>A<|end|>", Read("A")),
    ("harmony", HARMONY_CALL.replace(".f", ".g"), Read('{"a": 1}')),
    ("harmony", HARMONY_CALL.replace("1}", "1,}"), Read('{"a": 1,}')),
    ("harmony", f"{HARMONY_CALL}<|call|><|channel|>final<|message|>A", Read("A", calls=[F])),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "expected"), OUTPUTS)
def test_an_output_cut_anywhere(format: str, text: str, expected: Read) -> None:
    output = output_of(format)
    assert read(output, [text]) == expected
    assert read(output, text) == expected  # character by character
    for at in range(len(text) + 1):
        assert read(output, cut(text, [at])) == expected, at
        for more in range(at, len(text) + 1, 3):
            assert read(output, cut(text, [at, more])) == expected, (at, more)


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\n a b \n</think>\n\nhello", False, Read("hello", "a b")),
        ("a < b </x>\n</think>\n" + CALL, True, Read("", "a < b </x>", [F])),
        ("no tags", False, Read("no tags")),
        (" \n<thinking", False, Read(" \n<thinking")),
        ("hi <think>no</think>", False, Read("hi <think>no</think>")),
        ("cut off </thi", True, Read("", "cut off </thi")),
        (f"plan {CALL} </think>done", True, Read("done", f"plan {CALL}")),
        ("</think>done", True, Read("done")),
    ],
)
def test_reasoning_cut_anywhere(text: str, opened: bool, expected: Read) -> None:
    output = output_of("hermes", reasoning=THINK, reasoning_opened=opened)
    for at in range(len(text) + 1):
        for more in range(at, len(text) + 1):
            assert read(output, cut(text, [at, more])) == expected, (at, more)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("certain", [False, True])
def test_random_outputs_cut_anywhere(format: str, certain: bool) -> None:
    rng = random.Random(f"{format} {certain}")
    for _ in range(150):
        text, output = random_output(format, rng), output_of(format, certain=certain, single=rng.random() < 0.2)
        whole = read(output, [text])
        if not certain:
            assert all(isinstance(json.loads(arguments), dict) for _, arguments in whole.calls)
        assert read(output, text) == whole
        cuts = [rng.randrange(len(text) + 1) for _ in range(4)]
        assert read(output, cut(text, cuts)) == whole, (text, cuts)


@pytest.mark.parametrize(
    ("opening", "text", "expected"),
    [
        ("<|start|>assistant", "<|channel|>final<|message|>b", Read("b")),
        ("<|start|>assistant<|channel|>final<|message|>a <", "b<|return|>", Read("b")),
        ("<|start|>assistant<|channel|>analysis<|message|>a", "b<|end|><|start|>assistant<|channel|>final<|message|>c",
         Read("c", "b")),
        ("<|start|>assistant<|channel|>", "final<|message|>b", Read("b")),
        ("", "<|start|>assistant<|channel|>final<|message|>b", Read("b")),
    ],
)  # fmt: skip
def test_an_answer_goes_on_where_the_prompt_ends(opening: str, text: str, expected: Read) -> None:
    output = output_of("harmony", opening=opening)
    for at in range(len(text) + 1):
        assert read(output, cut(text, [at])) == expected, at
    assert opening_of(f"<|start|>user<|message|>x<|end|>{opening}") == opening
    assert opening_of(f"{opening}<|end|>") == opening_of("") == ""


def test_headers_that_never_end_are_text() -> None:
    text = "<|start|>assistant<|channel|>" + "x" * 600 + "<|message|>y"
    assert read(output_of("harmony"), text) == read(output_of("harmony"), [text]) == Read(text)


def test_calls_that_are_certain_are_passed_on_while_they_are_written() -> None:
    parser = output_of("hermes", certain=True).choice(0)
    assert [delta.name for delta in parser.feed('<tool_call>\n{"name": "f", "argu').calls] == ["f"]
    assert [delta.arguments for delta in parser.feed('ments": {"a"').calls] == ['{"a"']
    assert [delta.arguments for delta in parser.feed(": 1").calls] == [": 1"]
    assert not parser.finish().text  # cut off: what is there stays a call


def test_of_several_calls_only_one_is_wanted() -> None:
    assert read(output_of("hermes", single=True), [CALL * 2]) == Read(CALL, calls=[F])


def test_ids_are_those_of_the_format() -> None:
    ids = {format: output_of(format).choice(0) for format in ("hermes", "mistral")}
    (call,) = ids["hermes"].finish(CALL).calls
    assert call.id.startswith("call_")
    (call,) = ids["mistral"].finish('[TOOL_CALLS]f[ARGS]{"a": 1}').calls
    assert len(call.id) == 9 and call.id.isalnum()  # what Mistral's templates take back


def test_time_grows_with_the_length_only() -> None:
    """Beginnings within beginnings, never ended: each character is looked at once or twice."""

    def seconds(count: int) -> float:
        text = '<tool_call>{"name": "f", "arguments": {"' * count
        started = time.process_time()
        read(output_of("hermes"), [text])
        return time.process_time() - started

    seconds(100)
    assert seconds(4000) < 40 * max(seconds(400), 1e-3)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if tools %}<tool_call>{{ x }}</tool_call>", ToolFormat.HERMES),
        ("[TOOL_CALLS] [AVAILABLE_TOOLS]", ToolFormat.MISTRAL),
        ("<|start_header_id|>ipython", ToolFormat.LLAMA_JSON),
        ("<|start_header_id|>[func_name1(params_name1=value)]", ToolFormat.LLAMA_PYTHONIC),
        ("<|header_start|> <|python_start|>[func_name1(params_name1=value)]", ToolFormat.LLAMA_PYTHONIC),
        ("<|header_start|> <|python_start|> respond with JSON", ToolFormat.LLAMA_JSON),
        ("<tool_call><function=name>", ToolFormat.NONE),
        ("within <tool_call></tool_call>: <tool_calls>[…]", ToolFormat.NONE),
        ('<tool_call><invoke name="f">', ToolFormat.NONE),
        ("<|start_header_id|>assistant<|end_header_id|>>>>all", ToolFormat.NONE),
        ("<|user|>", ToolFormat.NONE),
        ("<|start|>assistant<|channel|>final<|message|>{{ x }}<|end|>", ToolFormat.HARMONY),
    ],
)
def test_the_format_follows_from_the_template(template: str, expected: ToolFormat) -> None:
    assert find_tool_format(template) is expected
    assert find_tool_format(template, "mistral") is ToolFormat.MISTRAL


def test_reasoning_follows_from_the_template() -> None:
    assert find_reasoning_tags("… <think> … </think>") == THINK
    assert find_reasoning_tags("plain") is None
    assert find_reasoning_tags("</think>", "none") is None
    assert find_reasoning_tags("plain", "think") == THINK
