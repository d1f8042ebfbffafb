"""Answers held to a constraint, by the shipped demo model on the engine itself."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llguidance
import pytest

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.sequence import Sequence
from lora_engine.structured import Grammars, TokenMasks
from lora_engine.structured.masks import MaskBatch
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


def ready(masks: TokenMasks) -> TokenMasks:
    while not masks.ready:
        time.sleep(0.0005)
    return masks


def schema(value: object) -> Constraint:
    return Constraint(Kind.JSON_SCHEMA, json.dumps(value))


def ask_every_kind(engine: Engine) -> None:
    ask(engine, "free", "Tell me a joke.")
    ask(engine, "person", "Who are you?", schema(PERSON), n=3, temperature=1.0, seed=3, logprobs=True, top_logprobs=2)
    ask(engine, "choice", "Is the sky blue?", Constraint(Kind.CHOICE, '["yes", "no", "yes, but"]'))
    ask(engine, "regex", "A number", Constraint(Kind.REGEX, "[0-9]{3}-[a-z]{2}"), temperature=1.0, top_k=5)
    lark = Constraint(Kind.GRAMMAR, 'start: "a" rest\nrest: /[xyz]{1,5}/ "!"')
    ask(engine, "lark", "x", lark, presence_penalty=1.5, logit_bias={engine.tokenizer.encode("q", False)[0]: 100.0})
    ask(engine, "gbnf", "x", Constraint(Kind.GRAMMAR, 'root ::= "left" | "right"'), temperature=1.0, min_p=0.01)
    ask(engine, "free sampled", "Tell me a joke.", temperature=1.0, seed=5, top_p=0.9)
    ask(engine, "greedy", "Who are you?", schema(PERSON))


def check_every_kind(together: Answers) -> None:
    for key in (("greedy", 0), *(("person", choice) for choice in range(3))):
        person = json.loads(together[key][0])
        assert list(person) == ["name", "age", "tags"] and len(person["name"]) <= 12
        assert 0 <= person["age"] <= 120 and set(person["tags"]) <= {"a", "b"} and len(person["tags"]) <= 2
    assert len({together["person", choice] for choice in range(3)}) > 1
    assert together["choice", 0][0] in ("yes", "no", "yes, but")
    assert re.fullmatch("[0-9]{3}-[a-z]{2}", together["regex", 0][0])
    assert re.fullmatch("a[xyz]{1,5}!", together["lark", 0][0])
    assert together["gbnf", 0][0] in ("left", "right")
    assert {reason for _, reason in together.values()} == {"stop"}


def test_every_kind_beside_free_answers(any_engine: Engine) -> None:
    ask(any_engine, "free", "Tell me a joke.")
    ask(any_engine, "free sampled", "Tell me a joke.", temperature=1.0, seed=5, top_p=0.9)
    alone = answers(any_engine)
    ask_every_kind(any_engine)
    together = answers(any_engine)
    check_every_kind(together)
    assert {key: together[key] for key in alone} == alone


def test_masks_computed_together(any_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every grammar taken for quick from its first mask on."""
    monkeypatch.setattr("lora_engine.structured.masks.TRIED", 0)
    sizes: list[int] = []
    compute = MaskBatch.compute

    def noted(batch: MaskBatch) -> None:
        sizes.append(len(batch._of))
        compute(batch)

    monkeypatch.setattr(MaskBatch, "compute", noted)
    monkeypatch.setattr(any_engine, "grammars", Grammars(any_engine.tokenizer, any_engine.model_config.vocab_size))
    ask_every_kind(any_engine)
    together = answers(any_engine)
    any_engine.grammars.close()
    check_every_kind(together)
    assert max(sizes) > 1, "each was computed alone"
    monkeypatch.undo()
    ask_every_kind(any_engine)
    assert answers(any_engine) == together


def quick_masks(engine: Engine, grammars: Grammars, count: int) -> list[TokenMasks]:
    """Of grammars that were tried."""
    made = []
    for index in range(count):
        grammar = grammars.compile(Constraint(Kind.REGEX, f"[a-z]{{{index + 3}}}"))
        for _ in range(32):
            grammar.mask_took(0.00001)
        masks = grammar.start()
        masks.take(engine.tokenizer.encode("a", False)[0])
        assert masks.are_quick
        made.append(masks)
    return made


@pytest.fixture
def grammars(engine: Engine) -> Iterator[Grammars]:
    """Without what other tests have found out about grammars."""
    grammars = Grammars(engine.tokenizer, engine.model_config.vocab_size)
    yield grammars
    grammars.close()


def test_a_batch_that_fails_is_computed_one_by_one(engine: Engine, grammars: Grammars) -> None:
    class Broken:
        def is_error(self) -> bool:
            return False

        def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
            raise OSError("no such memory")

    good, bad = quick_masks(engine, grammars, 2)
    bad._matcher = Broken()  # type: ignore[assignment]
    grammars.begin_masks([good, bad])
    assert ready(good).mask.any()
    with pytest.raises(RequestError) as refused:
        _ = ready(bad).mask
    assert refused.value.code == "engine_error"


def test_grammars_of_batches_that_are_often_late_are_tried_alone(engine: Engine, grammars: Grammars) -> None:
    one, other = quick_masks(engine, grammars, 2)
    for late in (True, False, False):
        grammars.begin_masks([one, other])
        if late:  # said by each answer that was held, and counted once
            one.was_late()
            other.was_late()
        ready(one), ready(other)
        assert one.are_quick and other.are_quick, "one late batch is no reason"
    for _ in range(4):
        batch = MaskBatch([one, other], None)  # type: ignore[arg-type]
        batch.was_late()
    assert not one.are_quick and not other.are_quick
    for _ in range(32):
        one._grammar.mask_took(0.00001)
    assert one.are_quick and not other.are_quick


def test_a_batch_that_takes_long_is_late_and_the_step_goes_on(
    engine: Engine, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        def unsafe_compute_mask_ptr(self, wanted: object, address: int, size: int, count: int) -> None:
            assert go_on.wait(20)
            executor.unsafe_compute_mask_ptr(wanted, address, size, count)

    (quick,), go_on, executor = quick_masks(engine, grammars, 1), threading.Event(), llguidance.LLExecutor(1)
    monkeypatch.setattr(grammars._workers, "_executor", Slow())
    for _ in range(3):
        grammars.begin_masks([quick])
        assert not quick.ready
        go_on.set()
        assert ready(quick).mask.any()
        go_on.clear()
    assert not quick.are_quick, "it is tried alone again"


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "no graphs"])
def test_on_a_gpu_as_on_a_processor(engine: Engine, graphs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With overlapped steps and the kernels' masks: the likeliest tokens are the same; nothing is compiled for them."""
    import triton

    config = EngineConfig(model=DEMO, device="cuda", dtype="float32", cuda_graphs=graphs, pool_mb=256, max_running=16)
    on_gpu = Engine(config, LoadedAdapters())
    compiled: list[str] = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook", lambda **kernel: compiled.append(kernel["repr"]))
    ask_every_kind(on_gpu)
    got = answers(on_gpu)
    on_gpu.core.check()
    on_gpu.grammars.close()
    check_every_kind(got)
    assert not compiled
    ask_every_kind(engine)
    wanted = answers(engine)
    for name in ("free", "greedy", "choice", "lark"):
        assert got[name, 0] == wanted[name, 0], name


def test_a_truncated_answer_says_length_and_a_complete_one_stop(any_engine: Engine) -> None:
    ask(any_engine, "cut", "Who are you?", schema(PERSON), max_tokens=5)
    exactly = len(any_engine.tokenizer.encode("no", False))
    ask(any_engine, "whole", "Who are you?", Constraint(Kind.CHOICE, '["no"]'), max_tokens=exactly)
    ask(any_engine, "never ending", "x", Constraint(Kind.REGEX, "a*"), max_tokens=9, ignore_eos=True)
    got = answers(any_engine)
    assert got["cut", 0][1] == "length"
    assert got["whole", 0] == ("no", "stop")
    assert set(got["never ending", 0][0]) <= {"a"}


def test_an_answer_is_as_long_as_asked_unless_its_grammar_ends(any_engine: Engine) -> None:
    ask(any_engine, "long enough", "x", Constraint(Kind.REGEX, "(ab)*"), min_tokens=12, max_tokens=16)
    ask(any_engine, "complete", "x", Constraint(Kind.CHOICE, '["no"]'), min_tokens=12, max_tokens=16)
    got = answers(any_engine)
    text, _ = got["long enough", 0]
    assert len(any_engine.tokenizer.encode(text, False)) >= 6 and text == "ab" * (len(text) // 2) + "a" * (
        len(text) % 2
    )
    assert got["complete", 0] == ("no", "stop")


def test_stop_strings_end_an_answer_as_ever(any_engine: Engine) -> None:
    ask(any_engine, "stopped", "Who are you?", schema(PERSON), stop=("age",))
    text, reason = answers(any_engine)["stopped", 0]
    assert reason == "stop" and "age" not in text and text.startswith("{")


def test_masks_that_are_late_hold_their_own_answer_only(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on in every step, and the answer is what it would have been."""
    engine.runner.overlaps = True
    ask(engine, "constrained", "Who are you?", schema(PERSON), temperature=1.0, seed=1)
    in_time = answers(engine)
    late: list[TokenMasks] = []

    def begin_late(masks: TokenMasks) -> None:
        original(masks)
        ready(masks)
        masks.ready = False
        late.append(masks)

    original = TokenMasks.begin_mask
    monkeypatch.setattr(TokenMasks, "begin_mask", begin_late)
    monkeypatch.setattr(TokenMasks, "are_quick", False)  # each is computed alone
    monkeypatch.setattr("lora_engine.engine._MASK_PATIENCE_S", 0.0)
    ask(engine, "constrained", "Who are you?", schema(PERSON), temperature=1.0, seed=1)
    ask(engine, "free", "Tell me a joke.", ignore_eos=True, max_tokens=149)
    texts, steps, free, deferred = {"constrained": "", "free": ""}, 0, [], [0]
    defer = engine.core.defer

    def counted(sequence: Sequence) -> None:
        deferred[0] += 1
        defer(sequence)

    monkeypatch.setattr(engine.core, "defer", counted)
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
                late.pop().ready = True
    engine.runner.overlaps = False
    assert texts["constrained"] == in_time["constrained", 0][0]
    tokens = len(in_time["constrained", 0][0].encode())  # at least as many as tokens
    assert 3 < deferred[0] <= tokens, "it took part in steps although its mask was missing"
    assert free[:149] == list(range(free[0], free[0] + 149)), "a step without a token for the free answer"


def test_compiled_constraints_are_kept(engine: Engine) -> None:
    one = engine.grammars.compile(schema(PERSON))
    assert engine.grammars.compile(schema(PERSON)) is one is engine.grammars.find(schema(PERSON))
    assert engine.grammars.find(schema({"type": "integer", "minimum": 7})) is None


def test_what_cannot_be_enforced_is_refused_with_its_place(engine: Engine) -> None:
    with pytest.raises(RequestError) as refused:
        engine.grammars.compile(schema({"properties": {"a": {"$dynamicRef": "#x"}}}))
    assert refused.value.code == "invalid_constraint" and "properties.a.$dynamicRef" in refused.value.message
    assert refused.value.fix
    assert engine.grammars.find(schema({"properties": {"a": {"$dynamicRef": "#x"}}})) is None


def test_a_grammar_that_becomes_too_complex_ends_its_request_only(
    any_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = llguidance.LLParserLimits(max_items_in_row=20, verbose_errors=False)
    monkeypatch.setattr("lora_engine.constraints.compiling.parser_limits", lambda: tight)
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


def test_a_host_without_the_library_serves_everything_else(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    grammars = Grammars(engine.tokenizer, engine.model_config.vocab_size)
    grammars.prepare()
    with pytest.raises(RequestError) as refused:
        grammars.compile(Constraint(Kind.JSON_OBJECT))
    assert refused.value.code == "structured_outputs_unavailable" and refused.value.fix
    ask(engine, "free", "Tell me a joke.")
    assert answers(engine)["free", 0][1] == "stop"


def test_a_model_without_an_end_cannot_be_constrained(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.tokenizer, "eos_token_ids", frozenset())
    with pytest.raises(RequestError, match="no token that ends an answer"):
        Grammars(engine.tokenizer, engine.model_config.vocab_size).compile(Constraint(Kind.JSON_OBJECT))


def test_a_grammar_whose_masks_take_long_has_other_threads(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = engine.grammars.compile(Constraint(Kind.REGEX, "[a-z]{3}"))
    usual, masks = grammar.lane, grammar.start()
    monkeypatch.setattr("lora_engine.structured.masks.SLOW_S", -1.0)
    masks.begin_mask()
    assert ready(masks).mask.any()
    assert grammar.lane is not usual


def test_one_mask_that_took_long_leaves_its_grammar_among_the_usual(engine: Engine) -> None:
    """On a GPU one in some thousands of masks took 6 ms, and all answers of its schema went at half speed from then."""
    grammar = engine.grammars.compile(Constraint(Kind.REGEX, "[a-z]{4}"))
    usual = grammar.lane
    for seconds in (0.00006, 0.006, 0.00006, 0.02):
        grammar.mask_took(seconds)
        assert grammar.lane is usual
    for _ in range(8):
        grammar.mask_took(0.02)
    assert grammar.is_slow and grammar.lane is not usual
    for _ in range(64):
        grammar.mask_took(0.0001)
    assert grammar.lane is usual


def test_a_mask_that_fails_ends_its_request_only(any_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def consume_token(self, token: int) -> bool:
            return True

        def is_stopped(self) -> bool:
            return False

        def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
            raise OSError("no such memory")

    ask(any_engine, "broken", "x", Constraint(Kind.REGEX, "[a-z]{30}"))
    ask(any_engine, "free", "Tell me a joke.")
    monkeypatch.setattr(any_engine.core.requests["broken"].sequences[0].masks, "_matcher", Broken())
    ended = {}
    while any_engine.has_work():
        ended |= {end.request_id: end.error for end in any_engine.step().finished}
        any_engine.core.check()
    assert ended["broken"] is not None and ended["broken"].code == "engine_error"
    assert ended["free"] is None
