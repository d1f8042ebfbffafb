"""Models with recurrent layers: their states in the pool, beside keys, adapters and cached prefixes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from lorikeet_testing.graph_stand_in import RunEveryTime
from lorikeet_testing.interpreted import few_programs  # noqa: F401
from lorikeet_testing.quantising_ops import quantised
from lorikeet_testing.reference_families import Family, ReferenceFamilies, build_engine, run_all, workload
from lorikeet_testing.shape_runs import ShapeRun, requests_for
from lorikeet_testing.tiny_models import VOCAB, adapter_at, pack_for, save_model, save_tokenizer
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

import lora_engine.model.graph_shapes as graph_shapes
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.memory import PageKind
from lora_engine.model.base_modules import BaseModules, SplitBaseModules
from lora_engine.model.config import ModelConfig
from lora_engine.model.graph_shapes import GraphShape
from lora_engine.model.ops import linear
from lora_engine.model.parallel import Parallel
from lora_engine.model.triton_ops import ALL_GROUPS, TritonOps, lora_shape
from lora_engine.model.weight_loading import load_weights
from lora_engine.request import ChoiceSoFar, GenerationRequest, PinnedPrefix, PinState, SamplingParams
from lora_engine.structured import TokenMasks
from lora_kernels.expand import lora_expand
from lora_kernels.fp8_tensors import FP8, LARGEST, Fp8Matrix
from lora_kernels.kernel_variants import KernelVariant

pytestmark = pytest.mark.usefixtures("few_programs")
FAMILY, OTHER, NEXT = "qwen3.5-gated-delta", "olmo-hybrid", "qwen3-next-interleaved"
LEAST = "lora_engine.scheduling.scheduler._LEAST_SNAPSHOT_TOKENS"
_QKVZ = "model.layers.0.linear_attn.in_proj_qkvz.weight"
# Of every linear projection of a family, in attention and in gated delta layers.
KINDS: dict[str, dict[str, Any]] = {
    "delta-only": {
        "r": 6,
        "lora_alpha": 9,
        "target_modules": ["in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"],
    },
    "gates-only": {"r": 3, "lora_alpha": 9, "target_modules": ["in_proj_a"]},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": "all-linear"},
    "lora-bias": {"r": 4, "lora_alpha": 8, "lora_bias": True, "target_modules": ["in_proj_z", "in_proj_b", "out_proj"]},
    "rslora-patterns": {
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
        "target_modules": "all-linear",
        "rank_pattern": {"in_proj_qkv": 20, "layers.2.linear_attn.out_proj": 7},
        "alpha_pattern": {"in_proj_b": 3},
    },
}
# Modules whose output features are stored by key head.
KINDS_OF_NEXT: dict[str, dict[str, Any]] = {
    "delta-only": {"r": 6, "lora_alpha": 9, "target_modules": ["in_proj_qkvz", "in_proj_ba", "out_proj"]},
    "gates-only": {"r": 3, "lora_alpha": 9, "target_modules": ["in_proj_ba"]},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": "all-linear"},
    "lora-bias": {"r": 4, "lora_alpha": 8, "lora_bias": True, "target_modules": ["in_proj_qkvz", "in_proj_ba"]},
    "rslora-patterns": {
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
        "target_modules": "all-linear",
        "rank_pattern": {"in_proj_qkvz": 20, "layers.2.linear_attn.out_proj": 7},
        "alpha_pattern": {"in_proj_ba": 3},
    },
}
# Modules of gated delta layers and of attention have the same names.
KINDS_OF_OTHER: dict[str, dict[str, Any]] = {
    "delta-only": {
        "r": 6,
        "lora_alpha": 9,
        "target_modules": [f"linear_attn.{part}_proj" for part in "qkvgabo"],
    },
    "both": {"r": 3, "lora_alpha": 9, "target_modules": ["q_proj", "g_proj", "o_proj"]},
    "dora": {"r": 4, "lora_alpha": 8, "use_dora": True, "target_modules": "all-linear"},
    "lora-bias": {"r": 4, "lora_alpha": 8, "lora_bias": True, "target_modules": ["k_proj", "b_proj", "o_proj"]},
    "rslora-patterns": {
        "r": 4,
        "lora_alpha": 8,
        "use_rslora": True,
        "target_modules": "all-linear",
        "rank_pattern": {"linear_attn.v_proj": 20, "layers.2.linear_attn.o_proj": 7, "self_attn.q_proj": 9},
        "alpha_pattern": {"linear_attn.b_proj": 3, "o_proj": 5},
    },
}


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> ReferenceFamilies:
    return ReferenceFamilies(tmp_path_factory.mktemp("families"))


@pytest.fixture(scope="module")
def family(families: ReferenceFamilies) -> Family:
    return families(FAMILY)


@pytest.fixture(scope="module", params=[FAMILY, OTHER, NEXT])
def hybrid(request: pytest.FixtureRequest, families: ReferenceFamilies) -> Family:
    return families(request.param)


def prompt_of(length: int, seed: int) -> list[int]:
    rnd = random.Random(seed)
    return [rnd.randrange(VOCAB) for _ in range(length)]


def cached(engine: Engine, family: Family, prompt: list[int], adapter: str = "") -> tuple[int, list[int]]:
    """Run a request, compare its answer with the reference's, and return its cached tokens and its answer."""
    digest = family.adapters[adapter].digest if adapter else ""
    request = GenerationRequest("one", prompt, SamplingParams(max_tokens=4), digest)
    engine.add_request(request)
    tokens: list[int] = []
    count = -1
    while engine.has_work():
        output = engine.step()
        engine.core.check()
        for delta in output.deltas:
            tokens += delta.token_ids
        for end in output.finished:
            assert end.error is None
            count = end.usage.cached_prompt_tokens
    family.check_greedy(request, tokens, adapter)
    return count, tokens


@pytest.mark.parametrize(
    ("name", "step_tokens"),
    [
        *((FAMILY, step_tokens) for step_tokens in (1, 63, 65)),
        *(pytest.param(FAMILY, step_tokens, marks=pytest.mark.long) for step_tokens in (2, 3, 16, 200)),
        *((name, 63) for name in (OTHER, NEXT)),
        *(pytest.param(name, 1, marks=pytest.mark.long) for name in (OTHER, NEXT)),
    ],
)
def test_prompts_may_be_cut_anywhere(families: ReferenceFamilies, name: str, step_tokens: int) -> None:
    family = families(name)
    requests, adapters = workload(family, 6, seed=7)
    tokens, _ = run_all(build_engine(family, step_tokens=step_tokens), requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_forced_preemption_changes_nothing(hybrid: Family) -> None:
    family = hybrid
    requests, adapters = workload(family, 27, seed=3)
    kept = {"", "v-only-r1", "attention-r8", "mlp-r5"}
    requests = [
        dataclasses.replace(request, sampling=SamplingParams(max_tokens=60))
        for request in requests
        if adapters[request.request_id] in kept and len(request.prompt_token_ids) < 60
    ]
    engine = build_engine(family, pool_mb=1, max_context=128, step_tokens=64)
    tokens, preemptions = run_all(engine, requests)
    assert preemptions > 0
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])
    assert engine.pool_stats().state == 0


@pytest.mark.parametrize("adapter", ["", "all-linear-r16-rslora"])
def test_a_conversation_goes_on_from_the_state_of_its_last_turn(
    hybrid: Family, adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = hybrid
    monkeypatch.setattr(LEAST, 16)
    engine = build_engine(family, step_tokens=64)
    prompt = prompt_of(100, 1)
    count, answer = cached(engine, family, prompt, adapter)
    assert count == 0
    longer = [*prompt, *answer, *prompt_of(40, 2)]
    assert cached(engine, family, longer, adapter)[0] == 96
    assert cached(engine, family, longer, adapter)[0] == (len(longer) - 1) // 16 * 16
    assert cached(engine, family, prompt, adapter)[0] == 96


def test_prompts_that_part_get_a_state_where_they_part(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second prompt finds keys without a state there, and leaves one for the third."""
    monkeypatch.setattr(LEAST, 16)
    engine = build_engine(family, step_tokens=64)
    common = prompt_of(70, 3)
    found = [cached(engine, family, [*common, *prompt_of(50, seed)])[0] for seed in (4, 5, 6)]
    assert found == [0, 0, 64]


def test_short_prompts_leave_no_state(family: Family) -> None:
    engine = build_engine(family)
    cached(engine, family, prompt_of(200, 1))
    assert engine.core.prefixes.snapshot_pages == 0 < len(engine.core.prefixes)


def test_another_tenant_or_salt_never_shares_a_state(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEAST, 16)
    engine = build_engine(family)
    request = GenerationRequest("one", prompt_of(100, 1), SamplingParams(max_tokens=2), tenant="a")
    for other in ({}, {"tenant": "b"}, {"cache_salt": "s"}):
        engine.add_request(dataclasses.replace(request, **other))
        while engine.has_work():
            for end in engine.step().finished:
                assert end.usage.cached_prompt_tokens == 0


def test_states_are_evicted_for_requests(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LEAST, 16)
    engine = build_engine(family, pool_mb=1, max_context=128)
    for seed in range(12):
        cached(engine, family, prompt_of(90, seed))
    stats = engine.pool_stats()
    assert 0 < engine.core.prefixes.snapshot_pages <= stats.cached_prefix
    assert cached(engine, family, prompt_of(90, 11))[0] == 80
    assert cached(engine, family, prompt_of(90, 0))[0] == 0


def test_a_pinned_prefix_keeps_its_state(family: Family) -> None:
    engine = build_engine(family, pool_mb=3, max_context=128, step_tokens=64)
    prompt = prompt_of(64, 1)
    pin = PinnedPrefix("greeting", "", "", "", prompt)
    states = engine.core.pin_prefixes([pin])
    assert states == {"greeting": PinState.MISSING}
    run_all(engine, [GenerationRequest("pin", prompt, SamplingParams(max_tokens=1), pin="greeting")])
    assert engine.core.pin_prefixes([pin]) == {"greeting": PinState.KEPT}
    for seed in range(10, 25):
        cached(engine, family, prompt_of(90, seed))
    assert cached(engine, family, [*prompt, 5])[0] == 48
    engine.core.pin_prefixes([])
    engine.core.check()


def test_the_map_and_the_counts_of_pages(family: Family) -> None:
    engine = build_engine(family)
    pages = engine.pool.geometry.state_pages
    for name in ("a", "b"):
        engine.add_request(GenerationRequest(name, prompt_of(40, 1), SamplingParams(max_tokens=8), tenant=name))
    engine.step()
    engine.step()
    stats = engine.pool_stats()
    assert stats.state == 2 * pages > 0
    shares = (stats.free, stats.kv, stats.state, stats.cached_prefix, stats.adapter, stats.reserved)
    assert sum(shares) == stats.total
    owners = engine.page_map()
    counted = {
        owner.tenant: length
        for index, length in zip(owners.owner_of, owners.lengths, strict=True)
        if (owner := owners.owners[index]).kind is PageKind.STATE
    }
    assert counted.keys() == {"a", "b"}
    for name in ("a", "b"):
        engine.abort(name)
    while engine.has_work():
        engine.step()
    engine.core.check()
    assert engine.pool_stats().state == 0


@pytest.mark.parametrize("settings", [{"deterministic": True}, {"mode": "merged"}, {"prefix_cache": False}], ids=str)
def test_other_modes(hybrid: Family, settings: dict[str, Any]) -> None:
    family = hybrid
    requests, adapters = workload(family, 9, seed=8)
    if "mode" in settings:
        adapter = family.adapters["all-linear-r16-rslora"]
        requests = [
            dataclasses.replace(r, adapter_digest=adapter.digest if number % 4 else "")
            for number, r in enumerate(requests)
        ]
        adapters = {r.request_id: adapter.name if r.adapter_digest else "" for r in requests}
    engine = build_engine(family, step_tokens=37, **settings)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_choices_of_a_request(family: Family) -> None:
    engine = build_engine(family, step_tokens=64)
    request = GenerationRequest("n", prompt_of(50, 2), SamplingParams(max_tokens=6, n=3, temperature=1.0, seed=4))
    first, again = (run_all(engine, [request])[0]["n"] for _ in range(2))
    assert first == again and len(first) == 18


def test_an_answer_goes_on_where_another_host_left_it(family: Family) -> None:
    prompt, adapter = prompt_of(40, 3), family.adapters["all-linear-r16-rslora"]
    request = GenerationRequest("a", prompt, SamplingParams(max_tokens=20), adapter.digest)
    whole = run_all(build_engine(family, step_tokens=16), [request])[0]["a"]
    for count in (1, 7, 19):
        resumed = dataclasses.replace(request, so_far=(ChoiceSoFar(0, whole[:count]),))
        assert run_all(build_engine(family, step_tokens=16), [resumed])[0]["a"] == whole[count:]


def in_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale for each block of 128 rows and columns, and the matrix in FP8."""
    rows, columns = weight.shape
    scales = torch.empty(-(-rows // 128), -(-columns // 128))
    data = torch.empty(rows, columns, dtype=FP8)
    for i, j in itertools.product(range(scales.shape[0]), range(scales.shape[1])):
        block = slice(128 * i, 128 * i + 128), slice(128 * j, 128 * j + 128)
        scales[i, j] = weight[block].abs().max() / LARGEST
        data[block] = (weight[block] / scales[i, j]).to(FP8)
    return scales, data


@pytest.mark.parametrize("scales", ["channels", "blocks"])
def test_weights_in_fp8(tmp_path: Path, scales: str) -> None:
    """Quantised at the start, or in the files: then the narrow projections of gates are left as they are."""
    sizes = {"hidden_size": 128, "intermediate_size": 128, "linear_value_head_dim": 32, "linear_key_head_dim": 32}
    save_model(FAMILY, tmp_path / "model", **sizes)
    whole = load_file(tmp_path / "model" / "model.safetensors")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    settings: dict[str, Any] = {"quantization": "fp8"}
    if scales == "blocks":
        settings, tensors = {}, {}
        for name, weight in whole.items():
            if "layers" in name and weight.dim() == 2 and "in_proj_a" not in name and "in_proj_b" not in name:
                tensors[f"{name}_scale_inv"], weight = in_blocks(weight)
                whole[name] = Fp8Matrix(weight, tensors[f"{name}_scale_inv"], None).dequantised(torch.float32)
            tensors[name] = weight
        save_file(tensors, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
        config["quantization_config"] = {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", *(f"linear_attn.in_proj_{gate}" for gate in "ab")],
        }
        (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    engine = Engine(EngineConfig(model=tmp_path / "model", pool_mb=16, **settings), LoadedAdapters())
    weights = engine.loaded.model.weights
    assert isinstance(weights.layers[0].mixer_in, torch.Tensor)  # of a CPU: dequantised
    expected = torch.cat([whole[f"model.layers.0.linear_attn.in_proj_{part}.weight"] for part in ("qkv", "z")])
    error = (weights.layers[0].mixer_in[: len(expected)] - expected).norm() / expected.norm()
    assert error < (1e-6 if scales == "blocks" else 0.05)
    tokens, _ = run_all(engine, [GenerationRequest("a", prompt_of(30, 1), SamplingParams(max_tokens=6))])
    assert len(tokens["a"]) == 6


def test_interleaved_modules_quantised_at_the_start(families: ReferenceFamilies) -> None:
    """The gates stay as they are; adapters act on the rest."""
    family = families(NEXT)
    whole = load_file(family.folder / "model.safetensors")
    engine = build_engine(family, quantization="fp8")
    layer = engine.loaded.model.weights.layers[0]
    assert isinstance(layer.mixer_in, torch.Tensor) and layer.delta is not None  # of a CPU: dequantised
    order = engine.targets.interleaved
    width = 2 * len(layer.delta.a_log)
    wide, gates = layer.mixer_in[:-width], layer.mixer_in[-width:]
    for matrix, target, bound in [(wide, "in_proj_qkvz", 0.05), (gates, "in_proj_ba", 0)]:
        expected = order[target].by_part(whole[f"model.layers.0.linear_attn.{target}.weight"])
        assert (matrix - expected).norm() / expected.norm() <= bound
    assert not torch.equal(wide, order["in_proj_qkvz"].by_part(whole[_QKVZ]))
    digests = {name: family.adapters[name].digest for name in ("all-linear-r16-rslora", "dora-r6")}
    together = [
        GenerationRequest(name, prompt_of(30, 1), SamplingParams(max_tokens=6), digest)
        for name, digest in {**digests, "base": ""}.items()
    ]
    alone: dict[str, list[int]] = {}
    for request in together:
        alone |= run_all(engine, [request])[0]
    assert run_all(engine, together)[0] == alone


@pytest.mark.parametrize(("head_dim", "in_fp8"), [(128, True), (64, False)])
def test_blocks_of_scales_of_interleaved_modules(
    tmp_path: Path, head_dim: int, in_fp8: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They move with their rows; a matrix with two parts in a block is dequantised."""
    dims = {"linear_key_head_dim": head_dim, "linear_value_head_dim": head_dim}
    save_model(NEXT, tmp_path, hidden_size=128, intermediate_size=128, num_hidden_layers=2, **{
        **dims, "mlp_only_layers": [0, 1], "layer_types": ["linear_attention", "full_attention"],
    })  # fmt: skip
    tensors = load_file(tmp_path / "model.safetensors")
    plain = dict(tensors)
    for name in [name for name in tensors if "layers" in name and tensors[name].dim() == 2]:
        tensors[f"{name}_scale_inv"], tensors[name] = in_blocks(tensors[name])
        plain[name] = Fp8Matrix(tensors[name], tensors[f"{name}_scale_inv"], None).dequantised(torch.float32)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((tmp_path / "config.json").read_text())
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    read = ModelConfig.load(tmp_path)
    layer = load_weights(tmp_path, read, torch.device("cpu"), torch.float32, Parallel()).layers[0]
    assert isinstance(layer.mixer_in, Fp8Matrix) == in_fp8
    assert ("in_proj_qkvz" in caplog.text) != in_fp8
    served = layer.mixer_in.dequantised(torch.float32) if isinstance(layer.mixer_in, Fp8Matrix) else layer.mixer_in
    stored = plain["model.layers.0.linear_attn.in_proj_qkvz.weight"]
    group = 8 * head_dim  # rows of a key head: its query and key, and three values and z
    expected = [
        stored[head * group + start * head_dim : head * group + stop * head_dim]
        for start, stop in [(0, 1), (1, 2), (2, 5), (5, 8)]
        for head in (0, 1)
    ]
    wide = torch.cat(expected)
    torch.testing.assert_close(served[: len(wide)], wide, rtol=0, atol=0)  # gates follow where it is not in FP8
    assert layer.delta is not None and (layer.delta.gates is None) != in_fp8


@pytest.mark.parametrize("deltas_first", [True, False])
def test_adapters_on_gates_beside_projections_in_fp8(deltas_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for all targets of a layer's input, though it has two matrices."""
    config = ModelConfig.from_dict(
        {
            "model_type": "qwen3_5_text", "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 64,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 100,
            "max_position_embeddings": 512, "tie_word_embeddings": True, "linear_num_key_heads": 1,
            "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 2,
            "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
        }
    )  # fmt: skip
    settings: dict[str, Any] = {"pool_mb": 4, "page_tokens": 4, "cuda_graphs": False, "quantization": "fp8"}
    run = ShapeRun(config, "cpu", torch.float32, (5,), **settings)
    layer, both, launches, checked = run.weights.layers[0], TritonOps.project_both, list[str](), list[int]()
    assert isinstance(layer.mixer_in, Fp8Matrix) and layer.delta is not None and layer.delta.gates is not None

    def spy(ops: TritonOps, group: int, index: int, x: Any, weight: Any, narrow: torch.Tensor, plan: Any) -> Any:
        parts = both(ops, group, index, x, weight, narrow, plan)
        want = torch.cat((linear(quantised(x.full, weight), weight.dequantised(torch.float32)), x.full @ narrow.t()), 1)
        (slot,) = run.engine.core.device_tier.slots()
        lora = slot.group(index, group)
        assert lora is not None and len(lora.targets) == 4
        for target in lora.targets:
            shrunk = x.full @ lora.a_t[:, target.rank_start : target.rank_stop]
            want[:, target.out_start : target.out_stop] += target.scale * shrunk @ target.b
        torch.testing.assert_close(torch.cat(parts, dim=1), want, rtol=1e-3, atol=1e-4)
        checked.append(len(want))
        return parts

    def counted(*args: Any, **more: Any) -> None:
        launches.append(args[6].name)
        lora_expand(*args, **more)

    monkeypatch.setattr(TritonOps, "project_both", spy)
    monkeypatch.setattr("lora_engine.model.triton_ops.lora_expand", counted)
    if not deltas_first:
        monkeypatch.setattr(TritonOps, "_deltas_come_first", lambda *_: False)
    run.generate(requests_for(run, 1, lengths=(5,), new=2, seed=1, first=1)[0])
    assert checked == [5, 1]
    assert launches.count("in_proj_qkv_in_proj_z_in_proj_b_in_proj_a") == 2
    assert len(launches) == 2 * 8, "four groups in either layer"


@pytest.mark.parametrize("name", [FAMILY, OTHER, NEXT])
def test_modules_that_several_ranks_read_again(families: ReferenceFamilies, name: str) -> None:
    """Adapters that are computed from the base need each module in full: of the files, as the layers have them."""
    engine = build_engine(families(name))
    loaded = engine.loaded
    served = BaseModules(loaded.model.weights, loaded.targets.shapes)
    again = SplitBaseModules(engine.config, loaded)
    for layer in range(loaded.model.config.num_layers):
        for target in loaded.model.shape.targets_of(layer):
            pair = [torch.cat([*modules.rows(layer, target)]) for modules in (served, again)]
            torch.testing.assert_close(*pair, rtol=0, atol=0, msg=target)
            assert not again.is_quantised(layer, target)


@pytest.fixture(scope="module", params=[FAMILY, OTHER, NEXT])
def kinds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Adapters of each kind on gated delta layers, as PEFT writes them."""
    root = tmp_path_factory.mktemp("kinds")
    model = save_model(request.param, root / "model", seed=1)
    reference: Any = None
    adapters = {}
    for name, settings in {FAMILY: KINDS, OTHER: KINDS_OF_OTHER, NEXT: KINDS_OF_NEXT}[request.param].items():
        torch.manual_seed(len(adapters))
        trained = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
        with torch.no_grad():
            for key, parameter in trained.named_parameters():
                if "lora_magnitude_vector" in key:
                    parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
                elif "lora_" in key:
                    parameter.copy_(torch.randn_like(parameter) * 0.1)
        trained.save_pretrained(str(root / name))
        trained.unload()
        adapters[name] = adapter_at(name, root / name)
    for name, adapter in adapters.items():
        if reference is None:
            reference = PeftModel.from_pretrained(model, adapter.folder, adapter_name=name)
        else:
            reference.load_adapter(adapter.folder, adapter_name=name)
    return Family(root / "model", adapters, reference.float().eval(), {})


@pytest.mark.parametrize("count", [1, 12])
def test_kinds_of_adapters_on_gated_delta_layers(kinds: Family, count: int) -> None:
    requests, adapters = workload(kinds, 12, seed=5)
    engine = build_engine(kinds, step_tokens=48)
    tokens: dict[str, list[int]] = {}
    for start in range(0, 12, count):
        tokens |= run_all(engine, requests[start : start + count])[0]
    for request in requests:
        kinds.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


@pytest.mark.parametrize("name", [FAMILY, OTHER])
def test_an_adapter_that_acts_from_its_invocation_on(name: str, tmp_path: Path) -> None:
    """The tokens before it leave the base model's state, which others share."""
    model = save_model(name, tmp_path / "model", seed=1)
    settings = {"r": 4, "lora_alpha": 8, "target_modules": "all-linear", "alora_invocation_tokens": [7, 8, 9]}
    trained = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
    trained.save_pretrained(str(tmp_path / "a"))
    adapter = adapter_at("a", tmp_path / "a")
    source = LoadedAdapters()
    engine = Engine(EngineConfig(model=tmp_path / "model", pool_mb=24, step_tokens=32), source)
    source.add(pack_for(engine, adapter))
    before, after = prompt_of(45, 1), prompt_of(20, 2)
    prompt = [*before, 7, 8, 9, *after]
    request = GenerationRequest("a", prompt, SamplingParams(max_tokens=8), adapter.digest)
    tokens, _ = run_all(engine, [request, GenerationRequest("b", prompt, SamplingParams(max_tokens=8))])
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        wanted = trained.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    assert tokens["a"] == wanted[0, len(prompt) :].tolist() != tokens["b"]


def test_a_late_mask_never_takes_a_step_back(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recurrent state would count the last token twice: the step of a constrained answer waits for its mask."""
    folder = tmp_path / "model"
    shutil.copytree(family.folder, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 300}))
    engine = Engine(EngineConfig(model=folder, pool_mb=24, step_tokens=64), LoadedAdapters())
    letters = Constraint(Kind.REGEX, "[a-z]{12}")
    grammar = engine.grammars.compile(letters)
    request = GenerationRequest("a", prompt_of(40, 1), SamplingParams(max_tokens=14), grammar=grammar)
    in_time, _ = run_all(engine, [request])
    original = TokenMasks.begin_mask

    def begin_late(masks: TokenMasks) -> None:
        original(masks)
        while not masks.ready:
            time.sleep(0.0005)
        masks.ready = False
        late.append(masks)

    late: list[TokenMasks] = []
    monkeypatch.setattr(TokenMasks, "begin_mask", begin_late)
    monkeypatch.setattr(TokenMasks, "are_quick", False)
    monkeypatch.setattr("lora_engine.engine._MASK_PATIENCE_S", 0.0)
    monkeypatch.setattr(engine.core, "defer", lambda sequence: pytest.fail("a token was taken back"))
    engine.runner.overlaps = True
    engine.add_request(dataclasses.replace(request, grammar=engine.grammars.compile(letters)))
    engine.add_request(GenerationRequest("b", prompt_of(30, 2), SamplingParams(max_tokens=40)))
    tokens: dict[str, list[int]] = {"a": [], "b": []}
    for step in range(400):
        if not engine.has_work():
            break
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        if step % 3 == 0:
            while late:
                late.pop().ready = True
    assert tokens["a"] == in_time["a"] and len(tokens["b"]) == 40


def test_the_triton_backend(hybrid: Family) -> None:
    family = hybrid
    requests, adapters = workload(family, 9, seed=4)
    some = requests[1:6:2] if family.folder.parent.name == FAMILY else requests[1:4:2]
    requests = [dataclasses.replace(r, sampling=SamplingParams(max_tokens=3)) for r in some]
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32", cuda_graphs=False)
    tokens, _ = run_all(engine, requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_decode_graphs(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """States are found through the graph's table, and padding rows touch none."""
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(
        "lora_engine.engine.build_runner",
        lambda config, loaded, mirror: GraphRunner(loaded.model, loaded.pool, config.max_running, loaded.max_context),
    )
    requests, adapters = workload(family, 9, seed=5)
    requests = [dataclasses.replace(r, sampling=SamplingParams(max_tokens=3)) for r in requests[1:5:2]]
    engine = build_engine(family, step_tokens=64, backend="triton", dtype="float32")
    assert isinstance(engine.runner, GraphRunner)
    graphs = engine.runner.graphs
    graphs.steps_between = 1 << 30
    graphs.choose(GraphShape(4, lora_shape(KernelVariant.GEMV_1, 64), 4, ALL_GROUPS), [])
    graphs.choose(GraphShape(4), [])
    tokens, _ = run_all(engine, requests)
    assert len(graphs) == 2
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_graphs_of_steps_with_prompts(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts beside decode rows and alone, some of them later parts, with and without an adapter; pages hold NaN."""
    monkeypatch.setattr("lora_engine.execution.graph_runner.StepGraph", RunEveryTime)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    monkeypatch.setattr("torch.Tensor.pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(graph_shapes, "_MIXED_ROWS", (32,))  # an interpreter's rows take long
    monkeypatch.setattr(graph_shapes, "_MIXED_DECODES", {0: (24,)})
    engine = build_engine(family, step_tokens=20, max_running=3, backend="triton", dtype="float32", prefix_cache=False)
    model, pool = engine.loaded.model, engine.pool
    engine.runner = runner = GraphRunner(model, pool, 3, engine.loaded.max_context)
    shapes = [shape for shape in runner.inputs.mixed if shape.lora is None or shape.groups == ALL_GROUPS]
    for shape in shapes:
        runner.graphs.add(shape)
    pool.data[:, 1:].fill_(float("nan"))  # all but the padding page
    adapters = {"a": "", "b": "all-linear-r16-rslora", "c": ""}
    requests = [
        GenerationRequest(
            name,
            prompt_of(length, length),
            SamplingParams(max_tokens=3),
            family.adapters[adapters[name]].digest if adapters[name] else "",
        )
        for name, length in (("a", 5), ("b", 31), ("c", 9))
    ]
    engine.add_request(requests[0])
    tokens: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for number in itertools.count():
        for delta in engine.step().deltas:
            tokens[delta.request_id] += delta.token_ids
        if number < 2:
            engine.add_request(requests[number + 1])
        elif not engine.has_work():
            break
    replays = {shape: cast(RunEveryTime, runner.graphs[shape]).replays for shape in shapes}
    assert sum(replays.values()) >= 3
    assert all(any(replays[shape] for shape in replays if shape.decodes == decodes) for decodes in (0, 3))
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], adapters[request.request_id])


def test_what_cannot_be_done_is_said_at_the_start(family: Family) -> None:
    with pytest.raises(ValueError, match=r"--deterministic is not possible here.*--step-tokens 96 or more"):
        build_engine(family, deterministic=True, backend="triton", max_running=32, step_tokens=80)


def test_the_published_multimodal_checkpoint(tmp_path: Path) -> None:
    """Its language model answers; its vision tower and its multi-token layers are left where they are."""
    text = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "head_dim": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "bos_token_id": None,
        "eos_token_id": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    }
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    model = Qwen3_5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    model.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    assert any(name.startswith("model.visual.") for name in load_file(tmp_path / "model.safetensors"))
    engine = Engine(EngineConfig(model=tmp_path, pool_mb=8), LoadedAdapters())
    prompt = prompt_of(60, 1)
    tokens, _ = run_all(engine, [GenerationRequest("a", prompt, SamplingParams(max_tokens=8))])
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *tokens["a"][:-1]]])).logits[0]
    assert tokens["a"] == logits.argmax(-1)[-8:].tolist()


@pytest.mark.parametrize("form", ["published", "transformers"])
def test_names_of_the_other_familys_checkpoints(tmp_path: Path, form: str) -> None:
    """Published ones have three convolutions, other names of norms, and attention without positions."""
    rope = {"rope_type": "default", "rope_theta": 1e4} if form == "transformers" else None
    shape = {} if rope is None else {"rope_parameters": rope}
    model = save_model(OTHER, tmp_path, **shape)
    if form == "transformers":
        whole = dict(model.state_dict())
    else:
        whole = load_file(tmp_path / "model.safetensors")
        for layer in (0, 2, 4):
            prefix = f"model.layers.{layer}.linear_attn."
            names = [f"{prefix}{part}_conv1d.weight" for part in "qkv"]
            parts = torch.cat([whole[name] for name in names]).split([24, 24, 96])
            whole |= {name: part.contiguous() for name, part in zip(names, parts, strict=True)}
    save_file(whole, tmp_path / "model.safetensors", metadata={"format": "pt"})
    engine = Engine(EngineConfig(model=tmp_path, pool_mb=16), LoadedAdapters())
    prompt = prompt_of(60, 9)
    tokens, _ = run_all(engine, [GenerationRequest("a", prompt, SamplingParams(max_tokens=8))])
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        wanted = model.float().generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=8,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    assert tokens["a"] == wanted[0, len(prompt) :].tolist()
