"""The grammar beyond an answer's last token: the same masks as without drafts, and no answer that fails or waits."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, RequestUsage, SamplingParams
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_engine.scheduling.speculation import Speculation
from lora_engine.structured import Grammars, TokenMasks
from lora_engine.structured.lookahead import Lookahead, MasksAhead
from lora_engine.structured.masks import Lane

DEMO = Path(__file__).parents[2] / "demo" / "model"
FORM = {
    "type": "object",
    "properties": {
        "address_of_the_customer": {"enum": ["north street", "north side", "south"]},
        "number": {"type": "integer", "minimum": 0, "maximum": 5000},
        "mail": {"type": "string", "pattern": "^[a-z]{3,20}@[a-z]{2,9}\\.com$"},
    },
    "required": ["address_of_the_customer", "number", "mail"],
    "additionalProperties": False,
}
CONSTRAINTS = {
    "schema": Constraint(Kind.JSON_SCHEMA, json.dumps(FORM)),
    "object": Constraint(Kind.JSON_OBJECT),
    "regex": Constraint(Kind.REGEX, "(north|south)(ern)? [a-z]{2,5}( street)?"),
    "lark": Constraint(Kind.GRAMMAR, 'start: part+ "."\npart: "(" part* ")" | /[0-9]{1,3}/ ";"'),
    "choice": Constraint(Kind.CHOICE, '["yes", "no", "yes, but only on days in the northern summer"]'),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64), LoadedAdapters())
    yield engine
    engine.grammars.close()


@pytest.fixture(scope="module")
def grammars(engine: Engine) -> Grammars:
    return engine.grammars


def allowed(masks: TokenMasks) -> list[int]:
    return np.flatnonzero(np.unpackbits(masks.mask.view(np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_masks_after_drafts_are_those_of_an_answer_that_has_them(grammars: Grammars, kind: str) -> None:
    """Random answers; before each token, masks after random drafts, of which a refused one and an end are the last."""
    grammar, rnd = grammars.compile(CONSTRAINTS[kind]), random.Random(3)
    compared = refused = forced = 0
    for _ in range(6):
        masks, tokens, complete = grammar.start(), list[int](), False
        while not complete and len(tokens) < 40:
            ahead, drafts, expected = masks.lookahead, list[int](), list[Any]()
            assert ahead is not None
            certain = ahead.forced(99)
            reference = follower(grammars, grammar, tokens)
            for step in range(rnd.randint(0, 5)):
                choice = allowed(reference)
                assert step >= len(certain) or choice == certain[step : step + 1], "a forced token is the only one"
                drafts.append(rnd.choice(choice))
                if reference.take(drafts[-1]):
                    break  # nothing follows
                grammars.begin_masks([reference])
                expected.append(wait(reference).mask.copy())
            wrong = [*drafts, 2559, 5]
            assert (ahead.allowed(wrong) == drafts) or len(expected) < len(drafts) or 2559 in ahead.allowed(wrong)
            assert ahead.allowed(drafts) == drafts
            refused += len(ahead.allowed(wrong)) < len(wrong)
            together = rnd.random() < 0.5
            MasksAhead([(ahead, drafts)], grammars._workers._of_batches() if together else None).compute()
            assert not ahead.is_busy and not ahead._failed
            assert len(ahead.masks_after(drafts)) == len(expected)
            for one, other in zip(ahead.masks_after(drafts), expected, strict=True):
                assert (one == other).all()
            assert not ahead.masks_after([*drafts]), "of other drafts"
            compared, forced = compared + len(expected), forced + len(certain)
            token = rnd.choice(allowed(wait(masks)))
            complete = masks.take(token)
            tokens.append(token)
            if not complete:
                grammars.begin_masks([masks])
    assert compared > 20 and refused and (forced or kind in ("object", "lark"))


def wait(masks: TokenMasks) -> TokenMasks:
    while not masks.ready:
        pass
    return masks


def follower(grammars: Grammars, grammar: Any, tokens: list[int]) -> TokenMasks:
    masks: TokenMasks = grammar.start()
    for token in tokens:
        assert not masks.take(token)
    if tokens:
        grammars.begin_masks([masks])
    return wait(masks)


def requests_of(engine: Engine, **sampling: Any) -> list[GenerationRequest]:
    prompt = engine.tokenizer.encode("Where do you live?", add_special_tokens=False)
    params = SamplingParams(**{"max_tokens": 50, "temperature": 1.0, "seed": 3, "logprobs": True, **sampling})
    return [
        GenerationRequest(kind, prompt, params, grammar=engine.grammars.compile(constraint))
        for kind, constraint in CONSTRAINTS.items()
    ] + [GenerationRequest("free", prompt, replace(params, ignore_eos=True))]


Result = tuple[dict[str, tuple[list[int], str, str]], dict[str, RequestUsage]]


def run(engine: Engine, requests: Sequence[GenerationRequest], speculation: Speculation | None) -> Result:
    engine.core.scheduler.speculation = speculation
    texts, usages = dict[str, tuple[list[int], str, str]](), dict[str, RequestUsage]()
    for request in requests:
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            tokens, text, _ = texts.get(delta.request_id, ([], "", ""))
            texts[delta.request_id] = tokens + delta.token_ids, text + delta.text, delta.finish_reason
        for end in output.finished:
            assert end.error is None, end.error
            usages[end.request_id] = end.usage
        engine.core.check()
    engine.core.scheduler.speculation = None
    return texts, usages


class Silent:
    """A drafter that knows nothing."""

    is_free = True

    def propose(self, sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        return [[] for _ in sequences]

    def forget(self, sequence: TokenSequence) -> None:
        """Do nothing: nothing is kept."""


@pytest.mark.parametrize("overlaps", [False, True], ids=["in turn", "overlapped"])
def test_forced_tokens_are_drafts_that_are_always_accepted(
    engine: Engine, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.runner, "overlaps", overlaps)
    monkeypatch.setattr(Lane, "submit", lambda lane, task: task())  # no mask is late
    steps = engine.steps
    expected, _ = run(engine, requests_of(engine, max_tokens=90)[:1], None)
    before, steps = engine.steps - steps, engine.steps
    answers, usages = run(engine, requests_of(engine, max_tokens=90)[:1], Speculation(Silent(), 4, 8))
    assert answers == expected and json.loads(answers["schema"][1])["number"] <= 5000
    assert usages["schema"].drafted_tokens == usages["schema"].accepted_tokens >= 10
    assert engine.steps - steps <= before - 8


def knowing(answers: dict[str, tuple[list[int], str, str]], right: float = 1.0) -> AlwaysDrafts:
    rnd = random.Random(1)
    known = following(lambda sequence: answers[sequence.request.request_id][0], rnd)
    return AlwaysDrafts(RandomDrafter(rnd, known, right), 4, 100)


class Held:
    """Computations of masks that end only when they are released, or none of whose masks, or only the first, come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.released, self.calls = threading.Event(), 0
        compute, advance = MasksAhead.compute, Lookahead.advance

        def held(batch: MasksAhead) -> None:
            self.calls += 1
            assert self.released.wait(30)
            compute(batch)

        def failing(ahead: Lookahead, draft: int) -> bool:
            self.calls += 1
            if self.calls % 7 == 0:
                raise MemoryError("no memory")
            return advance(ahead, draft if self.calls % 5 else 2559)

        if kind == "held":
            monkeypatch.setattr(MasksAhead, "compute", held)
        elif kind == "failing":
            monkeypatch.setattr(Lookahead, "advance", failing)
        elif kind == "slow":
            monkeypatch.setattr("lora_engine.structured.masks.SLOW_S", -1.0)
        else:
            monkeypatch.setattr(Lane, "submit", lambda lane, task: task())


@pytest.mark.parametrize("kind", ["held", "failing", "slow", "at once"])
def test_masks_that_do_not_come_cost_only_drafts(engine: Engine, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = run(engine, requests_of(engine), None)
    with monkeypatch.context() as patch:
        held = Held(patch, kind)
        try:
            answers, usages = run(engine, requests_of(engine), knowing(expected))
        finally:
            held.released.set()
    assert answers == expected
    accepted = {name: usage.accepted_tokens for name, usage in usages.items()}
    assert accepted["free"] > 20
    if kind == "at once":
        assert all(accepted.values())
    elif kind in ("held", "slow"):
        assert not any(count for name, count in accepted.items() if name != "free")
    assert (held.calls > 0) == (kind in ("held", "failing"))
    assert run(engine, requests_of(engine), knowing(expected, 0.8))[0] == expected
