from __future__ import annotations

import json
import random

import pytest
from lorikeet_testing.template_families import FAMILIES, SPECIAL
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from lora_engine.errors import RequestError
from lora_engine.text import ChatTemplate, TokenizerError

CHATML = (
    "{{ bos_token }}{% for message in messages %}\n"
    "    {% if message.role not in ['system', 'user', 'assistant'] %}\n"
    "        {{ raise_exception('unknown role ' + message.role) }}\n"
    "    {% endif %}\n"
    "<|{{ message['role'] }}|>{{ message.content | trim }}<|end|>\n"
    "    {% if loop.last %}{% break %}{% endif %}\n"
    "{% endfor %}"
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ messages | tojson(indent=2) }}{{ ns.n }}{{ strftime_now('%Y')[:0] }}"
    "{% generation %}{% if add_generation_prompt %}<|assistant|>{% endif %}{% endgeneration %}"
)
MESSAGES = [{"role": "system", "content": " é <b> "}, {"role": "user", "content": "hi"}]


def folder_with(tmp_path, template=None, jinja=None):
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    if template is not None:
        config["chat_template"] = template
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if jinja is not None:
        (tmp_path / "chat_template.jinja").write_text(jinja)
    return tmp_path


@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers_does(tokenizer_folders, prompt):
    path = tokenizer_folders["byte_level"] / "tokenizer.json"
    reference = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")
    reference.chat_template = CHATML
    expected = reference.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=prompt)
    ours = ChatTemplate(CHATML, {"bos_token": "<s>", "eos_token": "</s>"})
    assert ours.render(MESSAGES, add_generation_prompt=prompt) == expected


@pytest.mark.parametrize("last", ["Once upon a", " padded "])
def test_an_unfinished_answer_ends_as_transformers_ends_it(tokenizer_folders, last):
    source = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>\n{% endfor %}<|assistant|>"
    path = tokenizer_folders["byte_level"] / "tokenizer.json"
    reference = PreTrainedTokenizerFast(tokenizer_file=str(path), bos_token="<s>", eos_token="</s>")
    reference.chat_template = source
    messages = [{"role": "user", "content": "Once upon a"}, {"role": "assistant", "content": last}]
    expected = reference.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    assert ChatTemplate(source, {}).render_unfinished(messages) == expected


def test_an_answer_that_the_template_does_not_show_cannot_be_continued():
    template = ChatTemplate("{% for m in messages %}{{ m.content | upper }}{% endfor %}", {})
    for last in ("abc", "a"):
        with pytest.raises(RequestError) as caught:
            template.render_unfinished([{"role": "assistant", "content": last}])
        assert caught.value.param == "continue_final_message"


# Texts in which the end tokens, the roles and the other messages of templates occur, and which begin and end with
# white space. Others are made of these pieces.
PIECES = (
    "d",
    "end",
    "|",
    ">",
    "<|im_end|>",
    "</s>",
    " ",
    "\n",
    "\n\n",
    "\t",
    "é",
    "👍🏽",
    "assistant",
    "Which",
    "[/INST]",
    "model",
    "{",
    "}}",
    "{% if %}",
    '"',
    "\\n",
    "CONTINUE",
    "The answer is",
    "1.",
    "<",
    "<think>",
    "<end_of_turn>",
    "_",
)
QUESTION = {"role": "user", "content": "Which letter? a, b, c or d? CONTINUE"}


def texts(count: int) -> list[str]:
    rng = random.Random(30)
    return [*PIECES, *("".join(rng.choices(PIECES, k=rng.randint(2, 6))) for _ in range(count - len(PIECES)))]


def check_continuation(template: ChatTemplate, prefill: str) -> None:
    """As transformers ends the prompt. Where it refuses a text that the template changes, so do we."""
    source, messages = template.source, [QUESTION, {"role": "assistant", "content": prefill}]
    try:
        ([expected], _) = render_jinja_template(
            [messages], chat_template=source, continue_final_message=True, **SPECIAL
        )
    except ValueError:
        with pytest.raises(RequestError):
            template.render_unfinished(messages)
        return
    assert template.render_unfinished(messages) == expected, (source, prefill)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_answer_goes_on_where_transformers_ends_the_prompt(name: str) -> None:
    template = ChatTemplate(FAMILIES[name], SPECIAL)
    for prefill in ("", *PIECES, "  The d\n\n", "a\n b |"):
        check_continuation(template, prefill)


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_every_prefix_of_many_texts_is_continued(name: str) -> None:
    template = ChatTemplate(FAMILIES[name], SPECIAL)
    for prefill in sorted({text[:end] for text in texts(200) for end in range(len(text) + 1)}):
        check_continuation(template, prefill)


def test_where_templates_come_from(tmp_path):
    user = [{"role": "user", "content": "x"}]
    assert ChatTemplate.load(folder_with(tmp_path, "one")).render(user) == "one"
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "three"}]
    assert ChatTemplate.load(folder_with(tmp_path, named)).render(user) == "two"
    assert ChatTemplate.load(folder_with(tmp_path, named[1:])).render(user) == "three"
    assert ChatTemplate.load(folder_with(tmp_path, "one", "file{{ eos_token }}")).render(user) == "file</s>"
    assert ChatTemplate.load(tmp_path).digest.startswith("sha256:")


@pytest.mark.parametrize("template", ["{% if %}", [{"name": "a", "template": "x"}, {"name": "b", "template": "y"}], 7])
def test_unusable_templates_fail_at_start(tmp_path, template):
    with pytest.raises(TokenizerError, match="chat_template"):
        ChatTemplate.load(folder_with(tmp_path, template))


def test_a_model_without_template_says_so(tmp_path):
    template = ChatTemplate.load(folder_with(tmp_path))
    assert template.digest == ""
    with pytest.raises(RequestError) as caught:
        template.render(MESSAGES)
    assert caught.value.code == "chat_template_missing"
    assert caught.value.fix


@pytest.mark.parametrize(
    "messages", [[{"role": "robot", "content": "x"}], [{"role": "user", "content": object()}], [7]]
)
def test_messages_that_do_not_fit(messages):
    with pytest.raises(RequestError) as caught:
        ChatTemplate(CHATML, {"bos_token": ""}).render(messages)
    assert caught.value.code == "invalid_messages"
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_the_sandbox_holds(source):
    with pytest.raises(RequestError):
        ChatTemplate(source, {}).render(MESSAGES)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
TOOLED = "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"


def test_tools_reach_the_template():
    assert ChatTemplate(TOOLED, {}).render(MESSAGES, tools=[TOOL]).startswith('[{"type": "function"')
    named = ChatTemplate("plain", {}, tool_source=TOOLED)
    assert named.render(MESSAGES) == "plain"
    assert named.render([{"role": "tool", "content": "12", "tool_call_id": "x"}]) == "12"


def test_a_template_that_takes_one_call_only() -> None:
    calls = "{% for m in messages %}{% if m.tool_calls %}{% if m.tool_calls | length > 1 %}{{ raise_exception('1') }}"
    one = ChatTemplate(f"{{{{ tools }}}}{calls}{{% endif %}}{{% endif %}}{{% endfor %}}", {})
    assert one.takes_one_call_only
    assert not ChatTemplate(TOOLED, {}).takes_one_call_only
    assert not ChatTemplate("plain", {}).takes_one_call_only
    assert not ChatTemplate(TOOLED + "{{ raise_exception('never') }}", {}).takes_one_call_only


@pytest.mark.parametrize(
    ("messages", "tools", "param"),
    [
        (MESSAGES, [TOOL], "tools"),
        ([{"role": "tool", "content": ""}], [], "messages"),
        ([{"role": "assistant", "content": "", "tool_calls": [1]}], [], "messages"),
    ],
)
def test_a_template_without_tools_says_so(messages, tools, param):
    with pytest.raises(RequestError) as caught:
        ChatTemplate("{{ messages }}", {}).render(messages, tools=tools)
    assert (caught.value.code, caught.value.param) == ("tools_not_supported", param)


def test_variables_of_a_request_reach_the_template():
    template = ChatTemplate(
        "{{ enable_thinking }}{{ bos_token }}{% set own = 1 %}{{ strftime_now('%Y')[:0] }}", {"bos_token": "<s>"}
    )
    assert template.render(MESSAGES, template_kwargs={"enable_thinking": False}) == "False<s>"
    for name in ("messages", "tools", "bos_token", "own", "strftime_now", "raise_exception", "loop", "nowhere"):
        with pytest.raises(RequestError) as caught:
            template.render(MESSAGES, template_kwargs={name: []})
        assert caught.value.param == f"chat_template_kwargs.{name}"


def test_reasoning_effort_reaches_the_template():
    assert ChatTemplate("{{ reasoning_effort }}", {}).render(MESSAGES, reasoning_effort="low") == "low"
    switch = ChatTemplate("{{ enable_thinking }}", {})
    assert switch.render(MESSAGES, reasoning_effort="none") == "False"
    assert switch.render(MESSAGES, reasoning_effort="high") == "True"
    assert switch.render(MESSAGES, reasoning_effort="high", template_kwargs={"enable_thinking": False}) == "False"
    assert ChatTemplate("x", {}).render(MESSAGES, reasoning_effort="none") == "x"
    with pytest.raises(RequestError) as caught:
        ChatTemplate("x", {}).render(MESSAGES, reasoning_effort="low")
    assert caught.value.param == "reasoning_effort"
