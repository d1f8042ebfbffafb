"""Templates in processes of their own: they write what they would write in the engine's, and harm nobody."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from lora_engine.errors import RequestError
from lora_engine.server.chat import MAX_ADAPTER_TEMPLATES, ChatFormat
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.wire import engine_pb2 as pb

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
PLAIN = "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ nice }}"
WITH_TOOLS = PLAIN + "{{ tools | tojson }}{{ messages[-1].tool_calls | default('') | tojson }}"
# Harmless in a trial: it waits for a word.
WAITING = PLAIN + (
    "{% if 'now' in messages[0].content %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}{% elif 'much' in messages[0].content %}{{ 'x' * 10 ** 7 }}"
    "{% elif 'all' in messages[0].content %}{{ 'x' * 10 ** 9 }}{% endif %}"
)


def user(content: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def own(source: str = PLAIN, tool_source: str | None = WITH_TOOLS) -> ChatTemplate:
    return ChatTemplate.of_adapter(source, SPECIAL, tool_source)


def test_the_same_text() -> None:
    here, there = ChatTemplate(PLAIN, SPECIAL, tool_source=WITH_TOOLS), own()
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    assert there.source == here.source and there.digest == here.digest
    assert there.takes_tools and there.takes_one_call_only == here.takes_one_call_only
    for asked in (
        {"messages": user("äöü 你好 'quoted' \U0001f600")},
        {"messages": user("x"), "tools": [tool]},
        {"messages": user("x"), "template_kwargs": {"nice": {"a": [1, None, 0.5]}}},
    ):
        assert there.render(**asked) == here.render(**asked)
    assert there.render_unfinished(user("and so")) == here.render_unfinished(user("and so"))
    for refused in ({"template_kwargs": {"unknown": 1}}, {"template_kwargs": {"messages": []}}):
        with pytest.raises(RequestError) as caught:
            there.render(user("x"), **refused)
        assert caught.value.code == "invalid_value"
    with pytest.raises(RequestError) as caught:
        own("{{ raise_exception('No names.') }}").render(user("x"))
    assert caught.value.code == "invalid_messages" and "No names." in caught.value.message


@pytest.mark.parametrize("word", ["now", "much", "all"])
def test_one_that_waited_is_stopped(word: str) -> None:
    """Neither its next chat nor one beside it notices."""
    template, beside = own(WAITING, None), list[str]()
    together = threading.Thread(target=lambda: beside.append(template.render(user("hello"))))
    together.start()
    began = time.monotonic()
    with pytest.raises(RequestError) as caught:
        template.render(user(f"{word}, please"))
    assert caught.value.code == "chat_template_too_costly" and caught.value.fix
    assert time.monotonic() - began < 15
    together.join()
    assert beside == [template.render(user("hello"))] == ["<s><user>hello"]


def test_no_conversation_is_seen_by_another() -> None:
    """Not even by a template that keeps what it can."""
    template = own("{% set kept = cycler(messages[0].content) %}{{ messages[0].content }}{{ kept.next() }}", None)
    assert [template.render(user(word)) for word in ("one", "two")] == ["oneone", "twotwo"]


def test_a_long_conversation() -> None:
    messages = [{"role": "user", "content": "word " * 20_000} for _ in range(30)]
    assert own().render(messages) == ChatTemplate(PLAIN, SPECIAL).render(messages)


@pytest.fixture
def form(tokenizer_folders: Any) -> ChatFormat:
    return ChatFormat(ChatTemplate("{{ messages[0].content }}", {}), Tokenizer.load(tokenizer_folders["byte_level"]))


def chat(source: str, **special: str) -> pb.Chat:
    template = pb.ChatTemplate(source=source, special_tokens=special)
    return pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")], own_template=template)


def test_processes_are_kept_bounded_and_made_again(form: ChatFormat) -> None:
    own_chat = chat(PLAIN, bos_token="<s>")
    first = form.of(own_chat)
    assert first is form.of(own_chat) and first.render(own_chat) == "<s><user>hi"
    assert form.of(pb.Chat()) is form
    os.kill(pid_of(first), signal.SIGKILL)
    while not first.template.has_ended:
        time.sleep(0.01)
    again = form.of(own_chat)
    assert again is not first and again.render(own_chat) == "<s><user>hi"
    pids = [pid_of(form.of(chat(f"{{{{ messages[0].content }}}}{number}"))) for number in range(MAX_ADAPTER_TEMPLATES)]
    assert form.of(own_chat) is not again, "the oldest one had to go"
    form.close()
    del again, first
    assert not any(map(is_running, pids)), "a process ends with the last that uses it"


def pid_of(form: ChatFormat) -> int:
    process = form.template._process
    assert process is not None
    return process._process.pid


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_answer_ends_at_the_adapters_own_end_too(form: ChatFormat) -> None:
    tokenizer = form._tokenizer
    known = next(text for text in ("<|im_end|>", "a", "e") if tokenizer.token_id(text) is not None)
    assert form.end_ids == ()
    assert form.of(chat(PLAIN, eos_token=known)).end_ids == (tokenizer.token_id(known),)
    assert form.of(chat(PLAIN, eos_token="no token of this model")).end_ids == ()
