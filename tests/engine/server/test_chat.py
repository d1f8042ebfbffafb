"""Conversations with tools through chat templates of each format, and back: small templates in the published forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from lora_engine.constraints import Constraint, Kind
from lora_engine.errors import RequestError
from lora_engine.peft_format.embedding_layers import MAX_NEW_TOKENS
from lora_engine.request import Embedding, PromptLogprobs, RequestFinished, RequestUsage, TokenDelta
from lora_engine.scheduling.sequence import detokenizer_for
from lora_engine.server.chat import ChatFormat
from lora_engine.server.input_processor import InputProcessor
from lora_engine.server.messages import delta_message
from lora_engine.server.metrics import HostMetrics
from lora_engine.server.open_requests import OpenRequest
from lora_engine.structured import Grammars
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.text.output import Parsed, ToolFormat
from lora_engine.text.output.formats import MARKERS
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[3] / "demo" / "model"
QWEN = """{%- if tools %}<|im_start|>system
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
Answer with <tool_call>{"name": …, "arguments": …}</tool_call>.<|im_end|>
{%- endif %}
{%- for message in messages %}<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{%- if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{%- if message.role == 'tool' %}<tool_response>{{ message.content }}</tool_response>
{%- else %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls %}{% set function = call.function -%}
<tool_call>{"name": "{{ function.name }}", "arguments": {{ function.arguments | tojson }}}</tool_call>
{%- endfor %}
{%- if '</think>' in message.content %}{% endif %}<|im_end|>
{%- endfor %}<|im_start|>assistant
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% elif enable_thinking is defined %}<think>
{% endif %}"""
LLAMA = """{%- if tools is defined and tools -%}
<|start_header_id|>system<|end_header_id|>{{ tools | tojson }}<|eot_id|>{% endif %}
{%- for message in messages -%}
<|start_header_id|>{{ 'ipython' if message.role == 'tool' else message.role }}<|end_header_id|>
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set call = message.tool_calls[0].function -%}
{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content }}{% endif %}<|eot_id|>
{%- endfor %}<|start_header_id|>assistant<|end_header_id|>"""
AS_JSON = '{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}'
AS_PYTHON = """[{{ call.name }}(
{%- for name, value in call.arguments.items() %}{{ name }}={{ value | tojson }}{% endfor %})]"""
PYTHONIC = LLAMA.replace(AS_JSON, AS_PYTHON) + "{# [func_name1(params_name1=value)] #}"
MISTRAL = """{{ bos_token }}{%- if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}[INST] {{ message.content }}[/INST]
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif -%}
[TOOL_RESULTS]{{ message.content }}[/TOOL_RESULTS]
{%- elif message.tool_calls %}[TOOL_CALLS] [
{%- for call in message.tool_calls %}{% set function = call.function -%}
{"name": "{{ function.name }}", "arguments": {{ function.arguments | tojson }}, "id": "{{ call.id }}"}
{%- endfor %}]
{%- else %}{{ message.content }}{% endif %}{% endfor %}"""
HARMONY = """{%- if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}
{%- if message.content and message.thinking %}{{ raise_exception('one of both') }}{% endif %}
{%- set thought = message.content or message.thinking %}
{%- if thought %}<|start|>assistant<|channel|>analysis<|message|>{{ thought }}<|end|>{% endif %}
{%- set call = message.tool_calls[0].function -%}
<|start|>assistant<|channel|>commentary to=functions.{{ call.name }} <|constrain|>json<|message|>
{{- call.arguments | tojson }}<|call|>
{%- elif message.role == 'tool' %}<|start|>functions.f to=assistant<|channel|>commentary<|message|>
{{- message.content }}<|end|>
{%- elif message.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ message.content }}<|end|>
{%- else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}
{%- endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""
TEMPLATES = {
    "hermes": QWEN,
    "llama_json": LLAMA,
    "llama_pythonic": PYTHONIC,
    "mistral": MISTRAL,
    "harmony": HARMONY,
}
WRITTEN = {
    "hermes": '<tool_call>{"name": "f", "arguments": {"city": "Óslo \\"x\\""}}</tool_call>',
    "llama_json": '{"name": "f", "parameters": {"city": "Óslo \\"x\\""}}',
    "llama_pythonic": '[f(city="Óslo \\"x\\"")]',
    "mistral": '[TOOL_CALLS] [{"name": "f", "arguments": {"city": "Óslo \\"x\\""}, "id": "',
    "harmony": '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city": "Óslo \\"x\\""}',
}
ARGUMENTS = {"city": 'Óslo "x"'}
TOOL = pb.Tool(name="f", description="d", parameters='{"type": "object", "properties": {"city": {"type": "string"}}}')


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.load(DEMO)


def chat_format(template: str, tokenizer: Tokenizer, **settings: Any) -> ChatFormat:
    return ChatFormat(ChatTemplate(template, {"bos_token": "<s>"}), tokenizer, **settings)


def inputs_of(form: ChatFormat, tokenizer: Tokenizer, max_context: int = 0) -> InputProcessor:
    description = pb.EngineDescription(max_context=max_context)
    return InputProcessor(tokenizer, form, Grammars(tokenizer, tokenizer.vocab_size), description)


def chat(*more: pb.ChatMessage, **fields: Any) -> pb.Chat:
    return pb.Chat(messages=[pb.ChatMessage(role="user", content="Weather?"), *more], tools=[TOOL], **fields)


@pytest.mark.parametrize("name", TEMPLATES)
def test_there_and_back(name: str, tokenizer: Tokenizer) -> None:
    """What the template makes of an assistant's call is what its parser reads as that call."""
    form = chat_format(TEMPLATES[name], tokenizer)
    assert form.tools is ToolFormat(name)
    call = pb.ToolCall(id="call_0123456789", name="f", arguments=json.dumps(ARGUMENTS))
    called = pb.ChatMessage(role="assistant", tool_calls=[call])
    result = pb.ChatMessage(role="tool", content="4 degrees", tool_call_id="call_0123456789")
    asked = chat(called, result)
    prompt = form.render(asked)
    assert WRITTEN[name] in prompt and "4 degrees" in prompt
    assert '"name": "f"' in prompt and '"description": "d"' in prompt
    start = prompt.index(WRITTEN[name])
    end = {"hermes": "<|im_end|>", "mistral": "[TOOL_RESULTS]", "harmony": "<|call|>"}.get(name, "<|eot_id|>")
    parsed = (
        form.output("r", asked, prompt, has_constraint=False).choice(0).finish(prompt[start : prompt.index(end, start)])
    )
    assert not parsed.text
    assert [(read.name, json.loads(read.arguments)) for read in parsed.calls] == [("f", ARGUMENTS)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_resumed_answer_is_read_on(name: str, tokenizer: Tokenizer) -> None:
    """Whatever another host had delivered of a call, the rest of it comes, and nothing twice."""
    form = chat_format(TEMPLATES[name], tokenizer)
    written = f"Look: {WRITTEN[name]}" if name == "hermes" else WRITTEN[name]
    written += {"mistral": 'abcdefghi"}]'}.get(name, "")
    ids = tokenizer.encode(written, add_special_tokens=False)

    def read(so_far: int) -> list[pb.Delta]:
        """By a host that has `so_far` tokens from another one."""
        part = pb.ChoiceSoFar(choice=0, token_ids=ids[:so_far])
        submit = pb.Submit(request_id="r", chat=chat(), so_far=[part])
        request, output = inputs_of(form, tokenizer).convert(submit)
        open_request = OpenRequest(submit, None, 0.0, output=output)
        open_request.resume(request, tokenizer)
        text = detokenizer_for(request, tokenizer)
        for token_id in ids[:so_far]:
            text.append(token_id)
        deltas = []
        for index, token_id in enumerate(ids[so_far:], so_far + 1):
            last = index == len(ids)
            piece = text.append(token_id) + (text.flush() if last else "")
            delta = pb.Delta(request_id="r", text=piece, finish_reason="stop" if last else "")
            open_request.read(delta)
            deltas.append(delta)
        return deltas

    whole = read(0)
    assert "".join(call.arguments for delta in whole for call in delta.tool_calls)
    assert whole[-1].finish_reason == "tool_calls"
    for cut in range(1, len(ids)):
        assert read(cut) == whole[cut:]


def test_harmony_has_one_call_in_each_message(tokenizer: Tokenizer) -> None:
    """Each with its result behind it, and a thought before the first one; results of no call stay."""
    form = chat_format(HARMONY, tokenizer)
    calls = [pb.ToolCall(id=str(n), name="f", arguments=f'{{"n": {n}}}') for n in range(2)]
    results = [pb.ChatMessage(role="tool", content=f"result {n}", tool_call_id=str(n)) for n in (1, 0, 7)]
    said = pb.ChatMessage(role="assistant", content="I look.", reasoning="Hm.", tool_calls=calls)
    prompt = form.render(chat(said, *results))
    order = ["Hm.\n\nI look.", '{"n": 0}', "result 0", '{"n": 1}', "result 1", "result 7", "<|start|>assistant"]
    places = [prompt.rindex(part) for part in order]
    assert places == sorted(places) and prompt.count("I look.") == 1


def test_harmony_is_read_without_tools_and_where_a_message_goes_on(tokenizer: Tokenizer) -> None:
    form = chat_format(HARMONY, tokenizer)
    plain = pb.Chat(messages=[pb.ChatMessage(role="user", content="x")])
    output = form.output("r", plain, form.render(plain), has_constraint=False)
    assert output.reads_something and output.opening == "<|start|>assistant"
    answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    assert output.choice(0).finish(answer) == Parsed("Yes.", "Hm.")
    made = form.constraint(plain, output, Constraint(Kind.JSON_OBJECT))
    assert made is not None and made.kind is Kind.GRAMMAR and "final" in made.text
    unfinished = pb.Chat(
        messages=[*plain.messages, pb.ChatMessage(role="assistant", content="Yes, a")], continue_final_message=True
    )
    output = form.output("r", unfinished, form.render(unfinished), has_constraint=False)
    assert output.choice(0).finish(" cat.") == Parsed(" cat.", "")


def test_ids_of_other_clients_fit_mistrals_templates(tokenizer: Tokenizer) -> None:
    call = pb.ToolCall(id="call_0123456789", name="f", arguments="{}")
    form = chat_format(MISTRAL, tokenizer)
    messages = (pb.ChatMessage(role="assistant", tool_calls=[call]),
                pb.ChatMessage(role="tool", content="x", tool_call_id=call.id))  # fmt: skip
    first = form.render(chat(*messages))
    call.id = "another_call"
    assert first != form.render(chat(pb.ChatMessage(role="assistant", tool_calls=[call])))


@pytest.mark.parametrize(
    ("kwargs", "written", "expected"),
    [
        ("", "<think>hm</think>yes", Parsed("yes", "hm")),
        ("", "yes", Parsed("yes", "")),
        ('{"enable_thinking": true}', "hm</think>yes", Parsed("yes", "hm")),
        ('{"enable_thinking": false}', "yes", Parsed("yes", "")),
    ],
)
def test_reasoning_that_the_prompt_opened(kwargs: str, written: str, expected: Parsed, tokenizer: Tokenizer) -> None:
    form, asked = chat_format(QWEN, tokenizer), chat(template_kwargs=kwargs)
    assert form.output("r", asked, form.render(asked), has_constraint=False).choice(0).finish(written) == expected


def test_reasoning_of_earlier_turns_reaches_the_template(tokenizer: Tokenizer) -> None:
    said = pb.ChatMessage(role="assistant", content="Yes.", reasoning="Hm.")
    assert "<think>Hm.</think>Yes." in chat_format(QWEN, tokenizer).render(chat(said))


def test_a_schema_holds_what_comes_after_reasoning(tokenizer: Tokenizer) -> None:
    """A constraint of the answer would forbid the reasoning before it."""
    form = chat_format(QWEN, tokenizer)
    asked = pb.Chat(messages=[pb.ChatMessage(role="user", content="x")], template_kwargs='{"enable_thinking": true}')
    output = form.output("r", asked, form.render(asked), has_constraint=True)
    made = form.constraint(asked, output, Constraint(Kind.JSON_OBJECT))
    assert made is not None and made.kind is Kind.GRAMMAR and made.text.startswith("start: THOUGHT content")
    plain = chat_format(LLAMA, tokenizer)
    schema = Constraint(Kind.REGEX, "a+")
    assert plain.constraint(asked, plain.output("r", asked, "", has_constraint=True), schema) is schema
    with pytest.raises(RequestError):
        form.constraint(asked, output, schema)


def test_markers_that_are_special_tokens_show(tmp_path: Path) -> None:
    """As Mistral's are: hidden from text otherwise, and what begins a call here."""
    for file in DEMO.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    tokenizer._fast.add_special_tokens([AddedToken("[TOOL_CALLS]", special=True), AddedToken("[ARGS]", special=True)])
    tokenizer._fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    form, asked = chat_format(MISTRAL, tokenizer), chat()
    output = form.output("r", asked, form.render(asked), has_constraint=False)
    assert form.shown_ids(output) == {tokenizer.special_id("[TOOL_CALLS]"), tokenizer.special_id("[ARGS]")}
    without = pb.Chat(messages=asked.messages)
    assert not form.shown_ids(form.output("r", without, form.render(without), has_constraint=False))


def test_markers_of_harmony_show_without_tools(tmp_path: Path) -> None:
    """And an answer of tokens is read through them, with the end of a call that ends the answer."""
    for file in DEMO.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tokenizer = Tokenizer.load(tmp_path)
    tokenizer._fast.add_special_tokens([AddedToken(marker, special=True) for marker in MARKERS[ToolFormat.HARMONY]])
    tokenizer._fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    form = chat_format(HARMONY, tokenizer)
    for asked in (chat(), pb.Chat(messages=chat().messages)):
        request, output = inputs_of(form, tokenizer).convert(pb.Submit(request_id="r", chat=asked))
        assert output is not None and form.shown_ids(output) == request.shown_special_ids
        text, parser = detokenizer_for(request, tokenizer), output.choice(0)
        written = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{WRITTEN['harmony']}<|call|>"
        ids = tokenizer.encode(written, add_special_tokens=False)
        parts = [parser.feed(text.append(token_id)) for token_id in ids] + [parser.finish(text.flush())]
        assert "".join(part.reasoning for part in parts) == "Hm."
        calls = "".join(call.arguments for part in parts for call in part.calls)
        assert json.loads(calls or "".join(part.text for part in parts)) == ARGUMENTS
        assert bool(calls) == bool(asked.tools)


NAMELESS = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
BAD: dict[str, tuple[pb.Submit, str, str]] = {
    "no prompt": (pb.Submit(), "empty_prompt", "no prompt"),
    "many stops": (pb.Submit(text="a", sampling=pb.Sampling(stop=["x"] * 65)), "invalid_value", "more than 64"),
    "a long stop": (pb.Submit(text="a", sampling=pb.Sampling(stop=["x" * 1001])), "invalid_value", "1000"),
    "an unknown constraint": (pb.Submit(text="a", constraint=pb.Constraint(kind=99)), "invalid_constraint", "kind 99"),  # type: ignore[arg-type]
    "a weight": (pb.Submit(text="a", slo=pb.Slo(weight=float("nan"))), "invalid_value", "weight"),
    "tools that nobody can read": (pb.Submit(chat=chat()), "tools_not_supported", "cannot parse"),
}


@pytest.mark.parametrize(("submit", "code", "words"), BAD.values(), ids=BAD)
def test_a_bad_request_is_refused_by_what_is_wrong(
    submit: pb.Submit, code: str, words: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(RequestError, match=words) as refused:
        inputs_of(chat_format(NAMELESS, tokenizer), tokenizer).convert(submit)
    assert refused.value.code == code
    assert refused.value.fix


@pytest.mark.parametrize(
    "submit",
    [
        pb.Submit(text="hello " * 2_000),
        pb.Submit(text="a", more_prompts=[pb.Prompt(text="hello " * 2_000)]),
        pb.Submit(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hello " * 2_000)])),
    ],
    ids=["text", "another prompt", "chat"],
)
def test_prompts_that_are_clearly_too_long_are_refused_before_they_are_tokens(
    submit: pb.Submit, tokenizer: Tokenizer
) -> None:
    form = chat_format(NAMELESS, tokenizer)
    with pytest.raises(RequestError, match=r"context is 100 tokens, and the prompt, 12\d+ characters") as refused:
        inputs_of(form, tokenizer, 100).convert(submit)
    assert refused.value.code == "context_length_exceeded"
    request, _ = inputs_of(form, tokenizer, 100_000).convert(submit)
    assert max(map(len, [request.prompt_token_ids, *request.more_prompts])) > 1_000


def test_further_prompts_and_tokens_that_are_none(tokenizer: Tokenizer) -> None:
    more = [pb.Prompt(text="b"), pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2]))]
    pooling = pb.Pooling(kind=pb.Pooling.MEAN, dimensions=4)
    inputs = inputs_of(chat_format(NAMELESS, tokenizer), tokenizer)
    request, output = inputs.convert(pb.Submit(text="a", more_prompts=more, pooling=pooling, prompt_only=True))
    assert output is None
    assert request.more_prompts == (tokenizer.encode("b", add_special_tokens=True), [1, 2])
    assert request.pooling is not None and request.pooling.dimensions == 4
    added = tokenizer.vocab_size  # an adapter may have trained a row for it
    assert inputs.text(pb.TokenIds(ids=[*tokenizer.encode("b", False), added])) == "b"
    with pytest.raises(RequestError, match="more than"):
        inputs.text(pb.TokenIds(ids=[tokenizer.vocab_size + MAX_NEW_TOKENS]))


def test_what_is_told_of_a_prompt(tokenizer: Tokenizer) -> None:
    scores = PromptLogprobs([5, 6], [0.0, -1.5], [0, 2], [[], [6, 7]], [[], [-0.5, -1.5]])
    message = delta_message(TokenDelta("r", 0, "", [], [], "", scores), False, tokenizer).prompt_logprobs
    assert (list(message.token_ids), list(message.ranks), message.num_top) == ([5, 6], [0, 2], 2)
    assert (list(message.top_ids), list(message.top_logprobs)) == ([6, 7], [-0.5, -1.5])
    assert set(message.token_bytes) == {5, 6, 7}
    assert delta_message(TokenDelta("r", 0, "", [], [], "", Embedding(b"1234")), False, tokenizer).embedding == b"1234"


def test_a_constraint_of_an_unknown_kind_takes_no_time_to_refuse(tokenizer: Tokenizer) -> None:
    inputs = inputs_of(chat_format(NAMELESS, tokenizer), tokenizer)
    assert inputs.is_compiled(pb.Submit(text="a", constraint=pb.Constraint(kind=99)))  # type: ignore[arg-type]
    assert not inputs.is_compiled(pb.Submit(text="a", constraint=pb.Constraint(kind=1)))


def test_what_a_chat_with_tools_may_be_held_to(tokenizer: Tokenizer) -> None:
    form = chat_format(QWEN, tokenizer)
    asked = chat()
    output = form.output("r", asked, form.render(asked), has_constraint=True)
    for constraint, words in (
        (Constraint(Kind.JSON_OBJECT), "object"),
        (Constraint(Kind.CHOICE, '["yes", "no"]'), '"yes"'),
    ):
        held = form.constraint(asked, output, constraint)
        assert held is not None and held.kind is Kind.GRAMMAR
        assert words in held.text
    with pytest.raises(RequestError, match="regular expression"):
        form.constraint(asked, output, Constraint(Kind.REGEX, "a+"))


def test_metrics_count_what_this_host_generated() -> None:
    """Of an answer that another host began; its own time between tokens is that of its own tokens."""
    metrics = HostMetrics()
    usage = RequestUsage("r", "t", "", prompt_tokens=3, completion_tokens=24, decode_ms=300, first_token_ms=5)
    metrics.count(RequestFinished("r", usage), inter_token_ms=50, tokens_before=20)
    text = metrics.text()
    assert "completion_tokens_total 4" in text
    assert 'kept="no"' in text


def test_an_answer_goes_on_inside_of_its_reasoning(tokenizer: Tokenizer) -> None:
    form = chat_format(QWEN, tokenizer)
    begun = pb.ChatMessage(role="assistant", content="<think>Hm, ")
    asked = chat(begun, no_generation_prompt=True, continue_final_message=True)
    prompt = form.render(asked)
    assert prompt.endswith("<think>Hm, ")
    parsed = form.output("r", asked, prompt, has_constraint=False).choice(0).finish("well.</think>Yes.")
    assert (parsed.reasoning, parsed.text) == ("well.", "Yes.")
    over = chat(pb.ChatMessage(role="assistant", content="<think>Hm.</think>Y"), continue_final_message=True)
    parsed = form.output("r", over, form.render(over), has_constraint=False).choice(0).finish("es.")
    assert (parsed.reasoning, parsed.text) == ("", "es.")


def test_templates_find_reasoning_under_each_of_its_names(tokenizer: Tokenizer) -> None:
    names = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.reasoning }}|{{ m.thinking }}{% endfor %}"
    message = pb.ChatMessage(role="assistant", content="Yes.", reasoning="Hm.")
    assert chat_format(names, tokenizer).render(pb.Chat(messages=[message])) == "Hm.|Hm.|Hm."
