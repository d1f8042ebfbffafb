"""An answer that another host began ends as if nothing had happened: same tokens, same text, same reason."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.request import ChoiceSoFar, GenerationRequest, RequestUsage, SamplingParams, Slo
from lora_engine.structured.masks import Lane
from lora_engine.text import ChatTemplate

DEMO = Path(__file__).parents[2] / "demo" / "model"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "seeded": {"temperature": 1.2, "seed": 7, "top_p": 0.9},
    "penalised": {"temperature": 0.8, "seed": 3, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    "repetition": {"repetition_penalty": 1.4, "temperature": 1.0, "seed": 5},
    "stopped": {"stop": ("the", "e s", "\n\n"), "temperature": 1.0, "seed": 11},
    "stop kept, late": {"stop": ("e",), "include_stop": True, "min_tokens": 9, "temperature": 1.1, "seed": 2},
    "biased": {"logit_bias": {65: 3.0}, "temperature": 1.0, "seed": 1, "logprobs": True, "top_logprobs": 2},
    "constrained": {"temperature": 1.5, "seed": 4},
}


@dataclass
class Answer:
    pieces: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))  # a token's text each
    tokens: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    logprobs: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[int, str] = field(default_factory=dict)
    usage: RequestUsage | None = None


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64), LoadedAdapters())
    yield engine
    engine.grammars.close()


def requests(engine: Engine) -> dict[str, GenerationRequest]:
    prompt = ChatTemplate.load(DEMO).render([{"role": "user", "content": "Write a JSON record about a tortoise."}])
    tokens = engine.tokenizer.encode(prompt, add_special_tokens=False)
    grammar = engine.grammars.compile(Constraint(Kind.JSON_SCHEMA, json.dumps(SCHEMA)))
    return {
        name: GenerationRequest(
            name,
            tokens,
            SamplingParams(**{"max_tokens": 24 if name != "constrained" else 60, "n": 2, **way}),
            grammar=grammar if name == "constrained" else None,
        )
        for name, way in WAYS.items()
    }


def run(engine: Engine, asked: list[GenerationRequest]) -> dict[str, Answer]:
    """All of them in one batch."""
    found = defaultdict(Answer, {request.request_id: Answer() for request in asked})
    for request in asked:
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            answer = found[delta.request_id]
            answer.pieces[delta.choice].append(delta.text)
            answer.tokens[delta.choice] += delta.token_ids
            answer.logprobs[delta.choice] += delta.logprobs
            answer.reasons[delta.choice] = delta.finish_reason
        for end in output.finished:
            assert end.error is None, end.error
            found[end.request_id].usage = end.usage
        engine.core.check()
    return found


@pytest.mark.parametrize("overlaps", [False, True], ids=["in turn", "overlapped"])
def test_the_rest_is_as_it_would_have_been(engine: Engine, overlaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as on a GPU, where the host sees tokens a step late."""
    monkeypatch.setattr(engine.runner, "overlaps", overlaps)
    asked = requests(engine)
    whole = run(engine, list(asked.values()))
    assert {answer.reasons[0] for answer in whole.values()} == {"stop", "length"}
    rnd = random.Random(5)
    resumed, cuts = [], {}
    for name, request in asked.items():
        for number in range(4):
            # The two choices of a request are cut at different places; one of them may be over.
            cut = [rnd.randint(int(number == 0), len(whole[name].tokens[choice])) for choice in (0, 1)]
            so_far = tuple(
                ChoiceSoFar(choice, whole[name].tokens[choice][:at], at == len(whole[name].tokens[choice]))
                for choice, at in enumerate(cut)
            )
            resumed.append(replace(request, request_id=f"{name} {number}", so_far=so_far))
            cuts[f"{name} {number}"] = cut
    found = run(engine, resumed)
    for request in resumed:
        expected, answer = whole[request.request_id.rpartition(" ")[0]], found[request.request_id]
        for choice, at in enumerate(cuts[request.request_id]):
            assert answer.tokens[choice] == expected.tokens[choice][at:], request.request_id
            assert answer.pieces[choice] == expected.pieces[choice][at:], request.request_id
            for one, other in zip(answer.logprobs[choice], expected.logprobs[choice][at:], strict=True):
                assert one.token_id == other.token_id
                assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            if at < len(expected.tokens[choice]):
                assert answer.reasons[choice] == expected.reasons[choice]
        assert answer.usage is not None
        assert expected.usage is not None
        assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
        assert answer.usage.completion_tokens == expected.usage.completion_tokens
        assert answer.usage.outcome == "finished"


def test_a_background_answer_that_waits_for_its_mask_is_charged_to_the_background(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins to run in a step that computes nothing of it, and is the only background request."""
    request, submit, late = requests(engine)["constrained"], Lane.submit, list[Any]()
    request = replace(request, sampling=replace(request.sampling, n=1), slo=Slo(background=True), tenant="batch")
    whole = run(engine, [request])["constrained"]
    monkeypatch.setattr(Lane, "submit", lambda lane, task: late.append((lane, task)))
    engine.add_request(replace(request, request_id="resumed", so_far=(ChoiceSoFar(0, whole.tokens[0][:9]),)))
    engine.step()
    assert engine.num_running == 1 and late
    monkeypatch.undo()
    for lane, task in late:
        submit(lane, task)
    assert run(engine, [])["resumed"].tokens[0] == whole.tokens[0][9:]
    foreground = engine.core.queue.foreground
    assert "batch" not in {account.tenant for account in foreground.accounts}  # type: ignore[attr-defined]


def test_of_an_answer_that_is_all_there_only_the_usage_comes(engine: Engine) -> None:
    request = requests(engine)["greedy"]
    so_far = (ChoiceSoFar(0, [5, 6], finished=True), ChoiceSoFar(1, [7], finished=True))
    answer = run(engine, [replace(request, so_far=so_far)])["greedy"]
    assert not answer.tokens
    assert answer.usage is not None
    assert (answer.usage.outcome, answer.usage.completion_tokens) == ("finished", 3)
    assert answer.usage.prompt_tokens == len(request.prompt_token_ids)


@pytest.mark.parametrize(
    ("so_far", "more", "words"),
    [
        ((ChoiceSoFar(2, [1]),), {}, "2 choices"),
        ((ChoiceSoFar(0, [1]), ChoiceSoFar(0, [1])), {}, "choices"),
        ((ChoiceSoFar(0, [1 << 30]),), {}, "token id"),
        ((ChoiceSoFar(0, [1] * 24),), {}, "not finished"),
        ((ChoiceSoFar(0, [1]),), {"prompt_logprobs": 1}, "of its prompt"),
    ],
)
def test_what_cannot_be_resumed_is_refused(engine: Engine, so_far: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        engine.add_request(replace(requests(engine)["greedy"], so_far=so_far, **more))
    assert not engine.has_work()


def test_a_full_queue_refuses_what_is_new_and_not_what_goes_on() -> None:
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64, max_running=1, max_waiting=2), LoadedAdapters())
    try:
        new = requests(engine)["greedy"]
        for number in range(2):
            engine.add_request(replace(new, request_id=str(number), sampling=replace(new.sampling, n=1)))
        with pytest.raises(RequestError, match="already waiting"):
            engine.add_request(new)
        engine.add_request(replace(new, so_far=(ChoiceSoFar(0, [5, 6]),)))
        ended = [end.usage.outcome for _ in range(200) for end in engine.step().finished]
        assert ended == ["finished"] * 3
    finally:
        engine.grammars.close()


def test_tokens_that_no_grammar_allows_fail_the_request_alone(engine: Engine) -> None:
    request = replace(requests(engine)["constrained"], so_far=(ChoiceSoFar(0, [65, 66]),))
    engine.add_request(request)
    engine.add_request(requests(engine)["greedy"])
    ends = [end for _ in range(60) for end in engine.step().finished]
    assert {end.request_id: end.error.code if end.error else "" for end in ends} == {
        "constrained": "constraint_too_complex",
        "greedy": "",
    }


def test_what_was_cached_of_the_answer_is_no_prompt() -> None:
    """A request that comes back to a host: its prompt and the answer so far are cached there."""
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64), LoadedAdapters())
    try:
        asked = GenerationRequest("a", list(range(5, 12)), SamplingParams(max_tokens=60, ignore_eos=True))
        whole = run(engine, [asked])["a"]
        begun = (ChoiceSoFar(0, whole.tokens[0][:50]),)
        resumed = run(engine, [replace(asked, request_id="b", so_far=begun)])["b"]
        assert resumed.tokens[0] == whole.tokens[0][50:]
        assert resumed.usage is not None and resumed.usage.prompt_tokens == 7
        assert resumed.usage.cached_prompt_tokens == 7
    finally:
        engine.grammars.close()
