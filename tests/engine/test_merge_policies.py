"""Merged weights: the same tokens, pristine weights for ever, and a policy that merges when it pays."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.merge_policies import UNMERGED, Applied, Batch, merge_policies
from lora_engine.scheduling.merge_policies.auto import AutoMerge
from lora_engine.scheduling.merge_policies.dlora import DLoraThresholds
from lora_engine.scheduling.step_cost import Work


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("modes")
    model = save_model("qwen2-qkv-bias", root / "model")
    for name in ADAPTERS:
        save_adapter(name, model, root / name)
    return root


def build(folder: Path, mode: str, **settings: object) -> Engine:
    source = LoadedAdapters()
    settings = {"pool_mb": 3, "step_tokens": 64, "threads": 1, **settings}
    config = EngineConfig(model=folder / "model", mode=mode, **settings)  # type: ignore[arg-type]
    engine = Engine(config, source)
    for name in ADAPTERS:
        source.add(pack_for(engine, adapter_at(name, folder / name)))
    return engine


def run(engine: Engine, folder: Path, names: list[str], new_tokens: int = 12) -> dict[str, list[int]]:
    """Greedy tokens of one request per name ("" is the base), submitted over time."""
    rnd = random.Random(5)
    tokens: dict[str, list[int]] = {}
    waiting = list(enumerate(names))
    while waiting or engine.has_work():
        for index, name in waiting[:2]:
            digest = adapter_at(name, folder / name).digest if name else ""
            prompt = [rnd.randrange(VOCAB) for _ in range(rnd.choice((1, 7, 30, 80)))]
            params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
            engine.add_request(GenerationRequest(f"{index}", prompt, params, digest))
            tokens[f"{index}"] = []
        del waiting[:2]
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        engine.core.check()
    return tokens


MIX = ["attention-r8"] * 12 + ["", "mlp-r5", "patterns"] * 2 + ["down-r256"] * 6 + ["", "one-layer-r64", "v-only-r1"]
LONG = MIX + ["attention-r8"] * 60 + ["patterns", "down-r256", "", "patterns", "down-r256"] * 2  # auto measures first


@pytest.mark.parametrize("mode", ["merged", "dlora", "auto"])
def test_merged_steps_give_the_tokens_of_unmerged_ones(folder: Path, mode: str) -> None:
    wanted = run(build(folder, "unmerged"), folder, LONG)
    engine = build(folder, mode)
    assert run(engine, folder, LONG) == wanted
    assert engine.merge_report().merges


def test_the_triton_backend_takes_a_merged_adapter_out_of_other_rows(folder: Path) -> None:
    names = ["attention-r8", "", "patterns", "attention-r8"]
    wanted = run(build(folder, "unmerged"), folder, names, new_tokens=2)
    engine = build(folder, "merged", backend="triton", dtype="float32", cuda_graphs=False)
    assert run(engine, folder, names, new_tokens=2) == wanted
    assert engine.merge_report().merges


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("mode", ["merged", "dlora", "auto"])
def test_merged_steps_on_a_gpu(folder: Path, mode: str, graphs: bool) -> None:
    wanted = run(build(folder, "unmerged"), folder, LONG)
    engine = build(folder, mode, device="cuda", dtype="float32", cuda_graphs=graphs)
    assert run(engine, folder, LONG) == wanted
    assert engine.merge_report().merges


def test_pristine_weights_are_never_written(folder: Path) -> None:
    engine = build(folder, "merged")
    before = [layer.mixer_in.clone() for layer in engine.loaded.model.weights.layers]
    for _ in range(3):
        run(engine, folder, ["attention-r8", "all-linear-r16-rslora", "qv-r32"])
    merged = engine.loaded.model.merged
    assert merged is not None
    for layer, kept in zip(engine.loaded.model.weights.layers, before, strict=True):
        assert torch.equal(layer.mixer_in, kept)
    assert engine.merge_report().merges


@pytest.mark.parametrize("mode", ["merged", "auto"])
def test_a_merged_adapter_without_requests_makes_room(folder: Path, mode: str) -> None:
    engine = build(folder, mode, prefix_cache=False, pool_mb=1)
    run(engine, folder, ["down-r256"])
    digest = adapter_at("down-r256", folder / "down-r256").digest
    merged = engine.core.merged
    if merged.slot is None:  # the policy has to measure longer before it merges
        weights = engine._merged_weights()
        assert weights is not None
        merged._change(digest, weights)
    assert merged.idle
    prompt = [index % VOCAB for index in range(500)]
    needed = engine.pool.geometry.pages_for_sequence(len(prompt))
    assert engine.pool_stats().free < needed < engine.pool.num_pages
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    engine.add_request(GenerationRequest("long", prompt, params, ""))
    steps = 0
    while engine.has_work() and steps < 50:
        engine.step()
        steps += 1
    assert not engine.has_work()
    assert merged.digest == UNMERGED
    engine.core.check()


def test_a_merged_adapter_can_be_dropped(folder: Path) -> None:
    engine = build(folder, "merged")
    run(engine, folder, ["attention-r8"])
    digest = adapter_at("attention-r8", folder / "attention-r8").digest
    assert engine.drop_adapter(digest)
    assert not list(engine.core.device_tier.slots())
    engine.core.check()


def batch(**tokens: int) -> Batch:
    """Adapters of rank 16; ``base`` is without one."""
    return Batch((UNMERGED, 0, n) if name == "base" else (name, 16, n) for name, n in tokens.items())


def test_what_lora_kernels_are_left_with() -> None:
    mixed = batch(a=6, b=2, base=2)
    assert mixed.lora(UNMERGED, 0) == 16 * 8
    assert mixed.lora("a", 16) == 16 * (2 + 2 + 2)  # b twice, the base once
    assert mixed.lora("gone", 16) == 16 * (8 + 10)
    assert (mixed.dominant(), mixed.share("a"), batch(base=3).dominant()) == ("a", 0.6, UNMERGED)


def test_thresholds_merge_a_lone_adapter_and_leave_it_when_others_come() -> None:
    mode = DLoraThresholds()
    assert mode.choose(batch(a=7, b=1), UNMERGED) == UNMERGED
    assert mode.choose(batch(a=8), UNMERGED) == "a"
    assert mode.choose(batch(a=6, b=2), "a") == "a"  # three quarters: they ride along
    assert mode.choose(batch(a=2, b=6), "a") == UNMERGED


def test_thresholds_learn_from_what_merging_brought() -> None:
    eager, wary = DLoraThresholds(), DLoraThresholds()
    for mode, merged_s in ((eager, 0.5), (wary, 2.0)):
        for _ in range(5):
            merged = mode.choose(batch(a=8, b=8), UNMERGED)
            mode.ran(Applied(merged, 128, False), Work(8), 1.0)
            for _ in range(10):
                merged = mode.choose(batch(a=8), merged)
                mode.ran(Applied(merged, 0, False), Work(8), merged_s)
            mode.choose(batch(b=4, c=4), merged)
    assert eager.enter < wary.enter
    assert eager.leave < wary.leave


class Device:
    """Steps of 10 ms, and what LoRA kernels and merging add."""

    def __init__(self, mode: AutoMerge, per_unit: float, merge_s: float) -> None:
        self.mode, self.per_unit, self.merge_s = mode, per_unit, merge_s
        self.merged, self.merges, self.seconds = UNMERGED, 0, 0.0

    def step(self, now: Batch) -> None:
        before, self.merged = self.merged, self.mode.choose(now, self.merged)
        switched = self.merged != before
        rank = 16 if self.merged else 0
        merges = switched and self.merged != UNMERGED
        self.merges += merges
        seconds = 0.010 + self.per_unit * now.lora(self.merged, rank) + self.merge_s * merges
        self.seconds += seconds
        self.mode.ran(Applied(self.merged, now.lora(self.merged, rank), switched), Work(now.total), seconds)

    def run(self, mixes: list[Batch], steps: int) -> None:
        for number in range(steps):
            self.step(mixes[number % len(mixes)])


def mixes(share: float, seed: int = 1) -> list[Batch]:
    """Batches of 32 to 64 tokens of which about ``share`` use one adapter, the rest four others."""
    rnd = random.Random(seed)
    found = []
    for _ in range(64):
        total = rnd.randint(32, 64)
        mine = sum(rnd.random() < share for _ in range(total))
        others = Counter(rnd.choice("bcde") for _ in range(total - mine))
        found.append(batch(a=mine, **others))
    return found


@pytest.mark.parametrize(("share", "stays"), [(0.95, "a"), (0.7, "a"), (0.25, UNMERGED)])
def test_credits_end_where_steps_are_shorter(share: float, stays: str) -> None:
    device = Device(AutoMerge(), per_unit=4e-6, merge_s=0.030)
    device.run(mixes(share), 2000)
    assert device.merged == stays
    assert device.merges <= 5
    if stays:
        assert device.mode.merge_s == pytest.approx(0.030, rel=0.3)


def test_credits_stop_merging_when_it_was_measured_to_bring_nothing() -> None:
    device = Device(AutoMerge(), per_unit=0.0, merge_s=0.030)
    device.run(mixes(0.9), 3000)
    tried = device.merges
    device.run(mixes(0.9), 3000)
    assert device.merges - tried <= 1


@pytest.mark.parametrize("period", [3, 10, 20, 30, 100, 1000])
def test_changing_majorities_cost_little_more_than_pristine_weights(period: int) -> None:
    device = Device(AutoMerge(), per_unit=4e-6, merge_s=0.030)
    device.run(mixes(0.9), 500)  # learns what a merge takes
    began, steps = device.seconds, 6000
    for number in range(steps):
        device.step(batch(a=48) if number // period % 2 else batch(b=48))
    pristine = steps * (0.010 + 4e-6 * 48 * 16)
    assert device.seconds - began <= 1.03 * pristine
    if period >= 100:
        assert device.seconds - began <= 0.9 * pristine


used = st.dictionaries(st.sampled_from(["base", "a", "b", "c"]), st.integers(1, 9))


@settings(deadline=None)
@given(st.lists(used, max_size=80))
def test_policies_only_merge_what_is_used(steps: list[dict[str, int]]) -> None:
    for name in ("merged", "dlora", "auto"):
        mode, merged = merge_policies.create(name), UNMERGED
        for step in steps:
            now = batch(**step)
            before, merged = merged, mode.choose(now, merged)
            assert merged in (UNMERGED, before) or now.tokens[merged]
            mode.ran(Applied(merged, now.lora(merged, 16 if merged else 0), merged != before), Work(now.total), 1.0)
