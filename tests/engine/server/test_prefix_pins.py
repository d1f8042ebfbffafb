"""Pinned prefixes over the wire: what of a prompt is pinned, who computes it, and what is said of each."""

from __future__ import annotations

import asyncio

import pytest
from lorikeet_testing.engine_client import text_request
from lorikeet_testing.tiny_models import save_tokenizer

from lora_engine.errors import RequestError
from lora_engine.request import PinState
from lora_engine.server import prefix_pins
from lora_engine.server.chat import ChatFormat
from lora_engine.server.input_processor import InputProcessor
from lora_engine.structured import Grammars
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import KnownPrefixes, prefix_marks

LONG = "Once upon a time there was a parrot. " * 8
MARKED = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# As Mistral's and Gemma's: the system prompt is a part of the last or the first message of the user.
FOLDED = (
    "{% for m in messages %}{% if m.role == 'user' and loop.last %}{{ m.content }}{{ messages[0].content }}"
    "{% elif m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"
)
TWICE = "{% if loop.index0 and messages[loop.index0 - 1].role == m.role %}{{ raise_exception('twice') }}{% endif %}"
ALTERNATING = MARKED.replace("<{{ m.role }}>", TWICE + "<{{ m.role }}>", 1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return Tokenizer.load(folder)


def chat(*messages: tuple[str, str]) -> pb.Submit:
    return pb.Submit(chat=pb.Chat(messages=[pb.ChatMessage(role=role, content=content) for role, content in messages]))


def beginning(submit: pb.Submit, tokenizer: Tokenizer, template: str = MARKED) -> list[int]:
    chat_format = ChatFormat(ChatTemplate(template, {}), tokenizer)
    return InputProcessor(tokenizer, chat_format, Grammars(tokenizer, tokenizer.vocab_size)).beginning(submit)


def text_of(submit: pb.Submit, tokenizer: Tokenizer, template: str = MARKED) -> str:
    return tokenizer.decode(beginning(submit, tokenizer, template), keep_special_tokens=True)


@pytest.mark.parametrize("template", [MARKED, ALTERNATING])
def test_what_longer_chats_have_in_common_is_the_beginning(tokenizer: Tokenizer, template: str) -> None:
    system = ("system", "Be brief.")
    assert text_of(chat(system), tokenizer, template).startswith("<system>Be brief.</system><user")
    found = text_of(chat(system, ("user", "Hi")), tokenizer, template)
    assert found.startswith("<system>Be brief.</system><user>Hi</user><assistant"), "answers begin alike"
    turn = ("user", "Hi"), ("assistant", "Ho")
    assert text_of(chat(*turn), tokenizer, template).startswith("<user>Hi</user><assistant>Ho</assistant><user")


def test_of_a_template_that_moves_the_system_prompt_nothing_is_common(tokenizer: Tokenizer) -> None:
    assert text_of(chat(("system", "Be brief.")), tokenizer, FOLDED) == ""


def test_a_texts_last_token_is_its_beginning_only_if_no_longer_one_can_take_its_place(tokenizer: Tokenizer) -> None:
    found = text_of(pb.Submit(text="Once upon a tim"), tokenizer)
    assert "Once upon a tim".startswith(found) and len(found) >= len("Once upon a")
    ids = pb.TokenIds(ids=[5, 6, 7])
    assert beginning(pb.Submit(token_ids=ids), tokenizer) == [5, 6, 7]


def test_a_template_that_refuses_the_prefix_says_why(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="twice"):
        text_of(chat(("user", "a"), ("user", "b")), tokenizer, ALTERNATING)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_pins, "_CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(prefix_pins, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(prefix_pins, "_PATIENCE_POLL_S", 0.01)


def pinned(name: str, text: str = LONG, **fields: str) -> pb.PinnedPrefix:
    return pb.PinnedPrefix(name=name, prompt=pb.Submit(text=text, tenant="acme", **fields))


async def pin(client, *prefixes: pb.PinnedPrefix) -> dict[str, pb.PrefixState]:
    reply = await client.stub.PinPrefixes(pb.PinPrefixesRequest(prefixes=prefixes))
    return {state.name: state for state in reply.prefixes}


async def test_what_is_missing_is_computed_in_the_background_and_is_nobodys_usage(client, host, engine):
    said = await pin(client, pinned("one", cache_salt="s"), pinned("two", LONG + "More."))
    assert [state.state for state in said.values()] == [pb.PrefixState.KEPT] * 2
    (request,) = [request for request in engine.prompts.values() if request.pin == "one"]
    assert (request.tenant, request.cache_salt, request.prompt_only, request.slo.background) == (
        "acme",
        "s",
        True,
        True,
    )
    page = host.description.page_tokens
    assert len(request.prompt_token_ids) == said["one"].tokens // page * page, "full pages of it"
    assert not len(host.journal) and host.requests.idle
    asked = len(engine.prompts)
    assert {state.state for state in (await pin(client, pinned("one", cache_salt="s"))).values()} == {
        pb.PrefixState.KEPT
    }
    assert len(engine.prompts) == asked and set(engine.prefixes) == {"one"}
    async with client.session() as session:
        assert (await session.run(text_request("p"))).usage.outcome == "finished"
    known = KnownPrefixes()
    watch = client.stub.Watch(pb.WatchRequest(interval_ms=300, prefixes=True))
    known.observe(await anext(aiter(watch)))
    watch.cancel()
    asked = pb.Submit(text=LONG + "Tell me more.", tenant="acme", cache_salt="s")
    assert known.share(prefix_marks(asked)) > 0.6, "who has a choice of hosts sends requests to one that keeps it"
    assert not known.share(prefix_marks(pb.Submit(text=LONG, tenant="other", cache_salt="s")))
    assert await pin(client) == {} and engine.prefixes == {}


async def test_each_prefix_has_its_own_error(client, host, engine, monkeypatch):
    monkeypatch.setattr(host.inputs, "reject_base", lambda wanted: None)
    said = await pin(client, pinned("short", "Hi"), pb.PinnedPrefix(name="empty"), pinned("good"))
    assert (said["short"].state, said["short"].error.code) == (pb.PrefixState.FAILED, "prefix_too_short")
    assert (said["empty"].state, said["empty"].error.code) == (pb.PrefixState.FAILED, "empty_prompt")
    assert said["good"].state == pb.PrefixState.KEPT
    assert all(state.error.fix for state in said.values() if state.state == pb.PrefixState.FAILED)


async def test_another_base_models_prefix_is_refused(client, host, engine):
    said = await pin(client, pinned("other", base_digest="sha256:another"))
    assert said["other"].error.code == "other_base_model" and not engine.prefixes


async def test_what_fails_is_said_and_tried_again_later(client, host, engine, monkeypatch):
    monkeypatch.setattr(prefix_pins, "_FAILED_REST_S", 0.1)
    add, broken = engine.add_request, [True]

    def refuse(request):
        if broken:
            raise RequestError("too_large_for_host", "No room.", "Ask the operator.")
        add(request)

    monkeypatch.setattr(engine, "add_request", refuse)
    said = await pin(client, pinned("one"))
    assert (said["one"].state, said["one"].error.code) == (pb.PrefixState.FAILED, "too_large_for_host")
    broken.clear()
    await asyncio.sleep(0.1)
    assert (await pin(client, pinned("one")))["one"].state == pb.PrefixState.KEPT


async def test_a_prefix_that_is_not_wanted_any_more_is_not_computed_on(client, host, engine):
    engine.gate.clear()
    assert (await pin(client, pinned("one")))["one"].state == pb.PrefixState.COMPUTING
    assert await pin(client) == {}
    for _ in range(100):
        if not engine._running:
            break
        await asyncio.sleep(0.02)
    assert not engine._running
    engine.gate.set()


def test_states_of_the_engine_have_a_word_on_the_wire() -> None:
    assert set(prefix_pins._STATES) == set(PinState)
