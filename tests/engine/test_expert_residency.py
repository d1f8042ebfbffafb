"""Adapters of whose experts only some are in the pool give the tokens of models with their deltas in the weights."""

from __future__ import annotations

import dataclasses
import random
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.expert_adapters import random_factors, save_experts, with_deltas
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.poisoned_pool import poison
from lorikeet_testing.ranks import Run, answers, led
from lorikeet_testing.reference_families import Family, ReferenceFamilies, build_engine, run_all
from lorikeet_testing.tiny_models import VOCAB, Adapter, save_model
from transformers import AutoModelForCausalLM

from lora_engine.adapters import expert_policy
from lora_engine.adapters.expert_policy import ExpertPolicy, ExpertReport, RecentPairs
from lora_engine.adapters.expert_residency import Change, Move
from lora_engine.adapters.host_arena import HostArena
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.memory import OutOfPages
from lora_engine.model.parallel import Parallel
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.server.engine_loop import EngineLoop

pytestmark = pytest.mark.usefixtures("few_programs")
# Prompts are computed in chunks, in a pool without room for all experts.
SMALL = {"step_tokens": 24, "pool_mb": 1, "page_tokens": 2, "max_context": 128}
OLMOE, QWEN, NEXT = "olmoe-experts", "qwen3-some-layers-with-experts", "qwen3-next-experts"


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> ReferenceFamilies:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))


@dataclasses.dataclass
class Served:
    """A model with adapters on its experts, and the models that have their deltas."""

    family: Family
    models: dict[str, Any]

    def engine(self, **settings: Any) -> Engine:
        engine = build_engine(self.family, **{"expert_residency": "auto", **settings})
        poison(engine)
        return engine

    def requests(self, count: int, seed: int, tokens: int) -> list[GenerationRequest]:
        """Requests of every adapter and of the base; some prompts begin alike."""
        rnd = random.Random(seed)
        shared = [rnd.randrange(VOCAB) for _ in range(12)]

        def prompt() -> list[int]:
            return rnd.choice((shared, [])) + [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 7, 30)))]

        digests = [*self.models, self.family.adapters["attention-r8"].digest]
        return [
            GenerationRequest(str(n), prompt(), SamplingParams(max_tokens=tokens), digests[n % len(digests)])
            for n in range(count)
        ]

    def check(self, requests: list[GenerationRequest], tokens: dict[str, list[int]]) -> None:
        for request in requests:
            answer, model = tokens[request.request_id], self.models.get(request.adapter_digest)
            if model is None:
                self.family.check_greedy(request, answer, "attention-r8")
                continue
            with torch.inference_mode():
                logits = model(input_ids=torch.tensor([request.prompt_token_ids + answer[:-1]])).logits[0]
            assert answer == logits.argmax(dim=-1)[-len(answer) :].tolist()


def serve(families: ReferenceFamilies, name: str, folder: Path, forms: tuple[str, ...]) -> Served:
    family, models = families(name), dict[str, Any]()
    base = AutoModelForCausalLM.from_pretrained(
        family.folder, dtype=torch.float32, experts_implementation="eager"
    ).eval()  # fmt: skip
    adapters: dict[str, Adapter] = {"attention-r8": family.adapters["attention-r8"]}
    for seed, form in enumerate(forms):
        factors = random_factors(base, seed, form)
        adapters[form] = save_experts(folder / form, factors, form)
        models[adapters[form].digest] = with_deltas(base, factors)
    return Served(dataclasses.replace(family, adapters=adapters), models)


def disturb(engine: Engine, rnd: random.Random) -> None:
    """Change at random, before every step, which experts lie in the pool, and pre-empt sequences."""
    policy, step = engine.core.device_tier.experts, engine.step
    assert policy is not None

    def disturbed() -> Any:
        if (running := [*engine.core.scheduler.running]) and rnd.random() < 0.2:
            engine.core.scheduler._preempt(rnd.choice(running))
        for entry in list(policy._entries.values()):
            residency = entry.residency
            if not entry.evictable_pages and not (entry.in_use and entry.arrived):
                continue
            if residency.pages_of and rnd.random() < 0.2:
                policy.evict(entry)
            missing = [frame for frame in range(residency.frames.count) if frame not in residency.pages_of]
            added = []
            try:
                if missing and rnd.random() < 0.5 and engine.core.allocator.free > 12:
                    pages = engine.core.allocator.allocate_run(residency.frames.pages)
                    added = [(rnd.choice(missing), tuple(pages))]
            except OutOfPages:
                pass
            moves = []
            for group, units in enumerate(residency.frames.units):
                outside = [unit for unit in range(units) if residency.frame_of[group, unit] < 0]
                frames = [*residency.pages_of, *(frame for frame, _ in added)]
                if outside and frames and rnd.random() < 0.7:
                    moves.append(Move(group, rnd.choice(outside), rnd.choice(frames)))
            policy._change(entry, Change((), tuple(added), tuple(moves)))
            if moves and rnd.random() < 0.7:  # else the copy is still under way in the next step
                policy._settle(entry)
        output = step()
        for entry in policy._entries.values():
            if policy._residents.moves(entry.residency):
                policy._settle(entry)
        return output

    engine.step = disturbed  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("name", "forms", "settings"),
    [
        (QWEN, ("parameters", "shared", "uneven"), SMALL),
        (NEXT, ("w1 w2 w3",), {"step_tokens": 32}),
        (OLMOE, ("shared",), {"backend": "triton", "step_tokens": 64, "expert_residency": "0.4"}),
    ],
    ids=["chunks and pre-emptions", "hybrid", "kernels"],
)
def test_any_routing_is_served_with_any_experts_in_the_pool(
    families: ReferenceFamilies, tmp_path: Path, name: str, forms: tuple[str, ...], settings: dict[str, Any],
    tensor_seed: int,
) -> None:  # fmt: skip
    """Experts come and go at random between steps; free pages are full of NaN, and the pool is checked at each step."""
    served = serve(families, name, tmp_path, forms)
    engine = served.engine(**settings)
    disturb(engine, random.Random(tensor_seed))
    requests = served.requests(*{QWEN: (9, tensor_seed, 7), NEXT: (6, tensor_seed, 4)}.get(name, (2, tensor_seed, 2)))
    tokens, preemptions = run_all(engine, requests)
    served.check(requests, tokens)
    assert settings is not SMALL or preemptions


@pytest.fixture
def read_each_step(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(expert_policy, "_READ_EVERY", 1)
    monkeypatch.setattr(expert_policy, "_MORE", 0.5)
    yield


@pytest.mark.usefixtures("read_each_step")
@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_the_experts_in_use_get_pages(families: ReferenceFamilies, tmp_path: Path, backend: str) -> None:
    served = serve(families, OLMOE, tmp_path, ("parameters",))
    engine = served.engine(expert_residency="0.34", backend=backend, step_tokens=64)
    (digest,), prompt = served.models, [5, 9, 11]
    request = GenerationRequest("0", prompt, SamplingParams(max_tokens=4), digest)
    tokens, _ = run_all(engine, [request])
    served.check([request], tokens)
    policy = engine.core.device_tier.experts
    assert policy is not None and policy.stats.promotions and policy.stats.demotions
    layers, chosen = (
        served.family.reference.config.num_hidden_layers,
        served.family.reference.config.num_experts_per_tok,
    )
    assert policy.stats.pairs >= layers * chosen * 3 and 0 < policy.stats.host_pairs < policy.stats.pairs
    report = engine.expert_report()
    assert report is not None and (report.setting, report.recent_pairs) == ("0.34", policy.stats.pairs)
    assert report.recent_host_pairs == policy.stats.host_pairs
    (adapter,) = engine.device_adapters()
    assert 0 < adapter.experts_resident < adapter.experts_total
    assert (adapter.experts_resident, adapter.experts_total) == (report.resident, report.total)
    (entry,) = policy._entries.values()
    residency = entry.residency
    for group in range(layers):
        inside = residency.frame_of[group] >= 0
        assert residency.heat[group][inside].mean() > residency.heat[group][~inside].mean()


def test_a_running_adapter_gives_up_experts_for_other_pages(families: ReferenceFamilies, tmp_path: Path) -> None:
    """A pool that the adapter's experts fill has room for long answers, without a pre-emption."""
    served = serve(families, OLMOE, tmp_path, ("parameters",))
    (digest,) = served.models
    engine = served.engine(pool_mb=2, page_tokens=2)
    begun = GenerationRequest("0", [1, 2, 3], SamplingParams(max_tokens=12), digest)
    engine.add_request(begun)
    engine.step()
    policy, (slot,) = engine.core.device_tier.experts, engine.core.device_tier.slots()
    assert policy is not None and slot.residency is not None
    while engine.core.allocator.free >= slot.residency.frames.pages:  # as if others had the rest
        engine.core.allocator.allocate(1)
    before, frames = len(slot.residency.pages_of), slot.residency
    long = GenerationRequest("1", list(range(60)), SamplingParams(max_tokens=4), "")
    engine.add_request(long)
    tokens = list[int]()
    while engine.has_work():
        output = engine.step()
        for delta in output.deltas:
            tokens += delta.token_ids
        assert all(end.error is None and not end.usage.preemptions for end in output.finished)
        policy.check()
    assert policy.stats.demotions and len(frames.pages_of) < before and len(tokens) >= 15


def test_an_adapter_that_left_host_memory_leaves_the_device_too(families: ReferenceFamilies, tmp_path: Path) -> None:
    served = serve(families, OLMOE, tmp_path, ("parameters",))
    (digest,) = served.models
    engine = served.engine(expert_residency="0.0")
    request = GenerationRequest("0", [1, 2, 3], SamplingParams(max_tokens=3), digest)
    tokens, _ = run_all(engine, [request])
    served.check([request], tokens)
    (slot,) = engine.core.device_tier.slots()
    assert (
        slot.residency is not None and slot.residency.residents == 0 and len(slot.pages) == slot.residency.least_pages
    )
    engine.source.clear()  # type: ignore[attr-defined]
    run_all(engine, [GenerationRequest("1", [1, 2], SamplingParams(max_tokens=2), "")])
    assert not list(engine.core.device_tier.slots())
    assert engine.pool_stats().adapter == 0


class SlowMark:
    """The end of launched steps, which comes when the test says so."""

    ended = False

    def done(self) -> bool:
        return self.ended

    def join(self) -> None: ...

    def seconds(self) -> float:
        return 0.0


def test_an_idle_engine_frees_the_host_memory_of_an_evicted_adapter(
    families: ReferenceFamilies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a further step, but not before launched steps have ended, which may still read its experts there."""
    served = serve(families, OLMOE, tmp_path, ("parameters",))
    (digest,) = served.models
    engine = served.engine(expert_residency="0.0")
    run_all(engine, [GenerationRequest("0", [1, 2, 3], SamplingParams(max_tokens=2), digest)])
    steps, mark, freed = engine.steps, SlowMark(), threading.Event()
    loop, packed = EngineLoop(engine, lambda output: None), engine.source.get(digest)
    assert packed is not None
    arena = HostArena(packed.num_bytes)
    arena.on_removed = loop.wake
    arena.reserve(digest, packed.num_bytes, 0)
    arena.put(packed)
    monkeypatch.setattr(engine.core.device_tier, "_in_host_memory", lambda packed: arena.has(packed.digest))
    monkeypatch.setattr(engine.core.device_tier._copies, "mark", lambda: mark)
    weakref.finalize(packed.data, freed.set)
    engine.source.clear()  # type: ignore[attr-defined]
    del packed
    loop.start()
    loop.call(lambda engine: None).result(10)
    assert len(list(engine.core.device_tier.slots())) == 1
    arena.reserve("sha256:other", arena.capacity, 0)
    assert not freed.wait(0.05)
    mark.ended = True
    assert freed.wait(10)
    loop.stop()
    assert engine.steps == steps and engine.pool_stats().adapter == 0


def test_graphs_follow_the_tables(
    families: ReferenceFamilies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensor_seed: int
) -> None:
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(
        "lora_engine.engine.build_runner",
        lambda config, loaded, mirror: GraphRunner(loaded.model, loaded.pool, config.max_running, loaded.max_context),
    )
    served = serve(families, OLMOE, tmp_path, ("w1 w2 w3",))
    engine = served.engine(step_tokens=64, backend="triton")
    disturb(engine, random.Random(tensor_seed))
    (digest,) = served.models
    request = GenerationRequest("0", [3], SamplingParams(max_tokens=2), digest)
    tokens, _ = run_all(engine, [request])
    served.check([request], tokens)


def test_pairs_are_reported_for_a_minute(families: ReferenceFamilies) -> None:
    now = [0.0]
    recent = RecentPairs(lambda: now[0])
    for at, pairs in ((0.0, 100), (0.9, 10), (30.0, 1)):
        now[0] = at
        recent.add(pairs, pairs // 10)
    assert recent.report() == {"recent_pairs": 111, "recent_host_pairs": 11}
    now[0] = 61.0
    assert recent.report() == {"recent_pairs": 1, "recent_host_pairs": 0}
    now[0] = 200.0
    assert recent.report() == {"recent_pairs": 0, "recent_host_pairs": 0}
    assert build_engine(families(OLMOE)).expert_report() == ExpertReport("full")
    assert build_engine(families("llama3-scaled-rope-tied")).expert_report() is None


@pytest.mark.parametrize("setting", ["half", "1.0", "-0.1", "nan", ""])
def test_other_settings_are_refused(families: ReferenceFamilies, setting: str) -> None:
    with pytest.raises(ValueError, match="expert_residency"):
        build_engine(families(OLMOE), expert_residency=setting)


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("name", [OLMOE, QWEN])
def test_gpu_tokens(
    families: ReferenceFamilies, name: str, graphs: bool, tmp_path: Path, tensor_seed: int, read_each_step: None
) -> None:
    """Page-locked memory is read by kernels, also those of captured graphs, while experts come and go."""
    served = serve(families, name, tmp_path, ("parameters", "shared", "uneven"))
    settings = {"device": "cuda", "dtype": "float32", "cuda_graphs": graphs, "pool_mb": 64}
    for residency in ("0.3", "0.0", "auto"):
        engine = served.engine(expert_residency=residency, **settings)
        if residency == "auto":
            disturb(engine, random.Random(tensor_seed))
        requests = served.requests(8, tensor_seed, 12)
        tokens, _ = run_all(engine, requests)
        served.check(requests, tokens)
        policy = engine.core.device_tier.experts
        assert isinstance(policy, ExpertPolicy) and (residency != "0.0" or policy.stats.host_pairs)


def test_a_rank_that_follows_moves_the_same_experts(tmp_path: Path, read_each_step: None) -> None:
    """Rank 0 decides, also what a full pool takes from running adapters; free pages are full of NaN on both ranks."""
    model = save_model(QWEN, tmp_path / "model")
    adapters = [
        save_experts(tmp_path / form, random_factors(model, seed, form), form)
        for seed, form in enumerate(("parameters", "uneven"))
    ]
    rnd = random.Random(3)
    requests = [
        GenerationRequest(
            str(n), [rnd.randrange(VOCAB) for _ in range(rnd.choice((2, 30)))],
            SamplingParams(max_tokens=8), adapters[n % 2].digest,
        )
        for n in range(6)
    ]  # fmt: skip
    alone = Run(tmp_path / "model", adapters, requests).on(Parallel()).tokens
    for residency in ("0.4", "auto"):
        config = EngineConfig(
            model=tmp_path / "model", data_dir=tmp_path, pool_mb=1, page_tokens=2, step_tokens=64, max_context=128,
            threads=1, tensor_parallel=2, expert_residency=residency,
        )  # fmt: skip
        with led(config, adapters) as engine:
            if residency == "auto":
                disturb(engine, rnd)
            tokens, _ = answers(engine, requests)
            assert tokens == alone
            policy = engine.core.device_tier.experts
            assert policy is not None and policy.stats.promotions and policy.stats.demotions
