"""Answers held to a constraint, by the shipped demo model on the engine itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jsonschema
import llguidance
import pytest

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, RequestError, SamplingParams
from lora_engine.structured import TokenMasks
from lora_engine.text import ChatTemplate

DEMO = Path(__file__).parents[2] / "demo" / "model"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
Answers = dict[tuple[str, int], tuple[str, str]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=DEMO), LoadedAdapters())
    yield engine
    engine.grammars.close()


@pytest.fixture(params=[False, True], ids=["in turn", "overlapped"])
def any_engine(engine: Engine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With steps that follow one another, and as on a GPU, where the host sees tokens a step late."""
    engine.runner.overlaps = request.param
    yield engine
    engine.runner.overlaps = False


def ask(engine: Engine, name: str, question: str, constraint: Constraint | None = None, **sampling: Any) -> None:
    prompt = ChatTemplate.load(DEMO).render([{"role": "user", "content": question}])
    tokens = engine.tokenizer.encode(prompt, add_special_tokens=False)
    params = SamplingParams(**{"max_tokens": 150, **sampling})
    grammar = None if constraint is None else engine.grammars.compile(constraint)
    engine.add_request(GenerationRequest(name, tokens, params, grammar=grammar))


def answers(engine: Engine) -> Answers:
    """Text and reason of every choice of what was asked; no request may fail."""
    texts: dict[tuple[str, int], str] = {}
    reasons: dict[tuple[str, int], str] = {}
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            key = delta.request_id, delta.choice
            texts[key] = texts.get(key, "") + delta.text
            reasons[key] = delta.finish_reason
        assert all(end.error is None for end in output.finished), [end.error for end in output.finished]
    return {key: (text, reasons[key]) for key, text in texts.items()}


def schema(value: object) -> Constraint:
    return Constraint(Kind.JSON_SCHEMA, json.dumps(value))


def test_every_kind_beside_free_answers(any_engine: Engine) -> None:
    engine = any_engine
    ask(engine, "free", "Tell me a joke.")
    ask(engine, "free sampled", "Tell me a joke.", temperature=1.0, seed=5, top_p=0.9)
    alone = answers(engine)
    ask(engine, "free", "Tell me a joke.")
    ask(engine, "person", "Who are you?", schema(PERSON), n=3, temperature=1.0, seed=3, logprobs=True, top_logprobs=2)
    ask(engine, "choice", "Is the sky blue?", Constraint(Kind.CHOICE, '["yes", "no", "yes, but"]'))
    ask(engine, "regex", "A number", Constraint(Kind.REGEX, "[0-9]{3}-[a-z]{2}"), temperature=1.0, top_k=5)
    lark = Constraint(Kind.GRAMMAR, 'start: "a" rest\nrest: /[xyz]{1,5}/ "!"')
    ask(engine, "lark", "x", lark, presence_penalty=1.5, logit_bias={engine.tokenizer.encode("q", False)[0]: 100.0})
    ask(engine, "gbnf", "x", Constraint(Kind.GRAMMAR, 'root ::= "left" | "right"'), temperature=1.0, min_p=0.01)
    ask(engine, "free sampled", "Tell me a joke.", temperature=1.0, seed=5, top_p=0.9)
    together = answers(engine)
    assert {key: together[key] for key in alone} == alone
    for choice in range(3):
        text, reason = together["person", choice]
        jsonschema.validate(json.loads(text), PERSON)
        assert reason == "stop"
    assert len({together["person", choice] for choice in range(3)}) > 1
    assert together["choice", 0][0] in ("yes", "no", "yes, but")
    assert re.fullmatch("[0-9]{3}-[a-z]{2}", together["regex", 0][0])
    assert re.fullmatch("a[xyz]{1,5}!", together["lark", 0][0])
    assert together["gbnf", 0][0] in ("left", "right")
    assert {reason for _, reason in together.values()} == {"stop"}


def test_a_truncated_answer_says_length_and_a_complete_one_stop(any_engine: Engine) -> None:
    ask(any_engine, "cut", "Who are you?", schema(PERSON), max_tokens=5)
    exactly = len(any_engine.tokenizer.encode("no", False))
    ask(any_engine, "whole", "Who are you?", Constraint(Kind.CHOICE, '["no"]'), max_tokens=exactly)
    ask(any_engine, "never ending", "x", Constraint(Kind.REGEX, "a*"), max_tokens=9, ignore_eos=True)
    got = answers(any_engine)
    assert got["cut", 0][1] == "length"
    assert got["whole", 0] == ("no", "stop")
    assert set(got["never ending", 0][0]) <= {"a"}


def test_stop_strings_end_an_answer_as_ever(any_engine: Engine) -> None:
    ask(any_engine, "stopped", "Who are you?", schema(PERSON), stop=("age",))
    text, reason = answers(any_engine)["stopped", 0]
    assert reason == "stop" and "age" not in text and text.startswith("{")


def test_masks_that_are_late_hold_their_own_answer_only(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on in every step, and the answer is what it would have been."""
    engine.runner.overlaps = True
    ask(engine, "constrained", "Who are you?", schema(PERSON), temperature=1.0, seed=1)
    in_time = answers(engine)
    late: list[Future[None]] = []

    def begin_late(masks: TokenMasks) -> None:
        original(masks)
        assert masks._computing is not None
        masks._computing.result()
        gate: Future[None] = Future()
        masks._computing = gate
        late.append(gate)

    original = TokenMasks.begin_mask
    monkeypatch.setattr(TokenMasks, "begin_mask", begin_late)
    monkeypatch.setattr("lora_engine.engine._MASK_PATIENCE_S", 0.0)
    ask(engine, "constrained", "Who are you?", schema(PERSON), temperature=1.0, seed=1)
    ask(engine, "free", "Tell me a joke.", ignore_eos=True, max_tokens=149)
    texts, steps, free = {"constrained": "", "free": ""}, 0, []
    while engine.has_work():
        steps += 1
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            texts[delta.request_id] += delta.text
            if delta.request_id == "free":
                free.append(steps)
        if steps % 3 == 0:
            while late:
                late.pop().set_result(None)
    engine.runner.overlaps = False
    assert texts["constrained"] == in_time["constrained", 0][0]
    assert free[:149] == list(range(free[0], free[0] + 149)), "a step without a token for the free answer"


def test_compiled_constraints_are_kept(engine: Engine) -> None:
    one = engine.grammars.compile(schema(PERSON))
    assert engine.grammars.compile(schema(PERSON)) is one is engine.grammars.find(schema(PERSON))
    assert engine.grammars.find(schema({"type": "integer", "minimum": 7})) is None


def test_what_cannot_be_enforced_is_refused_with_its_place(engine: Engine) -> None:
    with pytest.raises(RequestError) as refused:
        engine.grammars.compile(schema({"properties": {"a": {"not": {"type": "string"}}}}))
    assert refused.value.code == "invalid_constraint" and "properties.a.not" in refused.value.message
    assert refused.value.fix
    assert engine.grammars.find(schema({"properties": {"a": {"not": {"type": "string"}}}})) is None


def test_a_grammar_that_becomes_too_complex_ends_its_request_only(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = llguidance.LLParserLimits(max_items_in_row=20, verbose_errors=False)
    monkeypatch.setattr("lora_engine.constraints.compiling._limits", lambda: tight)
    ambiguous = Constraint(Kind.GRAMMAR, 'start: x\nx: x x | "a" | "aa" | "aaa" | "aaaa"')
    ask(any_engine, "hard", "x", ambiguous, logit_bias=dict.fromkeys(any_engine.tokenizer.eos_token_ids, -100.0))
    ask(any_engine, "free", "Tell me a joke.")
    ended = {}
    while any_engine.has_work():
        ended |= {end.request_id: end for end in any_engine.step().finished}
        any_engine.core.check()
    error = ended["hard"].error
    assert error is not None and error.code == "constraint_too_complex" and error.fix
    assert "<" not in error.message and ended["free"].error is None
