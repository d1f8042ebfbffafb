"""Steps with prompts that run in graphs: which graph a step takes, and that it changes no token.

Without a GPU a graph is run, not replayed: the same code over the same contents, interpreted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from lorikeet_testing.draft_heads import save_head
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter, following, tokens_of
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_adapter, save_model

import lora_engine.execution.graph_runner as graph_runner
import lora_engine.model.graph_shapes as graph_shapes
from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.graph_set import GraphSet
from lora_engine.execution.head_drafter import HeadDrafter
from lora_engine.execution.prompt_reads import PromptReads
from lora_engine.execution.runner import Logits, Runner
from lora_engine.model.batch import LoraSpan
from lora_engine.model.config import ModelConfig
from lora_engine.model.graph_shapes import MAX_PROMPTS, GraphShape, fitting_mixed_graphs, graph_rows, mixed_graphs
from lora_engine.model.parallel import Parallel
from lora_engine.model.shape import ModelShape
from lora_engine.model.triton_ops import ALL_GROUPS, MIXERS, covering, split_spans
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.sequence import Chunk
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_kernels import attention
from lora_kernels.work_items import tiles_needed

ADAPTERS = ("attention-r8", "all-linear-r16-rslora", "one-layer-r64")


@pytest.fixture(autouse=True)
def _any_room_for_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the card has left says little about one's own graphs where other tests run on it."""
    monkeypatch.setattr("lora_engine.model.graph_shapes.graph_memory", lambda *_: 1 << 50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mixed")
    model = save_model("llama3-scaled-rope-tied", root / "model")
    for name in ADAPTERS:
        save_adapter(name, model, root / name)
    return root


def build(folder: Path, device: str, **settings: object) -> tuple[Engine, list[str]]:
    source = LoadedAdapters()
    defaults = {
        "device": device, "backend": "triton", "dtype": "float32", "pool_mb": 16, "max_running": 3,
        "prefix_cache": False, "step_tokens": 20,
    }  # fmt: skip
    config = EngineConfig(model=folder / "model", **{**defaults, **settings})  # type: ignore[arg-type]
    engine = Engine(config, source)
    digests = [""]
    for name in ADAPTERS:
        adapter = adapter_at(name, folder / name)
        source.add(pack_for(engine, adapter))
        digests.append(adapter.digest)
    return engine, digests


def generate(engine: Engine, digests: list[str], count: int, lengths: Sequence[int]) -> dict[str, list[int]]:
    """Three requests come with each step."""
    rnd, tokens = random.Random(3), dict[str, list[int]]()
    while len(tokens) < count or engine.has_work():
        for index in range(len(tokens), min(len(tokens) + 3, count)):
            prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice(lengths))]
            params = SamplingParams(max_tokens=rnd.randint(2, 4), ignore_eos=True)
            engine.add_request(GenerationRequest(str(index), prompt, params, rnd.choice(digests)))
            tokens[str(index)] = []
        output = engine.step()
        for delta in output.deltas:
            tokens[delta.request_id] += delta.token_ids
        assert all(end.error is None for end in output.finished)
    engine.core.check()
    return tokens


@pytest.mark.usefixtures("few_programs")
def test_interpreted_mixed_graphs_give_the_same_tokens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, digests = build(folder, "cpu", backend="torch")
    joined = generate_two(engine, digests)
    plain, alone = generate(engine, digests, 4, (1, 7, 12)), generate(engine, digests[2:3], 1, (19,))
    monkeypatch.setattr(graph_runner, "StepGraph", RunEveryTime)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (32,))  # an interpreter's rows take long
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {0: (24,)})
    monkeypatch.setattr(attention, "LEAST_SPLIT", 4)
    monkeypatch.setattr(attention, "LEAST_SPLIT_KEYS", 8)
    engine, digests = build(folder, "cpu")
    runner = GraphRunner(engine.loaded.model, engine.pool, 3, engine.loaded.max_context)
    runner.graphs.capture_first()
    engine.runner = runner
    engine.pool.data[:, 1:].fill_(float("nan"))  # all but the padding page
    assert generate(engine, digests, 4, (1, 7, 12)) == plain
    assert generate(engine, digests[2:3], 1, (19,)) == alone
    replays = {shape: cast(RunEveryTime, runner.graphs[shape]).replays for shape in mixed_graphs(3)}
    assert sum(replays.values()) >= 2
    for decodes in (0, 3):
        assert any(replays[shape] for shape in replays if shape.lora and shape.decodes == decodes)

    # Rows of drafts, some of which are right: in a graph of decode steps, and beside a prompt.
    rnd = random.Random(1)
    known = following(lambda sequence: joined[sequence.request.request_id], rnd)
    engine.core.scheduler.speculation = AlwaysDrafts(RandomDrafter(rnd, known, 0.7), 2, 3)
    rows: list[tuple[int, bool]] = []
    forward = runner._forward

    def watch(chunks: list[Chunk], merged: AdapterSlot | None, prompts: PromptReads | None) -> Logits:
        rows.append((max(len(chunk.drafts) for chunk in chunks), any(chunk.known > 1 for chunk in chunks)))
        return forward(chunks, merged, prompts)

    monkeypatch.setattr(runner, "_forward", watch)
    monkeypatch.setattr(Runner, "_forward", None)  # no step runs without a graph
    assert generate_two(engine, digests) == joined
    assert {beside_prompt for drafts, beside_prompt in rows if drafts} == {False, True}


@pytest.mark.usefixtures("few_programs")
def test_interpreted_graphs_keep_what_a_draft_head_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its guesses are those after steps without graphs: in graphs of decode steps, with drafts, and beside a prompt."""
    head = save_head(folder / "head", 64, VOCAB)
    monkeypatch.setattr(graph_runner, "StepGraph", RunEveryTime)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (32,))
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {0: (24,)})
    guesses: list[list[tuple[list[int], list[int]]]] = []
    for backend in ("torch", "triton"):
        settings = {"backend": backend, "speculation": "eagle3", "draft_model": head}
        engine, digests = build(folder, "cpu", **settings)
        drafter = engine._head
        assert drafter is not None
        if backend == "triton":
            engine.runner = GraphRunner(engine.loaded.model, engine.pool, 3, engine.loaded.max_context)
            engine.runner.drafting = engine.core.may_draft
            engine.runner.graphs.capture_first()
            monkeypatch.setattr(Runner, "_forward", None)  # no step runs without a graph
        engine.core.scheduler.speculation = AlwaysDrafts(drafter, 2, 3)
        made, propose = list[tuple[list[int], list[int]]](), drafter.propose

        def record(
            sequences: Sequence[TokenSequence],
            most: Sequence[int],
            made: list[tuple[list[int], list[int]]] = made,
            propose: Callable[..., list[list[int]]] = propose,
            drafter: HeadDrafter = drafter,
        ) -> list[list[int]]:
            found = propose(sequences, most)
            tokens = [tokens_of(drafter, guess) for guess in found]
            made.extend(([*one.token_ids], guess) for one, guess in zip(sequences, tokens, strict=True) if guess)
            return found

        monkeypatch.setattr(drafter, "propose", record)
        generate_two(engine, digests)
        guesses.append(made)
    assert guesses[0] == guesses[1]
    assert len(guesses[0]) > 5


def generate_two(engine: Engine, digests: list[str]) -> dict[str, list[int]]:
    """The second request comes while the first one decodes."""
    params, tokens = SamplingParams(max_tokens=9, ignore_eos=True), dict[str, list[int]]()
    engine.add_request(GenerationRequest("first", [5], params, digests[2]))
    waiting = [GenerationRequest("second", [*range(7)], SamplingParams(max_tokens=2, ignore_eos=True), digests[1])]
    while engine.has_work():
        for delta in engine.step().deltas:
            tokens.setdefault(delta.request_id, []).extend(delta.token_ids)
        if waiting and len(tokens["first"]) >= 2:
            engine.add_request(waiting.pop())
    return tokens


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mixed_graphs_give_the_same_tokens(folder: Path, dtype: str) -> None:
    settings = {"pool_mb": 64, "max_running": 40, "step_tokens": 600, "dtype": dtype}
    lengths = (1, 5, 17, 40, 90, 150)
    engine, digests = build(folder, "cuda", **settings)
    runner = engine.runner
    assert isinstance(runner, GraphRunner)
    chosen = _watched(runner)
    mixed = generate(engine, digests, 200, lengths)
    assert len({shape.size for shape in chosen}) >= 4 and any(shape.lora for shape in chosen)
    engine, digests = build(folder, "cuda", **settings, cuda_graphs=False)
    plain = generate(engine, digests, 200, lengths)
    if dtype == "float32":
        assert mixed == plain
    else:  # sums of other orders
        assert sum(mixed[key] == plain[key] for key in plain) > len(plain) / 2


def _watched(runner: GraphRunner) -> list[GraphShape]:
    """Shapes of mixed steps, as they are chosen."""
    chosen: list[GraphShape] = []
    choose = runner.graphs.choose_mixed

    def watch(fitting: Sequence[GraphShape]) -> GraphShape | None:
        shape = choose(fitting)
        if shape is not None:
            chosen.append(shape)
        return shape

    runner.graphs.choose_mixed = watch  # type: ignore[method-assign]
    return chosen


def spans_of(runs: Sequence[tuple[int, int, int]], groups: frozenset[int] = MIXERS) -> list[LoraSpan]:
    """Adapters with (start, stop, rank)."""
    return [
        LoraSpan(cast(AdapterSlot, SimpleNamespace(rank=rank, table_index=index, groups=groups)), start, stop)
        for index, (start, stop, rank) in enumerate(runs, start=1)
    ]


def test_the_smallest_graph_that_holds_a_step() -> None:
    graphs = mixed_graphs(256)
    best = fitting_mixed_graphs(graphs, 3, 60, [])[0]
    assert (best.size, best.decodes, best.lora) == (64, 16, None)
    best = fitting_mixed_graphs(graphs, 0, 60, spans_of([(0, 60, 8)]))[0]
    assert (best.size, best.decodes, best.decode_lora) == (64, 0, None)
    best = fitting_mixed_graphs(graphs, 200, 500, spans_of([(0, 1, 8), (300, 500, 64)]))[0]
    assert (best.size, best.decodes, best.groups) == (512, 256, MIXERS)
    best = fitting_mixed_graphs(graphs, 200, 500, spans_of([(0, 1, 8)], ALL_GROUPS))[0]
    assert best.groups == ALL_GROUPS
    assert fitting_mixed_graphs(graphs, 10, 1025, []) == []
    assert fitting_mixed_graphs(graphs, 10, 60, spans_of([(0, 10, 128)])) == []
    assert fitting_mixed_graphs(graphs, 257, 500, []) == []


def test_large_graphs_of_several_ranks() -> None:
    """They hold more prompts, and waste at most a fifth of their rows."""
    graphs = mixed_graphs(256, 4000)
    assert max(shape.size for shape in graphs) == 4000
    best = fitting_mixed_graphs(graphs, 200, 1100, [], prompts=64)[0]
    assert (best.size, best.decodes, best.prompts) == (1280, 256, 64) and best.sampling_rows == 320
    assert fitting_mixed_graphs(graphs, 200, 3600, [], prompts=65) == []
    assert fitting_mixed_graphs(graphs, 200, 4000, [])[0].size == 4000
    for rows in range(1025, 4000, 37):
        assert any(shape.size <= rows + rows // 4 for shape in fitting_mixed_graphs(graphs, 256, rows, []))


_LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
_LLAMA_1B = _LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
_EXPERTS = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "max_position_embeddings": 40960,
}  # fmt: skip
_MIXTRAL = _LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("model", "settings", "rows"),
    [
        (_LLAMA, {"step_tokens": 4096}, 1024),
        (_LLAMA, {"step_tokens": 64}, 1024),
        (_LLAMA, {"step_tokens": 4096, "tensor_parallel": 2}, 2048),
        (_LLAMA, {"max_running": 1024, "tensor_parallel": 4}, 2048),
        (_LLAMA, {"step_tokens": 4096, "tensor_parallel": 8}, 4096),
        (_LLAMA_1B, {"step_tokens": 4096}, 3072),
        (_LLAMA_1B, {}, 1024),
        (_EXPERTS, {"step_tokens": 4096}, 4096),
        (_EXPERTS, {"step_tokens": 16384}, 7168),
        (_EXPERTS, {}, 1024),
        (_MIXTRAL, {"step_tokens": 4096}, 1024),
    ],
)
def test_graphs_hold_the_steps_whose_launches_take_longer_than_their_kernels(
    model: dict[str, object], settings: dict[str, int], rows: int
) -> None:
    """Those of several ranks, of small models, and of experts, of which a row uses few."""
    config, of_model = EngineConfig(model=Path("m"), **settings), ModelConfig.from_dict(model)  # type: ignore[arg-type]
    rank = Parallel(0, config.tensor_parallel)
    shape = ModelShape.of(of_model, rank, 1024, torch.device("meta"), torch.bfloat16)
    assert graph_rows(config, of_model, shape) == rows


def steps(rnd: random.Random, most_prompts: int, longest: int) -> Iterator[tuple[int, int, list[LoraSpan]]]:
    """(decode rows, rows, adapters), where each row or prompt may have one."""
    for _ in range(200):
        decodes = rnd.choice((0, rnd.randint(0, 256)))
        starts = list(range(decodes + 1))
        for _ in range(rnd.randint(1, most_prompts)):
            starts.append(starts[-1] + rnd.randint(2, rnd.choice((3, 64, longest))))
        runs = [(start, stop, rnd.choice((8, 64))) for start, stop in pairwise(starts) if rnd.random() < 0.5]
        yield decodes, starts[-1], spans_of(runs)


@pytest.mark.parametrize(("most_rows", "prompts", "longest"), [(0, 16, 300), (4096, MAX_PROMPTS, 300), (4000, 8, 900)])
def test_every_step_s_tiles_fit_into_its_graph(most_rows: int, prompts: int, longest: int) -> None:
    graphs, fitted = mixed_graphs(256, most_rows), 0
    for decodes, tokens, spans in steps(random.Random(5), prompts, longest):
        for shape in fitting_mixed_graphs(graphs, decodes, tokens, spans, prompts):
            of_decodes, of_prompts = split_spans(covering(spans, shape.size), decodes)
            if shape.lora:
                assert tiles_needed(of_prompts, shape.lora.variant) <= shape.tiles
                fitted += 1
            if shape.decode_lora:
                assert tiles_needed(of_decodes, shape.decode_lora.variant) <= (shape.decodes or 0)
    assert fitted > 100


def test_what_is_not_captured_runs_without_or_in_a_larger_one() -> None:
    captured: list[GraphShape] = []
    mixed = mixed_graphs(64)
    graphs = GraphSet(64, lambda shape: captured.append(shape) or shape, lambda: 1 << 40, deferred=True, mixed=mixed)  # type: ignore[func-returns-value]
    graphs.capture_first()
    assert not any(shape.decodes is not None for shape in captured)
    fitting = fitting_mixed_graphs(mixed, 10, 100, [])
    assert graphs.choose_mixed(fitting) is None  # too soon after the last capture
    for _ in range(graphs.steps_between):
        graphs.choose_mixed([])
    assert graphs.choose_mixed(fitting) == fitting[0]
    assert graphs.choose_mixed(fitting[1:]) is None
    smaller = fitting_mixed_graphs(mixed, 10, 70, [])
    assert graphs.choose_mixed(smaller) == smaller[0] == fitting[0]
    while graphs.capture_next():
        """Until all are there."""
    assert set(mixed) <= set(captured)
