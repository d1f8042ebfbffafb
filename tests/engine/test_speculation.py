"""Speculation changes no token, no log-probability and no usage, whatever is drafted, and saves steps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lorikeet_testing.arrivals import run_requests
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, RequestUsage, SamplingParams
from lora_engine.scheduling import suffix_lookup
from lora_engine.scheduling.scheduler import StepPlan
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_engine.scheduling.speculation import Speculation, speculation_of
from lora_engine.scheduling.suffix_lookup import SuffixLookup
from lora_engine.structured.masks import Lane
from lora_engine.text import ChatTemplate

DEMO = Path(__file__).parents[2] / "demo" / "model"
RECORD = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
FORM = {
    "type": "object",
    "properties": {
        "address_of_the_customer": {"enum": ["north street", "north side", "south"]},
        "number": {"type": "integer", "minimum": 0, "maximum": 5000},
        "kinds": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2, "maxItems": 4},
    },
    "required": ["address_of_the_customer", "number", "kinds"],
    "additionalProperties": False,
}
# Tokens that are about equally likely with this bias, so that noise and penalties choose between them.
FEW = {"logit_bias": dict.fromkeys(range(70, 78), 100.0), "temperature": 1.0}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"logprobs": True},
    "unseeded": FEW,
    "seeded": FEW | {"seed": 7, "top_p": 0.9, "top_k": 50, "min_p": 0.01},
    "penalised": FEW | {"seed": 3, "presence_penalty": 2.0, "frequency_penalty": 2.0},
    "repetition": FEW | {"repetition_penalty": 3.0, "seed": 5},
    "ending": FEW | {"stop_token_ids": (73,), "min_tokens": 12, "seed": 6},
    "stopped": {"stop": ("the", "e s", "\n\n"), "temperature": 1.0, "seed": 11},
    "stop kept, late": {"stop": ("e",), "include_stop": True, "min_tokens": 9, "temperature": 1.1, "seed": 2},
    "stop tokens": {"stop_token_ids": tuple(range(0, 400, 7)), "min_tokens": 3, "temperature": 1.0, "seed": 4},
    "biased": {"logit_bias": {65: 3.0}, "temperature": 1.0, "seed": 1, "logprobs": True, "top_logprobs": 2},
    "one token": {"max_tokens": 1},
    "two tokens": {"max_tokens": 2},
    "three choices": {"n": 3, "temperature": 1.3, "seed": 9},
    "constrained": {"temperature": 1.5, "seed": 4, "max_tokens": 60},
    "constrained greedily": {"max_tokens": 60, "logprobs": True, "top_logprobs": 1},
    "constrained, penalised": {"temperature": 1.0, "seed": 2, "max_tokens": 60, "presence_penalty": 1.5},
    "constrained, stopped": {"temperature": 1.0, "seed": 8, "max_tokens": 60, "stop": ("side", "h s", "0")},
    "constrained, late": {"max_tokens": 40, "temperature": 1.2, "seed": 3, "min_tokens": 30, "n": 2},
    "constrained, cut": {"max_tokens": 11, "temperature": 1.2, "seed": 3},
}


@dataclass
class Answer:
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    reason: str = ""


Answers = dict[tuple[str, int], Answer]
Usages = dict[str, RequestUsage]


def run(
    engine: Engine, requests: Sequence[GenerationRequest], late: random.Random | None = None
) -> tuple[Answers, Usages]:
    """Run all requests in one batch; ``late``: they come one by one, and some running ones are pre-empted."""
    answers = Answers()
    deltas, usages = run_requests(engine, requests, late)
    for delta in deltas:
        answer = answers.setdefault((delta.request_id, delta.choice), Answer())
        assert not answer.reason, "output after the end"
        answer.text += delta.text
        answer.tokens += delta.token_ids
        answer.logprobs += delta.logprobs
        answer.reason = delta.finish_reason
    stats = engine.pool_stats()
    assert stats.kv == 0
    assert stats.free + stats.cached_prefix + stats.adapter + stats.reserved == stats.total
    return answers, usages


def assert_same(answers: Answers, expected: Answers) -> None:
    assert answers.keys() == expected.keys()
    for key, answer in answers.items():
        want = expected[key]
        assert (answer.tokens, answer.text, answer.reason) == (want.tokens, want.text, want.reason), key
        for one, other in zip(answer.logprobs, want.logprobs, strict=True):
            assert one.token_id == other.token_id
            assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
            assert [value for _, value in one.top] == pytest.approx([value for _, value in other.top], abs=1e-4)


def knowing(answers: Answers, rnd: random.Random, right: float) -> RandomDrafter:
    """A drafter that knows the answers; beyond them, and after a wrong guess, it guesses any token."""
    answer = following(lambda sequence: answers[(sequence.request.request_id, sequence.choice)].tokens, rnd)
    return RandomDrafter(rnd, answer, right)


def draft(engine: Engine, monkeypatch: pytest.MonkeyPatch, speculation: Speculation | None) -> None:
    monkeypatch.setattr(engine.core.scheduler, "speculation", speculation)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = Engine(EngineConfig(model=DEMO, pool_mb=64), LoadedAdapters())
    yield engine
    engine.grammars.close()


@pytest.fixture(scope="module")
def requests(engine: Engine) -> list[GenerationRequest]:
    prompt = ChatTemplate.load(DEMO).render([{"role": "user", "content": "Write about a tortoise. About a tortoise."}])
    tokens = engine.tokenizer.encode(prompt, add_special_tokens=False)
    record, form = (engine.grammars.compile(Constraint(Kind.JSON_SCHEMA, json.dumps(one))) for one in (RECORD, FORM))
    return [
        GenerationRequest(
            name,
            tokens,
            SamplingParams(**{"max_tokens": 24, **way}),
            grammar=record if name == "constrained" else form if name.startswith("constrained") else None,
        )
        for name, way in WAYS.items()
    ]


@pytest.fixture(scope="module")
def plain(engine: Engine, requests: list[GenerationRequest]) -> tuple[Answers, Usages]:
    return run(engine, requests)


@pytest.mark.parametrize("overlaps", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("right", [0.0, 0.7, 1.0])
def test_every_way_of_sampling_gives_the_same(
    engine: Engine, requests: list[GenerationRequest], plain: tuple[Answers, Usages], right: float, overlaps: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(engine.runner, "overlaps", overlaps)
    if not overlaps:
        monkeypatch.setattr(Lane, "submit", lambda lane, task: task())  # no mask is late
    rnd, steps = random.Random(5), engine.steps
    draft(engine, monkeypatch, AlwaysDrafts(knowing(plain[0], rnd, right), 7, 100))
    answers, usages = run(engine, requests, rnd)
    assert_same(answers, plain[0])
    for name, usage in usages.items():
        before = plain[1][name]
        assert (usage.prompt_tokens, usage.completion_tokens) == (before.prompt_tokens, before.completion_tokens)
        assert usage.accepted_tokens <= min(usage.drafted_tokens, usage.completion_tokens)
        if name in ("one token", "two tokens"):  # the step after the prompt has no guess
            assert not usage.drafted_tokens
        elif right == 0 and (not overlaps or not name.startswith("constrained")):
            constrained = name.startswith("constrained")  # some tokens are forced, and right
            assert usage.drafted_tokens and (constrained or not usage.accepted_tokens), name
        elif right == 1 and name in ("greedy", *(["constrained greedily"] if not overlaps else [])):
            assert usage.accepted_tokens > usage.completion_tokens / 2
    longest = max(len(answer.tokens) for (name, _), answer in answers.items() if not name.startswith("constrained"))
    assert longest == 24 and engine.steps > steps


def test_a_looked_up_draft_saves_steps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of the first answer are in the prompt of the second, which repeats them."""
    biased = SamplingParams(max_tokens=60, logit_bias=dict.fromkeys((70, 71, 72), 100.0), ignore_eos=True)
    request = GenerationRequest("loop", [70, 71, 72] * 8, biased)
    steps = engine.steps
    expected, _ = run(engine, [request])
    without = engine.steps - steps
    draft(engine, monkeypatch, Speculation(SuffixLookup(), 4, 8))
    known, launched = list[int](), engine.core.launched

    def watch(plan: StepPlan, applied: Any) -> None:
        known.extend(chunk.known for chunk in plan.chunks.values())
        launched(plan, applied)

    monkeypatch.setattr(engine.core, "launched", watch)
    steps = engine.steps
    answers, usages = run(engine, [request])
    assert_same(answers, expected)
    assert usages["loop"].drafted_tokens > 0
    assert engine.steps - steps < without
    assert set(known[1:]) == {1}, "keys and values of an accepted token are not computed again"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("speculation")
    model = save_model("llama3-scaled-rope-tied", root / "model")
    for name in _KINDS:
        save_adapter(name, model, root / name)
    return root


_KINDS = [name for name in ("attention-r8", "all-linear-r16-rslora", "one-layer-r64") if name in ADAPTERS]


_SETTINGS = [
    {},
    {"deterministic": True},
    {"prefix_cache": False, "mode": "merged", "pool_mb": 4},
    pytest.param({"device": "cuda", "dtype": "float32", "pool_mb": 64}, marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("settings", _SETTINGS, ids=str)
def test_each_adapter_verifies_its_drafts(
    folder: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences of several adapters, chunks of prompts, prefix hits and pre-emption in one batch."""
    source, rnd = LoadedAdapters(), random.Random(3)
    # Pages for a part of the sequences, and steps for a part of the prompts.
    settings = {"pool_mb": 1, "page_tokens": 4, "max_running": 24, "step_tokens": 40, **settings}
    engine = Engine(EngineConfig(model=folder / "model", **settings), source)
    digests = [""]
    for name in _KINDS:
        adapter = adapter_at(name, folder / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    common = [rnd.randrange(VOCAB) for _ in range(30)]
    requests = [
        GenerationRequest(
            str(index),
            common[: rnd.choice([0, 8, 30])] + [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 40))],
            SamplingParams(
                max_tokens=rnd.randint(2, 30), ignore_eos=True, temperature=index % 3 / 2, seed=index, logprobs=True
            ),
            adapter_digest=digests[index % len(digests)],
            tenant=rnd.choice("ab"),
        )
        for index in range(8 if engine.config.deterministic else 16)  # a forward pass for each token
    ]
    expected, _ = run(engine, requests)
    for right in (0.6,) if engine.config.deterministic else (1.0, 0.5):
        draft(engine, monkeypatch, AlwaysDrafts(knowing(expected, rnd, right), 5, 100))
        answers, usages = run(engine, requests, rnd)
        assert_same(answers, expected)
        if engine.config.deterministic:
            assert answers == expected, "not bitwise the same"
        assert any(usage.preemptions for usage in usages.values())
        for digest in digests:
            assert sum(usages[r.request_id].accepted_tokens for r in requests if r.adapter_digest == digest) > 0


def test_an_aborted_request_leaves_nothing(
    engine: Engine, requests: list[GenerationRequest], plain: tuple[Answers, Usages], monkeypatch: pytest.MonkeyPatch
) -> None:
    speculation = AlwaysDrafts(knowing(plain[0], random.Random(1), 0.8), 4, 100)
    draft(engine, monkeypatch, speculation)
    monkeypatch.setattr(engine.runner, "overlaps", True)
    for request in requests[:6]:
        engine.add_request(request)
    for _ in range(3):
        engine.step()
    assert speculation._states
    for request in requests[:6]:
        engine.abort(request.request_id)
    while engine.has_work():
        for end in engine.step().finished:
            assert end.usage.outcome == "aborted"
    engine.core.check()
    assert engine.pool_stats().kv == 0
    assert not speculation._states and not speculation._promising


def test_nothing_is_drafted_for_a_large_batch(
    engine: Engine, requests: list[GenerationRequest], plain: tuple[Answers, Usages], monkeypatch: pytest.MonkeyPatch
) -> None:
    draft(engine, monkeypatch, AlwaysDrafts(knowing(plain[0], random.Random(1), 1.0), 4, 3))
    _, usages = run(engine, [request for request in requests if request.request_id != "three choices"])
    drafted = [name for name, usage in usages.items() if usage.drafted_tokens]
    assert len(drafted) <= 3  # the last ones that run


def test_output_is_charged_as_it_is_delivered(
    engine: Engine, requests: list[GenerationRequest], plain: tuple[Answers, Usages], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = next(request for request in requests if request.request_id == "greedy")
    account = engine.core.queue.foreground.accounts.open(request.tenant)  # type: ignore[attr-defined]
    charges = []
    for right in (None, 1.0, 0.0):
        if right is not None:
            draft(engine, monkeypatch, AlwaysDrafts(knowing(plain[0], random.Random(1), right), 4, 100))
        service, output = account.service, account.output_tokens
        run(engine, [request])
        charges.append((account.service - service, account.output_tokens - output))
    assert charges[1] == pytest.approx(charges[0]) and charges[2] == pytest.approx(charges[0])


def sequence_of(tokens: list[int], pending: int = 0) -> TokenSequence:
    class Known(SimpleNamespace):
        __hash__ = object.__hash__

    return cast(TokenSequence, Known(token_ids=tokens, pending=pending))


@pytest.mark.parametrize(
    ("tokens", "pending", "guess"),
    [
        ([1, 2, 3, 4, 5, 1, 2], 0, [3, 4, 5, 1]),
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], 0, [4, 9, 1, 2]),  # the latest of two equal matches
        ([7, 1, 2, 3, 9, 8, 1, 2, 4, 9, 7, 1, 2], 0, [3, 9, 8, 1]),  # the longer match
        ([1, 2, 1, 2, 1, 2], 0, [1, 2, 1, 2]),  # a period goes on beyond the end
        ([5, 5, 5], 0, [5, 5, 5, 5]),
        ([1, 2, 3, 1, 2, 0], 1, [3, 1, 2, 3]),  # a pending token is not known
        ([1, 2, 3, 4], 0, []),
        ([1], 0, []),
    ],
)
def test_what_is_looked_up(tokens: list[int], pending: int, guess: list[int]) -> None:
    assert SuffixLookup().propose([sequence_of(tokens, pending)], [4]) == [guess]


def test_an_index_grows_with_its_sequence_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each guess is what a search of the tokens that the index covers finds."""
    monkeypatch.setattr(suffix_lookup, "_MOST_TOKENS", 64)
    monkeypatch.setattr(suffix_lookup, "_AT_ONCE", 16)
    rnd, lookup = random.Random(2), SuffixLookup()
    sequence, guessed = sequence_of([rnd.randrange(4) for _ in range(100)]), 0
    for _ in range(400):
        tokens = sequence.token_ids
        if guess := lookup.propose([sequence], [3])[0]:
            guessed += 1
            at = [i for i in range(2, len(tokens)) if tokens[i - 2 : i] == tokens[-2:]]
            assert any((tokens[i:] + tokens[i:] * 3)[:3] == guess for i in at)
        assert len(lookup._indices[sequence]._before) <= 64 + 16
        tokens.append(rnd.randrange(4))
    assert guessed > 250
    lookup.forget(sequence)
    assert not lookup._indices


def test_settings() -> None:
    config = EngineConfig(model=DEMO, speculation="ngram")
    assert speculation_of(EngineConfig(model=DEMO)) is None
    for running, most in ((256, 32), (10, 5)):
        speculation = speculation_of(replace(config, max_running=running))
        assert speculation is not None and speculation._max_running == most


class Scripted:
    """A drafter whose guesses are given."""

    def __init__(self, *, is_free: bool = True) -> None:
        self.guess: list[int] = []
        self.is_free = is_free
        self.made = 0

    def propose(self, sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        self.made += len(sequences)
        return [self.guess[:number] for number in most]

    def forget(self, sequence: TokenSequence) -> None:
        self.guess = []


def commit(speculation: Speculation, sequence: TokenSequence, tokens: list[int], drafted: int = 0) -> None:
    sequence.token_ids.extend(tokens)
    speculation.committed({sequence: len(tokens)}, {sequence: drafted} if drafted else {})


def test_a_step_waits_for_tokens_only_if_there_is_a_guess_that_is_worth_it() -> None:
    """Without guesses, and with wrong ones, steps are launched ahead; right ones that were not drafted count too."""
    drafter = Scripted()
    speculation = Speculation(drafter, 4, max_running=3)
    sequence = sequence_of([1, 2])
    sequence.masks, sequence.request = None, GenerationRequest("", [1])  # type: ignore[misc]
    commit(speculation, sequence, [3])
    assert not speculation.waits(1)
    drafter.guess = [7, 8, 9, 7]
    commit(speculation, sequence, [4])
    assert speculation.waits(3) and not speculation.waits(4)
    assert dict(speculation.candidates(3)) == {sequence: [7]}  # half of the first guesses are expected to be right
    for _ in range(3):
        commit(speculation, sequence, [5], drafted=1)
    assert not speculation.waits(1) and not dict(speculation.candidates(1))
    for _ in range(3):  # what would have been drafted was right
        commit(speculation, sequence, [7])
    assert speculation.waits(1)
    for _ in range(20):
        commit(speculation, sequence, [7, 8, 9, 7, 5], drafted=4)
    assert dict(speculation.candidates(1)) == {sequence: [7, 8, 9, 7]}
    sequence.pending = 1  # a step was launched ahead meanwhile: the guess is for an earlier token
    assert not dict(speculation.candidates(1))
    speculation.left(sequence)
    assert not speculation.waits(1)
    newcomer = sequence_of([1])
    newcomer.masks, newcomer.request = None, sequence.request  # type: ignore[misc]
    drafter.guess = [7, 8, 9, 7]
    commit(speculation, newcomer, [2])
    assert len(dict(speculation.candidates(1))[newcomer]) > 1, "a sequence begins with its adapter's share"


def test_one_sequence_with_drafts_does_not_make_many_others_wait() -> None:
    """All running sequences lose by a step with drafts; only the expected tokens outweigh that."""
    for is_free, most in ((True, 20), (False, 10)):
        drafter = Scripted(is_free=is_free)
        speculation, sequence = Speculation(drafter, 4, max_running=256), sequence_of([1, 2])
        sequence.masks, sequence.request = None, GenerationRequest("", [1])  # type: ignore[misc]
        for _ in range(30):
            drafter.guess = [7, 8, 9, 7]
            commit(speculation, sequence, [7, 8, 9, 7, 5], drafted=4)
        for running in (1, most, 256):
            assert speculation.waits(running) == (running <= most) == bool(dict(speculation.candidates(running)))
        made = drafter.made
        speculation.committed({sequence: 1}, {}, 256)
        assert (drafter.made > made) == is_free == speculation.wants(sequence), "a head's guesses take device time"
        assert not speculation.waits(256)
        speculation.committed({sequence: 1}, {}, 1)
        assert speculation.waits(1) and speculation.wants(sequence)


def test_steps_without_drafts_are_launched_ahead(
    engine: Engine, requests: list[GenerationRequest], plain: tuple[Answers, Usages], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the same number of steps as without speculation, each scheduled before the last one's tokens."""
    monkeypatch.setattr(engine.runner, "overlaps", True)
    request, ahead = replace(requests[0], request_id="alone"), []
    for speculation in (None, Speculation(Scripted(), 4, 8)):
        draft(engine, monkeypatch, speculation)
        engine.add_request(request)
        overlapped = 0
        while engine.has_work():
            overlapped += engine._in_flight is not None and engine._may_overlap()
            engine.step()
        ahead.append(overlapped)
    assert ahead[0] == ahead[1] > 20
