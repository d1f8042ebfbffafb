"""A draft head guesses what its published form guesses after the adapted model, and changes no output."""

from __future__ import annotations

import json
import math
import operator
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.arrivals import run_requests
from lorikeet_testing.draft_heads import ReferenceHead, save_head
from lorikeet_testing.drafters import AlwaysDrafts, tokens_of
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model
from safetensors.torch import load_file, save_file

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.execution import hidden_states
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.execution.runner import DeviceDrafts
from lora_engine.model import draft_head, head_passes
from lora_engine.model.eagle_head import EagleHead
from lora_engine.model.head_passes import HeadPasses, KnownRows
from lora_engine.request import ChoiceSoFar, GenerationRequest, RequestUsage, SamplingParams
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_engine.scheduling.speculation import Speculation
from lora_engine.server import arguments
from lora_engine.structured.masks import Lane
from lora_engine.text import ChatTemplate

DEMO = Path(__file__).parents[2] / "demo"
KINDS = ("attention-r8", "all-linear-r16-rslora")
FORMS: dict[str, dict[str, Any]] = {
    "published": {"draft_vocab": 200},
    "speculators": {
        "prefix": "layers.0.", "with_embedding": True, "draft_vocab": 100, "norm_before_residual": True,
        "architectures": ["Eagle3Speculator"],
    },
    "shared head": {"with_lm_head": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("draft")
    model = save_model("llama3-scaled-rope-tied", root / "model")
    for name in KINDS:
        save_adapter(name, model, root / name)
    return root


def head_for(folder: Path, form: str) -> Path:
    path = folder / f"head {form}"
    return path if path.exists() else save_head(path, 64, VOCAB, **FORMS[form])


def drafter_of(engine: Engine) -> HeadDrafter:
    assert engine._head is not None
    return engine._head


def always(engine: Engine, most: int = 4) -> AlwaysDrafts:
    """Let an engine draft however few drafts are right."""
    speculation = engine.core.scheduler.speculation = AlwaysDrafts(drafter_of(engine), most, 100)
    return speculation


def run(
    engine: Engine, requests: Sequence[GenerationRequest], late: random.Random | None = None
) -> tuple[dict[str, tuple[list[int], list[float], str]], dict[str, RequestUsage]]:
    """Run all requests; ``late``: they come one by one, and some running ones are pre-empted."""
    answers: dict[str, tuple[list[int], list[float], str]] = {}
    deltas, usages = run_requests(engine, requests, late)
    for delta in deltas:
        tokens, logprobs, text = answers.get(delta.request_id, ([], [], ""))
        logprobs = logprobs + [entry.logprob for entry in delta.logprobs]
        answers[delta.request_id] = tokens + delta.token_ids, logprobs, text + delta.text
    return answers, usages


def assert_same(answers: dict[str, Any], expected: dict[str, Any]) -> None:
    assert answers.keys() == expected.keys()
    for name, (tokens, logprobs, text) in answers.items():
        assert (tokens, text) == (expected[name][0], expected[name][2]), name
        assert logprobs == pytest.approx(expected[name][1], abs=1e-4), name


@pytest.mark.parametrize(("form", "overlaps"), [("published", True), ("speculators", False), ("shared head", True)])
def test_guesses_are_those_of_the_published_head(
    folder: Path, form: str, overlaps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the base and for adapters in one batch, with chunks of prompts and pre-emption, against transformers."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    rnd, source, head = random.Random(4), LoadedAdapters(), head_for(folder, form)
    config = EngineConfig(
        model=folder / "model", speculation="eagle3", draft_model=head, pool_mb=1, page_tokens=4, step_tokens=40,
        max_running=24, prefix_cache=False,
    )  # fmt: skip
    engine = Engine(config, source)
    monkeypatch.setattr(engine.runner, "overlaps", overlaps)
    digests = [""]
    for name in KINDS:
        adapter = adapter_at(name, folder / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    always(engine, 3)
    made: list[tuple[str, list[int], list[int]]] = []
    propose = drafter_of(engine).propose

    def record(sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        guesses = propose(sequences, most)
        for sequence, guess in zip(sequences, guesses, strict=True):
            known = sequence.token_ids[: len(sequence.token_ids) - sequence.pending]
            made.append((sequence.request.adapter_digest, known, tokens_of(drafter_of(engine), guess)))
        return guesses

    monkeypatch.setattr(drafter_of(engine), "propose", record)
    requests = [
        GenerationRequest(
            str(index),
            [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 60))],
            SamplingParams(max_tokens=rnd.randint(3, 14), ignore_eos=True, temperature=index % 2, seed=index),
            adapter_digest=digests[index % 3],
        )
        for index in range(9)
    ]
    _, usages = run(engine, requests, rnd)
    assert sum(usage.drafted_tokens > 0 for usage in usages.values()) >= 6, "the others are short"
    drafter = drafter_of(engine)
    assert not drafter._slots and len(drafter._free) == config.drafting_sequences
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    embedding, lm_head = (base.get_input_embeddings().weight.detach(), base.get_output_embeddings().weight.detach())
    embedding, lm_head = embedding.clone(), lm_head.clone()
    reference, compared = ReferenceHead(head, embedding, lm_head), 0
    models = [base] + [PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder / "model",
        dtype=torch.float32), folder / name) for name in KINDS]  # fmt: skip
    guessed = [entry for entry in made if entry[2]]
    assert len(guessed) > 0.9 * len(made), "a head follows every sequence"
    for digest, known, guess in rnd.sample(guessed, 24):
        with torch.no_grad():
            states = models[digests.index(digest)](torch.tensor([known[:-1]]), output_hidden_states=True).hidden_states
            drafts, nearest = reference.drafts(
                known, torch.cat([states[layer][0] for layer in (0, 1, 2)], -1), len(guess)
            )
        if nearest > 1e-3:
            assert guess == drafts
            compared += 1
    assert compared > 15


def test_rings_hold_a_window_of_any_sequence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in passes of any size, with drafts that are overwritten, for longer than a ring, in slots of any order."""
    for name, value in (("RING", 24), ("WINDOW", 16), ("MAX_ROWS", 8), ("_COLUMNS", 4)):
        monkeypatch.setattr(draft_head, name, value)
    path = head_for(folder, "published")
    engine = Engine(EngineConfig(model=folder / "model", pool_mb=1), LoadedAdapters())
    head = EagleHead.load(path, engine.loaded.model, 3, 512)
    reference = ReferenceHead(path, engine.loaded.model.weights.embedding, engine.loaded.model.weights.lm_head, 16)
    generator, rnd, count = torch.Generator().manual_seed(1), random.Random(1), 70
    texts = {slot: torch.randint(VOCAB, (count,), generator=generator) for slot in (2, 0)}
    features = {slot: torch.randn(count, 64, generator=generator) for slot in texts}
    head.run_largest()  # which leaves nothing behind
    done = dict.fromkeys(texts, 0)
    with torch.inference_mode():
        expected = {slot: reference.outputs(texts[slot], features[slot]) for slot in texts}
        while min(done.values()) < count:
            rows = {slot: min(rnd.randint(1, 8), count - at) for slot, at in done.items() if at < count}
            longest, slots = max(rows.values()), [*rows]
            tokens, positions = torch.zeros(len(rows), longest, dtype=torch.int64), torch.full((len(rows), longest), -1)
            inputs = torch.zeros(len(rows), longest, 64)
            for index, slot in enumerate(slots):
                part = slice(done[slot], done[slot] + rows[slot])
                tokens[index, : rows[slot]], inputs[index, : rows[slot]] = texts[slot][part], features[slot][part]
                positions[index, : rows[slot]] = torch.arange(part.start, part.stop)
            longest = int(positions.max()) + 1
            outputs = head.run(torch.tensor(slots), tokens, inputs, positions, longest)
            for index, slot in enumerate(slots):
                part = slice(done[slot], done[slot] + rows[slot])
                assert torch.allclose(outputs[index, : rows[slot]], expected[slot][part], atol=2e-4)
                done[slot] += rows[slot]
            ahead = torch.tensor([[done[slot]] for slot in slots])  # two drafts of the same sequences
            for further in range(2):
                at, longest = ahead + further, int(ahead.max()) + further + 1
                head.run(torch.tensor(slots), torch.ones_like(ahead), torch.ones(len(slots), 1, 64), at, longest)


@pytest.mark.parametrize("way", ["padded", "run again", pytest.param("captured", marks=pytest.mark.gpu)])
def test_passes_of_the_sizes_of_graphs_guess_what_passes_of_exact_sizes_do(
    folder: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any sequences in any order, with any rows and drafts, at positions before and behind the end of a ring."""
    path, rnd, count = head_for(folder, "published"), random.Random(6), 5
    device = "cuda" if way == "captured" else "cpu"
    config = EngineConfig(model=folder / "model", device=device, dtype="float32", pool_mb=8, cuda_graphs=False)
    model = Engine(config, LoadedAdapters()).loaded.model
    exact, fixed = (HeadPasses(EagleHead.load(path, model, count, 4096), 4, padded=padded) for padded in (False, True))
    assert fixed.sizes == [1, 2, 4, 5]
    if way == "run again":  # on a CPU, a graph runs what it would have captured
        monkeypatch.setattr(head_passes, "capture", lambda run, _: (SimpleNamespace(replay=run), run()))
        monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    if way != "padded":
        HeadPasses(EagleHead.load(path, model, count, 4096), 1).capture()  # for fewer drafts than a size has graphs
        fixed.capture()
        assert len(fixed._graphs) == 3 * len(fixed.sizes) and not exact._graphs
    at, compared, same = [0, 240, 1000, 5, 490], 0, 0
    for _ in range(60):
        slots = rnd.sample(range(count), rnd.randint(1, count))
        most = 5 if rnd.random() < 0.8 else 9  # more rows than graphs have
        rows = [[rnd.randrange(VOCAB) for _ in range(rnd.randint(1, most))] for _ in slots]
        places = [sum(map(len, rows[:index])) for index in range(len(rows))]
        known = [KnownRows(*one) for one in zip(slots, [at[slot] for slot in slots], places, rows, strict=True)]
        states = torch.randn(sum(map(len, rows)), 3 * 64).to(device)
        for slot, part in zip(slots, rows, strict=True):
            at[slot] += len(part)
        for passes in (exact, fixed):
            passes.follow(states, known)
        assert torch.allclose(exact._outputs[:count], fixed._outputs[:count], atol=1e-3)
        drafting = rnd.sample(slots, rnd.randint(1, len(slots)))
        drafts = rnd.randint(1, 6)  # at most 4 are made
        following = [at[slot] for slot in drafting]
        made = [passes.guess(drafting, following, drafts).t().tolist() for passes in (exact, fixed)]
        assert [len(one) for one in made[1]] == [min(drafts, 4)] * len(drafting)
        compared, same = compared + len(drafting), same + sum(map(operator.eq, *made))
    assert same >= 0.97 * compared, "some are near ties"


@pytest.mark.gpu
def test_graphs_of_the_head_change_no_answer_and_no_draft() -> None:
    """The demo's head on a GPU: graphs of steps and of its passes, or none."""
    results = []
    for speculation, graphs in (("off", False), ("eagle3", False), ("eagle3", True)):
        head = DEMO / "draft" if speculation == "eagle3" else None
        config = EngineConfig(
            model=DEMO / "model", device="cuda", dtype="float32", pool_mb=64, max_running=16, cuda_graphs=graphs,
            speculation=speculation, draft_model=head,
        )  # fmt: skip
        engine = Engine(config, LoadedAdapters())
        assert not graphs or (engine.loaded.draft_head is not None and engine.loaded.draft_head._graphs)
        results.append(run(engine, chats(engine, QUESTIONS, max_tokens=40)))
        engine.grammars.close()
    (plain, _), (eager, by_kernels), (captured, by_graphs) = results
    assert_same(eager, plain)
    assert_same(captured, plain)
    assert sum(usage.accepted_tokens for usage in by_graphs.values()) > 20
    for name, usage in by_graphs.items():
        assert abs(usage.accepted_tokens - by_kernels[name].accepted_tokens) <= 2, "near ties"


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[Engine, Engine]]:
    """The demo model without drafts, and with its head."""
    config = {"model": DEMO / "model", "pool_mb": 64}
    pair = (
        Engine(EngineConfig(**config), LoadedAdapters()),
        Engine(EngineConfig(**config, speculation="eagle3", draft_model=DEMO / "draft"), LoadedAdapters()),
    )
    yield pair
    for engine in pair:
        engine.grammars.close()


def chats(engine: Engine, questions: Sequence[str], **sampling: Any) -> list[GenerationRequest]:
    template = ChatTemplate.load(DEMO / "model")
    prompts = [template.render([{"role": "user", "content": question}]) for question in questions]
    tokens = [engine.tokenizer.encode(prompt, add_special_tokens=False) for prompt in prompts]
    return [
        GenerationRequest(question, ids, SamplingParams(**{"max_tokens": 24, "logprobs": True, **sampling}))
        for question, ids in zip(questions, tokens, strict=True)
    ]


QUESTIONS = (
    "Tell me a short story about a brave penguin.", "Explain the KV cache.", "List three fruits.", "Who are you?",
)  # fmt: skip


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.8, "seed": 7, "top_p": 0.9},
        {"temperature": 1.0, "presence_penalty": 1.0, "repetition_penalty": 1.2, "seed": 3},
        {"temperature": 0.7, "stop": ("the", ". A"), "min_tokens": 5},
    ],
    ids=["greedy", "seeded", "penalised", "stopped"],
)
def test_any_head_changes_nothing(
    engines: tuple[Engine, Engine], sampling: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, drafting = engines
    expected, before = run(plain, chats(plain, QUESTIONS, **sampling))
    always(drafting)
    for overlaps in (False, True) if not sampling else (True,):
        monkeypatch.setattr(drafting.runner, "overlaps", overlaps)
        answers, usages = run(drafting, chats(drafting, QUESTIONS, **sampling))
        assert_same(answers, expected)
        for name, usage in usages.items():
            assert usage.completion_tokens == before[name].completion_tokens
        assert sum(usage.drafted_tokens for usage in usages.values()) > 50
    assert not drafter_of(drafting)._slots


def test_the_host_knows_drafts_in_advance_only_where_it_has_to(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other drafts are references to tokens on the device, of which there are as many as steps have rows."""
    plain, drafting = engines
    always(drafting, 4)
    drafter, made = drafter_of(drafting), list[tuple[int, int]]()
    propose = drafter.propose

    def record(sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        guesses = propose(sequences, most)
        made.extend((len(sequences), token) for guess in guesses for token in guess)
        return guesses

    monkeypatch.setattr(drafter, "propose", record)
    monkeypatch.setattr(drafting.runner, "overlaps", True)
    for penalised in (0, 1):
        made.clear()
        first, *others = chats(plain, QUESTIONS, max_tokens=16)
        penalty = SamplingParams(max_tokens=9, presence_penalty=float(penalised), logprobs=True)
        requests = [replace(first, sampling=penalty), *others]
        expected, _ = run(plain, requests)
        assert_same(run(drafting, requests)[0], expected)
        assert any(token < 0 for _, token in made)
        assert any(token >= 0 for _, token in made) == bool(penalised)
    drafts = DeviceDrafts(torch.zeros(7, dtype=torch.int64), 9)
    references, before = drafts.put(torch.tensor([[5, 6, 7], [1, 2, 3], [8, 8, 8]])), drafts.on_host
    assert [[int(before[-1 - one]) for one in row] for row in references] == [[5, 1], [6, 2], [7, 3]], "room for six"
    tokens, sources = np.array([4, *references[2]]), np.array([-1, -1, -1])
    drafts.give_rows(tokens, sources)
    assert (tokens.tolist(), sources.tolist()) == ([4, 0, 0], [-1, 9 + 2, 9 + 5])
    drafts.put(torch.zeros(2, 3, dtype=torch.int64))
    assert before.tolist()[:6] == [5, 6, 7, 1, 2, 3], "a launched step still refers to them"


def test_answers_with_a_grammar_have_drafts_that_it_allows(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the grammar forces tokens that the head would not guess, those are drafted."""
    plain, drafting = engines
    form = {"properties": {"kind_of_animal": {"enum": ["penguin", "tortoise"]}, "story": {"type": "string"}}}
    constraint = Constraint(Kind.JSON_SCHEMA, json.dumps({**form, "type": "object", "required": [*form["properties"]]}))

    def requests(engine: Engine) -> list[GenerationRequest]:
        chat = chats(engine, QUESTIONS[:3], max_tokens=40, temperature=0.7, seed=2)
        return [replace(one, grammar=engine.grammars.compile(constraint)) for one in chat[:2]] + chat[2:]

    expected, before = run(plain, requests(plain))
    speculation = drafting.core.scheduler.speculation = Speculation(drafter_of(drafting), 4, 16)
    monkeypatch.setattr(Lane, "submit", lambda lane, task: task())  # no mask is late
    for overlaps in (False, True):
        monkeypatch.setattr(drafting.runner, "overlaps", overlaps)
        answers, usages = run(drafting, requests(drafting))
        assert_same(answers, expected)
        for name, usage in usages.items():
            assert usage.completion_tokens == before[name].completion_tokens
            assert usage.accepted_tokens > 10 * (name in QUESTIONS[:2]), name
    assert not drafter_of(drafting)._slots and not speculation._states


def test_the_demo_head_is_small_and_often_right_also_for_adapters(engines: tuple[Engine, Engine]) -> None:
    assert sum(path.stat().st_size for path in (DEMO / "draft").iterdir()) <= 1 << 20
    plain, engine = engines
    engine.core.scheduler.speculation = Speculation(drafter_of(engine), 4, 16)
    digests, shares = {}, {}
    for name in ("pirate", "json-answers"):
        adapter = adapter_at(name, DEMO / "adapters" / name)
        for one in engines:
            one.source.add(pack_for(one, adapter))  # type: ignore[attr-defined]
        digests[name] = adapter.digest
    for name, digest in [("base", ""), *digests.items()]:
        requests = [replace(request, adapter_digest=digest) for request in chats(engine, QUESTIONS, max_tokens=40)]
        expected, _ = run(plain, requests)
        steps = engine.steps
        answers, usages = run(engine, requests)
        assert_same(answers, expected)
        drafted, accepted, tokens = (
            sum(getattr(usage, field) for usage in usages.values())
            for field in ("drafted_tokens", "accepted_tokens", "completion_tokens")
        )
        shares[name] = accepted / drafted
        if name == "base":
            assert accepted > 0.4 * tokens
            assert engine.steps - steps < 0.75 * max(len(answer[0]) for answer in answers.values())
    assert shares["base"] > 0.5 and shares["base"] > shares["json-answers"] and shares["pirate"] > 0.1, shares


def test_the_frequencies_of_sampled_tokens_are_the_models(engines: tuple[Engine, Engine]) -> None:
    """Over all positions that were sampled after drafts, the most likely token comes as often as it is likely."""
    _, engine = engines
    template = chats(engine, QUESTIONS[:1])[0]
    always(engine)
    sampling = {"max_tokens": 12, "temperature": 1.0, "logprobs": True, "top_logprobs": 1, "ignore_eos": True}
    hits = wanted = variance = drafted = 0.0
    for index in range(40):
        request = GenerationRequest(str(index), template.prompt_token_ids, SamplingParams(**sampling, seed=index))
        engine.add_request(request)
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            for entry in delta.logprobs:
                (token, logprob), = entry.top  # fmt: skip
                chance = math.exp(logprob)
                hits += token == entry.token_id
                wanted += chance
                variance += chance * (1 - chance)
        drafted += sum(end.usage.drafted_tokens for end in output.finished)
    assert drafted > 500
    assert abs(hits - wanted) < 3.5 * math.sqrt(variance), "a martingale: its deviation is that of independent draws"


def test_an_answer_that_another_host_began_goes_on_with_drafts(engines: tuple[Engine, Engine]) -> None:
    plain, engine = engines
    engine.core.scheduler.speculation = Speculation(drafter_of(engine), 4, 16)
    (request,) = chats(engine, QUESTIONS[:1], temperature=0.5, seed=3, max_tokens=40)
    tokens, logprobs, _ = run(plain, [request])[0][request.request_id]
    began = replace(request, so_far=(ChoiceSoFar(0, tokens[:11]),))
    answers, usages = run(engine, [began])
    assert answers[request.request_id][0] == tokens[11:]
    assert answers[request.request_id][1] == pytest.approx(logprobs[11:], abs=1e-4)
    usage = usages[request.request_id]
    assert usage.completion_tokens == len(tokens) and 0 < usage.accepted_tokens < len(tokens) - 11


class Stub:
    """A drafter whose guesses cost time and are always wrong."""

    is_free = False

    def __init__(self) -> None:
        self.calls = 0

    def propose(self, sequences: Sequence[TokenSequence], most: Sequence[int]) -> list[list[int]]:
        self.calls += len(sequences)
        return [[0] * number for number in most]

    def forget(self, sequence: TokenSequence) -> None:
        """Do nothing: nothing is kept."""


def test_a_sequence_with_bad_drafts_has_no_more_and_its_adapter_is_tried_again_briefly(
    engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, engine = engines
    stub = Stub()
    monkeypatch.setattr(engine, "_head", None)
    monkeypatch.setattr(engine.core.scheduler, "speculation", Speculation(stub, 4, 8))
    made = []
    for question in QUESTIONS[:2] * 2:
        calls = stub.calls
        run(engine, chats(engine, [question], max_tokens=12, ignore_eos=True))
        made.append(stub.calls - calls)
    assert made[0] <= 4 and made[-1] == 2, made
    for _ in range(12):  # however bad it was, it is tried again
        run(engine, chats(engine, QUESTIONS[:1], max_tokens=4, ignore_eos=True))
    calls = stub.calls
    run(engine, chats(engine, QUESTIONS[:1], max_tokens=12, ignore_eos=True))
    assert stub.calls - calls == 2


def test_a_request_that_ends_in_its_prompt_leaves_its_ring(engines: tuple[Engine, Engine]) -> None:
    _, engine = engines
    always(engine)
    free, (request,) = len(drafter_of(engine)._free), chats(engine, QUESTIONS[:1])
    for steps in (1, 3):
        engine.add_request(GenerationRequest(str(steps), request.prompt_token_ids * 30, SamplingParams(max_tokens=9)))
        engine.core.scheduler._step_tokens, before = 200, engine.core.scheduler._step_tokens
        for _ in range(steps):
            engine.step()
        assert len(drafter_of(engine)._free) == free - 1
        engine.abort(str(steps))
        while engine.has_work():
            engine.step()
        engine.core.scheduler._step_tokens = before
    assert len(drafter_of(engine)._free) == free and not drafter_of(engine)._next


@pytest.mark.parametrize("method", ["observe", "propose"])
def test_a_head_that_fails_ends_drafting_and_no_request(
    engines: tuple[Engine, Engine], method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, engine = engines
    speculation, drafter = always(engine), drafter_of(engine)
    calls = [0]
    working = getattr(drafter, method)

    def fails_at_last(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            raise torch.OutOfMemoryError("no memory")
        return working(*args)

    expected, _ = run(plain, chats(plain, QUESTIONS))
    with monkeypatch.context() as patch:
        patch.setattr(drafter, method, fails_at_last)
        assert_same(run(engine, chats(engine, QUESTIONS))[0], expected)
        assert engine._head is None and engine.describe()["speculation"] == "off"
    assert "is off until this engine starts again" in caplog.text
    for sequence in [*drafter._slots]:
        drafter.forget(sequence)
    engine._head, engine.core.scheduler.speculation, engine.runner.drafting = (
        drafter,
        speculation,
        engine.core.may_draft,
    )


def test_more_sequences_than_rings(engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, engine = engines
    always(engine)
    drafter = drafter_of(engine)
    monkeypatch.setattr(drafter, "_free", drafter._free[:2])
    expected, _ = run(plain, chats(plain, QUESTIONS))
    answers, usages = run(engine, chats(engine, QUESTIONS))
    assert_same(answers, expected)
    assert sum(usage.drafted_tokens > 0 for usage in usages.values()) >= 2
    assert len(drafter._free) == 2 and not drafter._slots


def test_a_long_prompt_is_read_at_its_end(engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last rows of a prompt are copied, whatever its chunks are."""
    _, engine = engines
    always(engine)
    copied: list[tuple[int, int]] = []
    of = hidden_states.HiddenStates.of

    def watch(*args: Any) -> Any:
        states = of(*args)
        copied.extend((part.position, part.rows) for part in states.parts) if states else None
        return states

    monkeypatch.setattr(hidden_states.HiddenStates, "of", watch)
    prompt = chats(engine, QUESTIONS[:1])[0].prompt_token_ids * 80
    sampling = SamplingParams(max_tokens=6, ignore_eos=True)
    request = GenerationRequest("long", prompt[:700], sampling, cache_salt="not cached")
    monkeypatch.setattr(engine.core.scheduler, "_step_tokens", 300)
    run(engine, [request])
    assert sum(rows for position, rows in copied if position < 700) == draft_head.MAX_ROWS
    assert min(position for position, _ in copied) == 700 - draft_head.MAX_ROWS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "is no EAGLE-3 head"),
        ({"architectures": 5}, "is no EAGLE-3 head .its architectures are 5"),
        ({"eagle_aux_hidden_state_layer_ids": 2}, "reads the hidden states 2"),
        (
            {"eagle_aux_hidden_state_layer_ids": None, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ["1"]}},
            "reads the hidden states .'1'.",
        ),
        ({"hidden": 32}, "was trained for another base model"),
        ({"draft_vocab": 100, "draft_vocab_size": 600}, "was trained for another base model"),
        ({"layers": (0, 1, 3)}, "but the base model has 3 layers"),
        ({"num_hidden_layers": 2}, "only EAGLE-3 heads of one Llama layer"),
        ({"intermediate_size": 48}, "mlp.gate_proj.weight"),
        ({"draft_vocab_size": 100}, "no tensor d2t"),
    ],
)
def test_heads_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    changes = dict(changes)
    save_head(tmp_path, changes.pop("hidden", 64), VOCAB, **changes)
    with pytest.raises(UnsupportedModel, match=message):
        Engine(
            EngineConfig(model=folder / "model", pool_mb=1, speculation="eagle3", draft_model=tmp_path),
            LoadedAdapters(),
        )


def test_damaged_heads_are_refused(folder: Path, tmp_path: Path) -> None:
    engine = Engine(EngineConfig(model=folder / "model", pool_mb=1), LoadedAdapters())
    save_head(tmp_path, 64, VOCAB, draft_vocab=100)
    whole = load_file(tmp_path / "model.safetensors")
    for changes, message in (
        ({"norm.weight": None}, "has no tensor norm.weight"),
        ({"midlayer.self_attn.q_norm.weight": torch.ones(16)}, "midlayer.self_attn.q_norm.weight, which no supported"),
        ({"d2t": whole["d2t"] + VOCAB}, "names tokens that the base model does not have"),
    ):
        tensors = {name: tensor for name, tensor in {**whole, **changes}.items() if tensor is not None}
        save_file(tensors, tmp_path / "model.safetensors")
        with pytest.raises(UnsupportedModel, match=message):
            EagleHead.load(tmp_path, engine.loaded.model, 2, 64)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 99)
    with pytest.raises(UnsupportedModel):
        EagleHead.load(tmp_path, engine.loaded.model, 2, 64)


def test_numbers_of_layers_in_both_forms(folder: Path, tmp_path: Path) -> None:
    """A list at the top level names inputs of layers, one in ``eagle_config`` outputs; published heads have none."""
    engine = Engine(EngineConfig(model=DEMO / "model", pool_mb=8), LoadedAdapters())
    for keys, layers in (
        ({"eagle_aux_hidden_state_layer_ids": [0, 3, 4]}, (0, 3, 4)),
        (
            {"eagle_aux_hidden_state_layer_ids": None, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]}},
            (1, 3, 4),
        ),
        ({"eagle_aux_hidden_state_layer_ids": None}, (2, 2, 2)),
    ):
        save_head(tmp_path, 256, 2560, **keys)
        assert EagleHead.load(tmp_path, engine.loaded.model, 1, 64).config.feature_layers == layers


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft_model": None}, "--draft-model names no folder"),
        ({"deterministic": True}, "computes each row apart"),
    ],
)
def test_settings_that_exclude_each_other(settings: dict[str, Any], message: str) -> None:
    config = {"model": DEMO / "model", "pool_mb": 8, "speculation": "eagle3", "draft_model": DEMO, **settings}
    with pytest.raises(ValueError, match=message):
        Engine(EngineConfig(**config), LoadedAdapters())


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    config = arguments.parse(["--model", "m", "--speculation", "eagle3", "--draft-model", "d"])
    assert (config.speculation, config.draft_model) == ("eagle3", Path("d"))
    for wrong in (["--speculation", "eagle3"], ["--draft-model", "d"]):
        with pytest.raises(SystemExit):
            arguments.parse(["--model", "m", *wrong])
        assert "go together" in capsys.readouterr().err


def test_a_text_that_fills_the_context_has_drafts_to_its_end(folder: Path) -> None:
    """Positions of drafts behind the longest context, which a rotary table does not have, ended drafting."""
    config = EngineConfig(
        model=folder / "model", speculation="eagle3", draft_model=head_for(folder, "published"), pool_mb=1,
        max_context=24, speculation_tokens=9,
    )  # fmt: skip
    engine = Engine(config, LoadedAdapters())
    always(engine, 9)
    request = GenerationRequest("one", [5] * 10, SamplingParams(max_tokens=14, ignore_eos=True))
    answers, usages = run(engine, [request])
    assert len(answers["one"][0]) == 14 and usages["one"].drafted_tokens > 9
    assert engine._head is not None


def test_references_to_earlier_drafts_stay_within_those_that_the_host_reads() -> None:
    """A sequence that was in no step meanwhile may still have them: its drafts are then only wrong."""
    drafts = DeviceDrafts(torch.zeros(16, dtype=torch.int64), 16)
    before = drafts.put(torch.arange(8).view(2, 4))
    assert before == [[-1, -5], [-2, -6], [-3, -7], [-4, -8]]
    drafts.put(torch.tensor([[9]]))
    tokens, sources = np.array([before[3][1]]), np.array([-1])
    drafts.give_rows(tokens, sources)
    assert drafts.on_host[-1 - before[3][1]] == 7 and sources.tolist() == [16 + 7] and tokens.tolist() == [0]
