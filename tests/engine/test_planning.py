"""What ``--plan`` computes from a configuration is what a loaded model and packed adapters take."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.draft_heads import save_head
from lorikeet_testing.tiny_models import VOCAB, adapter_at, geometry_of, save_adapter, save_model

from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import UnsupportedModel
from lora_engine.model.config import ModelConfig
from lora_engine.model.device_memory import tensor_bytes
from lora_engine.model.loading import build_pool, load_model
from lora_engine.model.parallel import Parallel
from lora_engine.model.planning import plan, plan_for
from lora_engine.model.triton_ops import TritonOps
from lora_engine.model.weight_loading import random_weights, weight_bytes
from lora_engine.peft_format import AdapterLimits, inspect_adapter
from lora_engine.server import plan as command
from lora_kernels import expert_lora
from lora_kernels import experts as kernels
from lora_kernels.expert_lora import ExpertLora
from lora_kernels.tables import SlotTables
from scripts import card_table

GIB = 1 << 30


def test_the_table_of_cards_is_current() -> None:
    assert card_table.page() == card_table.PAGE.read_text(), "Run python -m scripts.card_table."


@pytest.mark.parametrize(
    ("model", "parameters", "attention_layers", "kv_features"),
    [  # in billions, as published; layers with keys and values; key heads times their width
        ("Qwen3-30B-A3B", 30.5, 48, 4 * 128),
        ("Qwen3.5-35B-A3B", 34.7, 10, 2 * 256),
        ("GPT-OSS-20B", 20.9, 24, 8 * 64),
        ("GPT-OSS-120B", 116.8, 36, 8 * 64),
        ("Mixtral-8x7B", 46.7, 32, 8 * 128),
        ("GLM-4.5-Air", 106.9, 46, 8 * 128),
    ],
)
def test_mixtures_of_experts_have_the_sizes_that_are_published(
    model: str, parameters: float, attention_layers: int, kv_features: int
) -> None:
    config = ModelConfig.from_dict({**card_table.MODELS[model], "quantization_config": None})
    planned = card_table.planned(card_table.Row(model))
    # GLM's number counts the layer that predicts further tokens, which is not served: 2 % of its weights.
    assert weight_bytes(config, torch.bfloat16, Parallel()) / 2e9 == pytest.approx(parameters, rel=0.025)
    assert config.num_layers - len(config.delta_layers) == attention_layers
    assert planned.memory.token_bytes == 2 * 2 * attention_layers * kv_features
    assert planned.model.experts is not None and planned.model.experts.mxfp4 == model.startswith("GPT-OSS")
    fp8 = card_table.planned(card_table.Row(model, "auto" if model.startswith("GPT-OSS") else "fp8"))
    assert fp8.memory.parts["weights"] < 0.62 * 2e9 * parameters
    cards = {name: int(gib * 2**30) for name, gib in card_table.CARDS.items()}
    least = {"GPT-OSS-20B": "24 GB", "Qwen3-30B-A3B": "48 GB", "Qwen3.5-35B-A3B": "48 GB", "Mixtral-8x7B": "80 GB"}
    for name, card in cards.items():
        fits = fp8.memory.on(card, fp8.config).longest >= fp8.max_context
        wanted = {"GPT-OSS-120B": "80 GB", "GLM-4.5-Air": "141 GB", **least}[model]
        assert fits == (list(cards).index(name) >= list(cards).index(wanted)), name


@pytest.mark.parametrize(
    ("family", "quantised", "world"),
    [
        ("llama3-scaled-rope-tied", False, 1),
        ("llama3-scaled-rope-tied", True, 2),
        ("qwen3.5-gated-delta", False, 2),
        ("qwen3-some-layers-with-experts", False, 2),
        ("gpt-oss-sinks-and-experts", False, 2),
    ],
)
def test_weights_are_summed_up_as_they_are_loaded(tmp_path: Path, family: str, quantised: bool, world: int) -> None:
    save_model(family, tmp_path)
    config = ModelConfig.load(tmp_path)
    for rank in range(world):
        parallel, cpu = Parallel(rank, world), torch.device("cpu")
        weights = random_weights(config, cpu, torch.bfloat16, parallel, quantised=quantised)
        assert weight_bytes(config, torch.bfloat16, parallel, quantised) == weights.num_bytes()
    settings = EngineConfig(tmp_path, tensor_parallel=world, quantization="fp8" if quantised else "auto")
    whole = plan_for(settings, GIB).memory  # of the checkpoint
    (tmp_path / "model.safetensors").unlink()
    alone = replace(settings, model=tmp_path / "config.json")
    assert plan_for(settings, GIB).memory == whole == plan_for(alone, GIB).memory


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama3-scaled-rope-tied", {"speculation": "eagle3"}),
        ("qwen3-next-experts", {"expert_residency": "auto", "max_lora_rank": 400, "speculation": "ngram"}),
        ("olmoe-experts", {"deterministic": True}),
    ],
    ids=["dense", "hybrid", "mixture"],
)
def test_all_memory_beside_the_pool_is_planned(tmp_path: Path, family: str, settings: dict[str, Any]) -> None:
    save_model(family, tmp_path / "model")
    if settings.get("speculation"):
        settings = {**settings, "draft_model": save_head(tmp_path / "head", 64, VOCAB)}
    config = EngineConfig(
        tmp_path / "model", dtype="float32", backend="triton", pool_mb=8, threads=1, max_running=8, step_tokens=96,
        **settings,
    )  # fmt: skip
    parts, loaded = plan_for(config, GIB).memory.parts, load_model(config)
    model, ops = loaded.model, loaded.model.ops
    assert isinstance(ops, TritonOps)
    assert parts["weights"] == model.weights.num_bytes()
    assert parts["tables of adapters"] == tensor_bytes(loaded.tables) > 0
    assert (
        parts["workspaces"]
        == tensor_bytes(ops, without=[loaded.tables, ops.draft_inputs])
        > ops.workspace.partial.nbytes
    )
    assert parts.get("inputs of drafts in recurrent layers", 0) == tensor_bytes(ops.draft_inputs)
    buffers = ops.prompt_workspace(96, loaded.targets.experts)
    assert parts["activations of adapters"] == sum(buffer.nbytes for buffer in buffers)
    if loaded.draft_head is not None:
        head = loaded.draft_head.head  # whose passes have small buffers
        of_head = tensor_bytes(head, model.layer_inputs, without=[model.weights])
        assert parts["draft head"] == of_head > head.rings.num_bytes
        of_two = plan_for(replace(config, tensor_parallel=2), GIB).memory.parts
        assert of_two["draft head"] == of_head + model.weights.embedding.nbytes


class NoLaunch:
    """A kernel that is not launched."""

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return lambda *args, **kwargs: None


@pytest.mark.parametrize("expanded", [True, False])
def test_the_buffers_of_adapters_on_experts_are_those_of_their_launches(
    monkeypatch: pytest.MonkeyPatch, expanded: bool
) -> None:
    """234 MB of deltas for 4,096 tokens of Qwen3-30B-A3B, beside the products with A."""
    tokens, per_token, experts, inner, hidden, rank = 4096, 8, 128, 768, 2048, 256
    launched = list[tuple[int, ...]]()

    def recorded(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def record(*args: Any, **kwargs: Any) -> torch.Tensor:
            launched.append(tuple((out := function(*args, **kwargs)).shape))
            return out

        return record

    for module in (kernels, expert_lora):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, NoLaunch())
    monkeypatch.setattr(kernels, "shrink_experts", recorded(kernels.shrink_experts))
    monkeypatch.setattr(kernels, "expand_experts", recorded(kernels.expand_experts))
    with torch.device("meta"):
        tables = SlotTables(4, 1, 8, "meta", experts=True)
        slots, pool = torch.zeros(tokens, dtype=torch.int32), torch.zeros(8, 32 * 512, dtype=torch.bfloat16)
        lora = ExpertLora(slots, pool, tables, 0, 512, rank)
        x = torch.zeros(tokens, hidden, dtype=torch.bfloat16)
        gate_up, down = x.new_zeros(experts, 2 * inner, hidden), x.new_zeros(experts, hidden, inner)
        chosen, order = slots.new_zeros(tokens, per_token), slots.new_zeros(tokens * per_token)
        routing = kernels.Routing(chosen, x.new_zeros(tokens, per_token), order, slots.new_zeros(experts + 1))
        fixed = None if expanded else kernels.invariant_configs(0)[1]
        kernels.grouped_experts(x, gate_up, down, routing, "silu", None, lora, fixed=fixed)
    shapes = expert_lora.workspace_shapes(tokens * per_token, inner, hidden, rank, expanded=expanded)
    assert launched == shapes
    assert sum(math.prod(shape) for shape in shapes[1::2]) * 2 == 234_881_024 or not expanded


def test_pages_of_sequences_and_adapters_are_those_of_the_engine(tmp_path: Path) -> None:
    reference = save_model("llama3-scaled-rope-tied", tmp_path / "model")
    adapter = adapter_at("attention-r8", save_adapter("attention-r8", reference, tmp_path / "adapter"))
    config = EngineConfig(tmp_path / "model", dtype="float32", pool_mb=4, threads=1)
    engine = Engine(config, LoadedAdapters(), load_model(config))
    packer = PoolPacker(
        geometry_of(engine), AdapterLimits(), engine.pool.geometry, engine.targets, torch.float32, PageableMemory()
    )
    manifest = inspect_adapter(adapter.folder, geometry_of(engine)).manifest
    assert manifest is not None
    packed = packer.pack(adapter.digest, adapter.folder)
    planned = plan_for(config, GIB)
    assert planned.memory.geometry == engine.pool.geometry
    assert planned.adapter_pages(manifest.rank, manifest.targets) == packed.num_pages > 0
    memory = planned.memory
    assert memory.pool == GIB - sum(memory.parts.values())
    on_other = memory.on(2 * GIB, config)
    assert on_other.pool - memory.pool == pytest.approx(config.gpu_memory_fraction * GIB, abs=2)


def test_not_even_one_sequence_is_refused_with_the_longest_that_fits(tmp_path: Path) -> None:
    save_model("llama3-scaled-rope-tied", tmp_path)
    config = EngineConfig(tmp_path, dtype="float32", pool_mb=1, threads=1)
    longest = load_model(config).pool.num_pages  # it fits, and tells how large a page is
    model = load_model(config).model
    page = load_model(config).pool.geometry.page_bytes(torch.float32)
    pages = (1 << 20) // page
    assert longest == pages
    fits = (pages - 2) * 16
    assert build_pool(config, model, fits).num_pages == pages
    with pytest.raises(ValueError, match=rf"needs {pages + 1} \(.*--max-context {fits}, the longest that fits"):
        build_pool(config, model, fits + 1)


@pytest.mark.parametrize(
    ("memory", "options", "status", "words"),
    [
        ("24GB", (), 0, "beside 1,000 adapters in use"),
        ("1.5 GiB", ("--tensor-parallel", "2"), 2, "the page pool would have 0 pages"),
        ("1GB", (), 2, "GiB  page pool"),
        ("24GB", ("--tensor-parallel", "3"), 2, "cannot be split over 3"),
        ("24GB", ("--adapter-targets", "nothing"), 2, "this model has no target nothing; choose of q_proj"),
        ("24GB", ("--adapter-targets", "q_proj, down_proj", "--adapter-rank", "64"), 0, "rank 64 on q_proj, down_proj"),
    ],
)
def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: str, options: tuple[str, ...], status: int, words: str
) -> None:
    save_model("llama3-scaled-rope-tied", tmp_path)
    assert command.main(["--model", str(tmp_path), "--gpu-memory", memory, *options]) == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    assert "Traceback" not in printed.err


def test_odd_sizes_and_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [command.size(text) for text in ("80GB", "79.5 GiB", "81559MiB", "1000")[:3]] == [
        80 * 10**9,
        int(79.5 * GIB),
        81559 << 20,
    ]
    for text in ("80", "GB", "-1GB", "8 TB"):
        with pytest.raises(SystemExit):
            command.main(["--model", "/nowhere", "--gpu-memory", text])
    assert command.main(["--model", "/nowhere", "--gpu-memory", "8GB"]) == 2
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(UnsupportedModel):
        plan_for(EngineConfig(tmp_path), GIB)
    assert command.main(["--model", str(tmp_path), "--gpu-memory", "8GB"]) == 2
    assert "model_type 'bert' is not supported" in capsys.readouterr().err


def test_other_settings_change_what_they_should() -> None:
    model = ModelConfig.from_dict(card_table.MODELS["Llama-3.1-8B"])
    config = EngineConfig(Path(), device="cuda")
    plain = plan(config, model, 80 * GIB)
    fp8 = plan(replace(config, kv_cache_dtype="fp8", adapter_dtype="fp8"), model, 80 * GIB)
    assert fp8.memory.token_bytes == plain.memory.token_bytes / 2 == 64 << 10
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    plain_bytes = plain.adapter_pages(16, names) * plain.memory.page_bytes
    assert plain_bytes == 26 << 20 and fp8.adapter_pages(16, names) * fp8.memory.page_bytes == 13 << 20
    merged = plan(replace(config, mode="merged"), model, 80 * GIB)
    assert plain.memory.pool - merged.memory.pool == merged.memory.parts["merged weights"] > 12 * GIB
    few = plan(replace(config, max_running=16, cuda_graphs=False), model, 80 * GIB)
    assert few.memory.parts["decode graphs"] == 0 < plain.memory.parts["decode graphs"]
    assert few.memory.parts["sampling"] * 16 == plain.memory.parts["sampling"]
