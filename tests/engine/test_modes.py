"""Merged weights: the same tokens, pristine weights for ever, and a policy that merges when it pays."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lorikeet_testing.tiny_models import ADAPTERS, VOCAB, adapter_at, pack_for, save_adapter, save_model

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.mode import PRISTINE, Auto, Merged, dominant


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("modes")
    model = save_model("qwen2-qkv-bias", root / "model")
    for name in ADAPTERS:
        save_adapter(name, model, root / name)
    return root


def build(folder: Path, mode: str, **settings: object) -> Engine:
    source = LoadedAdapters()
    config = EngineConfig(model=folder / "model", mode=mode, pool_mb=3, step_tokens=64, threads=1, **settings)  # type: ignore[arg-type]
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
        engine.check()
    return tokens


MIX = ["attention-r8"] * 12 + ["", "mlp-r5", "patterns"] * 2 + ["down-r256"] * 6 + ["", "one-layer-r64", "v-only-r1"]


@pytest.mark.parametrize("mode", ["merged", "auto"])
def test_merged_steps_give_the_tokens_of_unmerged_ones(folder: Path, mode: str) -> None:
    wanted = run(build(folder, "unmerged"), folder, MIX)
    engine = build(folder, mode)
    assert run(engine, folder, MIX) == wanted
    assert engine.switches


def test_the_triton_backend_takes_a_merged_adapter_out_of_other_rows(folder: Path) -> None:
    names = ["attention-r8", "", "patterns", "attention-r8"]
    wanted = run(build(folder, "unmerged"), folder, names, new_tokens=2)
    engine = build(folder, "merged", backend="triton", dtype="float32", cuda_graphs=False)
    assert run(engine, folder, names, new_tokens=2) == wanted
    assert engine.switches


@pytest.mark.gpu
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("mode", ["merged", "auto"])
def test_merged_steps_on_a_gpu(folder: Path, mode: str, graphs: bool) -> None:
    wanted = run(build(folder, "unmerged"), folder, MIX)
    engine = build(folder, mode, device="cuda", dtype="float32", cuda_graphs=graphs)
    assert run(engine, folder, MIX) == wanted
    assert engine.switches


def test_pristine_weights_are_never_written(folder: Path) -> None:
    engine = build(folder, "merged")
    before = [layer.qkv.clone() for layer in engine.loaded.model.weights.layers]
    for _ in range(3):
        run(engine, folder, ["attention-r8", "all-linear-r16-rslora", "qv-r32"])
    merged = engine.loaded.model.merged
    assert merged is not None
    for layer, kept in zip(engine.loaded.model.weights.layers, before, strict=True):
        assert torch.equal(layer.qkv, kept)
    assert engine.switches


def test_a_merged_adapter_can_be_dropped(folder: Path) -> None:
    engine = build(folder, "merged")
    run(engine, folder, ["attention-r8"])
    digest = adapter_at("attention-r8", folder / "attention-r8").digest
    assert engine.drop_adapter(digest)
    assert not list(engine.residency.slots())
    engine.check()


def test_auto_merges_a_lone_adapter_and_leaves_it_when_others_come() -> None:
    mode, merged = Auto(), PRISTINE
    for _ in range(Auto.PATIENCE):
        merged = mode.choose(Counter({"a": 8}), merged)
    assert merged == "a"
    assert mode.choose(Counter({"a": 6, "b": 2}), merged) == "a"  # three quarters: they ride along
    assert mode.choose(Counter({"a": 2, "b": 6}), merged) == PRISTINE


def test_auto_learns_from_what_merging_brought() -> None:
    eager, wary = Auto(), Auto()
    for mode, merged_s in ((eager, 0.5), (wary, 2.0)):
        for _ in range(5):
            merged = PRISTINE
            for _ in range(Auto.PATIENCE):
                merged = mode.choose(Counter({"a": 8}), merged)
                mode.ran(False, 8, 1.0)
            for _ in range(10):
                merged = mode.choose(Counter({"a": 8}), merged)
                mode.ran(True, 8, merged_s)
            mode.choose(Counter({"b": 4, "c": 4}), merged)
    assert eager.enter < wary.enter
    assert eager.leave < wary.leave


@given(st.lists(st.dictionaries(st.sampled_from(["", "a", "b", "c"]), st.integers(0, 9)), max_size=60))
def test_policies_only_merge_what_the_batch_uses(steps: list[dict[str, int]]) -> None:
    for mode in (Merged(), Auto()):
        merged = PRISTINE
        for step in steps:
            tokens = Counter(step)
            merged = mode.choose(tokens, merged)
            assert merged == PRISTINE or tokens[merged] or merged == dominant(tokens)
            mode.ran(bool(merged), tokens.total(), 1.0)
