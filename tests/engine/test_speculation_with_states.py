"""Drafts on models with recurrent layers: rejected ones leave nothing in a state, and change no output."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.arrivals import run_requests
from lorikeet_testing.draft_heads import save_head
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.tiny_models import ENGINE_SETTINGS, VOCAB, adapter_at, pack_for, save_adapter, save_model

import lora_engine.model.graph_shapes as graph_shapes
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.runner import Runner
from lora_engine.memory import PagePool
from lora_engine.model.batch import StepBatch
from lora_engine.model.draft_inputs import draft_bytes
from lora_engine.model.graph_shapes import GraphShape
from lora_engine.request import GenerationRequest, RequestUsage, SamplingParams
from lora_kernels.state_pages import RunField

FAMILIES = ("qwen3.5-gated-delta", "qwen3-next-interleaved", "olmo-hybrid")
ADAPTERS = ("all-linear-r16-rslora", "attention-r8")


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


Answers = dict[str, Answer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


def build(folder: Path, family: str, **settings: Any) -> tuple[Engine, list[str]]:
    root = folder / family
    if not root.exists():
        model = save_model(family, root / "model")
        (root / "model" / "generation_config.json").write_text('{"eos_token_id": 300}')
        for name in ADAPTERS:
            save_adapter(name, model, root / name)
    defaults = {"pool_mb": 4, "max_running": 12, "step_tokens": 48, "speculation": "ngram", "speculation_tokens": 5}
    source = LoadedAdapters()
    sizes = {**ENGINE_SETTINGS.get(family, {}), **defaults, **settings}
    engine = Engine(EngineConfig(model=root / "model", **sizes), source)
    digests = [""]
    for name in ADAPTERS:
        adapter = adapter_at(name, root / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    return engine, digests


def poison(engine: Engine, digests: Sequence[str]) -> None:
    """Fill what no row has written with NaN."""
    engine.core.prefixes.clear_idle()
    for digest in digests[1:]:
        engine.drop_adapter(digest)
    engine.pool.data[:, 1:].fill_(float("nan"))  # all but the padding page
    drafts = engine.loaded.model.ops.draft_inputs
    assert drafts is not None
    drafts.data.fill_(float("nan"))


def requests_of(digests: Sequence[str], count: int, longest: int = 24, *, seed: int = 3) -> list[GenerationRequest]:
    """Requests of all adapters, greedy and seeded, of which some begin alike."""
    rnd = random.Random(seed)
    common = [rnd.randrange(VOCAB) for _ in range(40)]
    return [
        GenerationRequest(
            str(index),
            common[: rnd.choice([0, 40, 40, 40])] + [rnd.randrange(VOCAB) for _ in range(rnd.randint(1, 40))],
            SamplingParams(
                max_tokens=rnd.randint(longest // 2, longest), ignore_eos=True, temperature=index % 3 / 2, seed=index,
                logprobs=True, presence_penalty=float(index % 5 == 4),
            ),
            adapter_digest=digests[index % len(digests)],
        )
        for index in range(count)
    ]  # fmt: skip


def run(
    engine: Engine, requests: Sequence[GenerationRequest], late: random.Random | None = None
) -> tuple[Answers, dict[str, RequestUsage]]:
    """Run all requests; ``late``: they come one by one, and some running ones are pre-empted."""
    answers = Answers()
    deltas, usages = run_requests(engine, requests, late)
    for delta in deltas:
        answer = answers.setdefault(delta.request_id, Answer())
        answer.tokens += delta.token_ids
        answer.logprobs += [entry.logprob for entry in delta.logprobs]
    stats = engine.pool_stats()
    assert (stats.kv, stats.state) == (0, 0)
    return answers, usages


def knowing(answers: Answers, rnd: random.Random, right: float) -> RandomDrafter:
    return RandomDrafter(rnd, following(lambda s: answers[s.request.request_id].tokens, rnd), right)


def assert_same(answers: Answers, expected: Answers, tolerance: float = 1e-4) -> None:
    for key, want in expected.items():
        assert answers[key].tokens == want.tokens, key
        assert answers[key].logprobs == pytest.approx(want.logprobs, abs=tolerance), key


@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_change_no_output(folder: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right and wrong drafts of several adapters, beside chunks of prompts, cached states and pre-emption."""
    monkeypatch.setattr("lora_engine.scheduling.scheduler._LEAST_SNAPSHOT_TOKENS", 16)
    engine, digests = build(folder, family)
    scheduler, rnd = engine.core.scheduler, random.Random(7)
    assert scheduler.speculation is not None
    scheduler.speculation = None
    requests = requests_of(digests, 9, 16)
    expected, _ = run(engine, requests)
    for right in (1.0, 0.6) if family == FAMILIES[0] else (0.7,):
        poison(engine, digests)
        scheduler.speculation = AlwaysDrafts(knowing(expected, rnd, right), 7, 100)  # more than slots hold
        answers, usages = run(engine, requests, rnd)
        assert_same(answers, expected)
        assert any(usage.preemptions for usage in usages.values())
        accepted = sum(usage.accepted_tokens for usage in usages.values())
        drafted = sum(usage.drafted_tokens for usage in usages.values())
        assert 0 < accepted <= drafted and (right == 1.0 or accepted < drafted)
        assert any(usage.cached_prompt_tokens for usage in usages.values()), "no state was found again"


def test_rows_apart_are_bitwise_the_same(folder: Path) -> None:
    engine, digests = build(folder, FAMILIES[0], deterministic=True)
    scheduler, rnd = engine.core.scheduler, random.Random(1)
    scheduler.speculation = None
    requests = requests_of(digests, 4, 12)
    expected, _ = run(engine, requests)
    poison(engine, digests)
    scheduler.speculation = AlwaysDrafts(knowing(expected, rnd, 0.7), 5, 100)
    answers, usages = run(engine, requests, rnd)
    assert answers == expected
    assert sum(usage.accepted_tokens for usage in usages.values()) > 5


def test_a_draft_waits_for_a_slot(folder: Path) -> None:
    """Two slots serve sequences one after the other, and are free at the end; `--plan` counts their bytes."""
    engine, digests = build(folder, FAMILIES[0], speculation_max_running=2, speculation_tokens=2)
    scheduler = engine.core.scheduler
    slots = scheduler._draft_slots._free
    assert len(slots) == 2
    scheduler.speculation = None
    requests = requests_of(digests, 6, 10)
    expected, _ = run(engine, requests)
    scheduler.speculation = AlwaysDrafts(knowing(expected, random.Random(1), 0.8), 7, 100)
    answers, usages = run(engine, requests)
    assert_same(answers, expected)
    assert sum(usage.drafted_tokens > 0 for usage in usages.values()) >= 3
    assert sorted(slots) == [0, 1]
    drafts = engine.loaded.model.ops.draft_inputs
    assert drafts is not None
    assert drafts.data.nbytes == draft_bytes(engine.config, engine.loaded.model.shape) > 0
    assert draft_bytes(replace(engine.config, speculation="off"), engine.loaded.model.shape) == 0


def test_steps_without_drafts_after_some(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted drafts are taken into the state once, also without further ones; steps after that have no runs."""
    engine, digests = build(folder, FAMILIES[0])
    scheduler = engine.core.scheduler
    scheduler.speculation = None
    requests = requests_of(digests, 2, 36)
    expected, _ = run(engine, requests)
    speculation = AlwaysDrafts(knowing(expected, random.Random(1), 1.0), 4, 100)
    seen, plan = list[tuple[int, int] | None](), engine.loaded.model.ops.plan

    def watch(batch: StepBatch, pool: PagePool) -> Any:
        runs = batch.decode_runs
        seen.append(None if runs is None else (int(runs[RunField.DRAFTS].sum()), int(runs[RunField.REPLAYS].sum())))
        scheduler.speculation = speculation if len(seen) % 6 < 3 else None
        return plan(batch, pool)

    monkeypatch.setattr(engine.loaded.model.ops, "plan", watch)
    answers, _ = run(engine, requests)
    assert_same(answers, expected)
    assert None in seen[3:] and any(runs is not None and runs[0] == 0 and runs[1] > 0 for runs in seen)


def test_a_draft_head_beside_recurrent_layers(folder: Path) -> None:
    build(folder, FAMILIES[0])
    head = save_head(folder / "head", 64, VOCAB)
    engine, digests = build(folder, FAMILIES[0], speculation="eagle3", draft_model=head)
    scheduler, drafter = engine.core.scheduler, engine._head
    assert drafter is not None and scheduler.speculation is not None
    scheduler.speculation = None
    requests = requests_of(digests, 4, 16)
    expected, _ = run(engine, requests)
    scheduler.speculation = AlwaysDrafts(drafter, 4, 100)
    answers, usages = run(engine, requests, random.Random(2))
    assert_same(answers, expected)
    assert all(usage.drafted_tokens for usage in usages.values())


def test_a_grammar_beside_recurrent_layers(folder: Path) -> None:
    """Drafts that the grammar allows are accepted, and a refused one leaves nothing in the state."""
    engine, digests = build(folder, FAMILIES[0])
    scheduler, rnd = engine.core.scheduler, random.Random(4)
    grammar = engine.grammars.compile(Constraint(Kind.REGEX, '"name": [a-z]{12} "age": [0-9]{3}'))
    params = SamplingParams(max_tokens=60, temperature=1.0, seed=2, logprobs=True)
    requests = [GenerationRequest("constrained", [*range(30)], params, digests[1], grammar=grammar)]
    requests += requests_of(digests, 2, 20)
    scheduler.speculation = None
    expected, _ = run(engine, requests)
    for right in (1.0, 0.5):
        scheduler.speculation = AlwaysDrafts(knowing(expected, rnd, right), 5, 100)
        answers, usages = run(engine, requests)
        assert_same(answers, expected)
        assert usages["constrained"].accepted_tokens > 5
    engine.grammars.close()


def in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run graphs instead of replaying them, and few of them: an interpreter's rows take long."""
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (32,))
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {0: (24,)})


@pytest.mark.usefixtures("few_programs")
def test_interpreted_graphs_with_drafts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts and replays in graphs of decode steps, in larger ones, and beside prompts; pages and slots hold NaN."""
    sizes: dict[str, Any] = {"max_running": 4, "step_tokens": 20, "prefix_cache": False, "speculation_tokens": 3}
    engine, digests = build(folder, FAMILIES[0], **sizes)
    engine.core.scheduler.speculation = None
    requests = [
        GenerationRequest(str(index), [*range(index, index + length)], SamplingParams(max_tokens=6, ignore_eos=True), d)
        for index, (length, d) in enumerate([(3, ""), (6, "")])
    ]
    expected, _ = run(engine, requests)
    in_graphs(monkeypatch)
    engine, _ = build(folder, FAMILIES[0], **sizes, backend="triton", dtype="float32")
    model, pool = engine.loaded.model, engine.pool
    engine.runner = runner = GraphRunner(model, pool, 4, engine.loaded.max_context, drafted_rows=4)
    runner.graphs.capture_first()
    chosen, rnd = list[tuple[GraphShape, bool, bool]](), random.Random(2)
    forward = runner._load

    def watch(contents: torch.Tensor, shape: GraphShape) -> None:
        forward(contents, shape)
        runs = runner.inputs.runs[:, : shape.size]
        of_step = runner.inputs.reads_runs(shape)
        chosen.append((shape, of_step and bool(runs[1].any()), of_step and bool(runs[2].any())))

    monkeypatch.setattr(runner, "_load", watch)
    monkeypatch.setattr(Runner, "_forward", None)  # no step runs without a graph
    poison(engine, digests)
    engine.core.scheduler.speculation = AlwaysDrafts(knowing(expected, rnd, 0.8), 3, 100)
    answers, usages = Answers(), dict[str, RequestUsage]()
    engine.add_request(requests[0])
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            answers.setdefault(delta.request_id, Answer()).tokens.extend(delta.token_ids)
        usages |= {end.request_id: end.usage for end in output.finished}
        if len(answers["0"].tokens) >= 3 and "1" not in answers and "1" not in engine.core.requests:
            engine.add_request(requests[1])
    assert {key: answer.tokens for key, answer in answers.items()} == {k: a.tokens for k, a in expected.items()}
    assert sum(usage.accepted_tokens for usage in usages.values()) > 2
    assert any(drafts for shape, drafts, _ in chosen if shape.decodes is None)
    assert any(replays for shape, _, replays in chosen if shape.decodes is None)
    assert any(drafts or replays for shape, drafts, replays in chosen if shape.decodes)
    assert all(shape.drafted for shape, drafts, replays in chosen if shape.decodes is None and (drafts or replays))


@pytest.mark.long
@pytest.mark.usefixtures("few_programs")
def test_interpreted_rows_are_bitwise_the_same(folder: Path) -> None:
    """With ``--deterministic`` all steps run the kernels of runs."""
    sizes: dict[str, Any] = {"max_running": 4, "step_tokens": 80, "speculation_tokens": 3, "dtype": "float32"}
    engine, digests = build(folder, FAMILIES[0], backend="triton", deterministic=True, **sizes)
    scheduler = engine.core.scheduler
    scheduler.speculation = None
    params = SamplingParams(max_tokens=5, ignore_eos=True, logprobs=True)
    requests = [GenerationRequest(str(index), [*range(index, 2 * index + 3)], params) for index in range(2)]
    expected, _ = run(engine, requests)
    poison(engine, digests)
    scheduler.speculation = AlwaysDrafts(knowing(expected, random.Random(2), 0.7), 3, 100)
    answers, usages = run(engine, requests)
    assert answers == expected
    assert sum(usage.accepted_tokens for usage in usages.values()) > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        (FAMILIES[0], {"dtype": "float32"}),
        (FAMILIES[0], {"dtype": "bfloat16", "deterministic": True, "cuda_graphs": False}),
        (FAMILIES[1], {"dtype": "bfloat16", "deterministic": True}),
        (FAMILIES[2], {"dtype": "float32", "cuda_graphs": False}),
    ],
    ids=str,
)
def test_drafts_on_a_gpu(folder: Path, family: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With few graphs and no warm-up: this process compiles their kernels."""
    monkeypatch.setattr("lora_engine.model.warm_up.compile_prefill_steps", lambda *_: 0.0)
    monkeypatch.setattr(graph_shapes, "graph_memory", lambda *_: 1 << 50)
    monkeypatch.setattr("lora_engine.execution.graph_set.usual_graphs", lambda *_, **__: [])
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (64,))
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {})
    monkeypatch.setattr("lora_engine.scheduling.scheduler._LEAST_SNAPSHOT_TOKENS", 16)
    engine, digests = build(folder, family, device="cuda", pool_mb=64, max_running=16, step_tokens=96, **settings)
    scheduler, rnd = engine.core.scheduler, random.Random(7)
    scheduler.speculation = None
    requests = requests_of(digests, 8, 40)
    expected, _ = run(engine, requests)
    for right in (0.8, 0.0):
        poison(engine, digests)
        scheduler.speculation = AlwaysDrafts(knowing(expected, rnd, right), 7, 100)
        answers, usages = run(engine, requests, rnd)
        assert sum(usage.accepted_tokens for usage in usages.values()) > 40 or right == 0.0
        if engine.config.deterministic:
            assert answers == expected, "not bitwise the same"
        else:
            assert_same(answers, expected, 1e-3)
