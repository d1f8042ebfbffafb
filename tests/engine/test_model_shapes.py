"""Layers of the sizes of models that people serve, with adapters on every target: the kernels against plain torch.

On a GPU at full width, in prompts and in captured decode steps of 1 to 512 sequences; without one in Triton's
interpreter, scaled down with every factor kept that is no power of two.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.model_shapes import SHAPES, Shape, family_of
from lorikeet_testing.shape_runs import ShapeRun, requests_for, rounding_error, worst_error

from lora_engine.model.config import ModelConfig
from lora_kernels.kernel_variants import SHRINK, SPLIT_K, KernelVariant, SplitK
from scripts import card_table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/results/model_shapes.jsonl"
RANKS = (1, 8, 256, 16, 40, 64, 128)
SCALED: dict[tuple[Shape, str], str] = {}
for _name, _shape in SHAPES.items():
    SCALED.setdefault((_shape.scaled(), family_of(_name)), _name)  # many models differ by powers of two only
# Widths, heads and groups that differ most from powers of two; a single key head.
QUICK = ("Qwen2.5-7B", "Phi-2", "Gemma-3-1B")


# Settings whose defaults no published model has.
PUBLISHED = {
    "granite": {
        "attention_multiplier": 1 / 128, "embedding_multiplier": 12.0, "logits_scaling": 16.0,
        "residual_multiplier": 0.22,
    },
}  # fmt: skip
# In float32 too, each kernel compiled once more: what differs most.
IN_FLOAT32 = (
    "SmolLM-135M", "Qwen2.5-0.5B", "Qwen2.5-7B", "Llama-2-13B", "Phi-2", "Phi-3-mini", "Gemma-2-2B", "Gemma-3-1B",
    "GLM-4-9B-0414", "Command-R7B", "OLMo-2-7B",
)  # fmt: skip
LARGEST_EMBEDDING = 600_000_000  # elements; larger models get fewer tokens to choose from


def configuration(name: str, shape: Shape, layers: int) -> ModelConfig:
    return ModelConfig.from_dict(
        {
            "model_type": family_of(name), "num_hidden_layers": layers, "hidden_size": shape.hidden,
            "intermediate_size": shape.inner, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": shape.vocab,
            "max_position_embeddings": 1024, "tie_word_embeddings": True,
            "sliding_window": 48,
            **PUBLISHED.get(family_of(name), {}),
        }
    )  # fmt: skip


@pytest.fixture
def larger_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for every work item, however small."""
    for variant in (KernelVariant.GEMV_1, KernelVariant.GEMV_2):
        monkeypatch.setitem(SHRINK, variant, replace(SHRINK[variant], rows=32))
        monkeypatch.setitem(SPLIT_K, variant, SplitK(256))


def interpreted_error(name: str) -> float:
    shape = SHAPES[name].scaled()
    config = configuration(name, shape, layers=1)
    run = ShapeRun(config, "cpu", torch.float32, (20,), pool_mb=8, max_running=4, cuda_graphs=False)
    requests, used = requests_for(run, 2, lengths=(2, 18), new=2, seed=len(name))
    return worst_error(run, requests, used, run.generate(requests), torch.float32)


def test_the_table_covers_what_is_served() -> None:
    assert len(SHAPES) >= 30
    assert {64, 80, 96, 128, 256} <= {shape.head_dim for shape in SHAPES.values()}
    assert {1, 64} <= {shape.kv_heads for shape in SHAPES.values()}
    assert {(7, 1), (28, 4), (14, 2)} & {(shape.heads, shape.kv_heads) for shape in SHAPES.values()}
    assert min(shape.hidden for shape in SHAPES.values()) == 576
    assert max(shape.hidden for shape in SHAPES.values()) == 8192
    assert max(shape.vocab for shape in SHAPES.values()) > 262_000


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.usefixtures("larger_pieces")
def test_scaled_layers_in_the_interpreter(name: str) -> None:
    assert interpreted_error(name) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SCALED.values() if name not in QUICK])
@pytest.mark.usefixtures("larger_pieces")
def test_all_scaled_layers_in_the_interpreter(name: str) -> None:
    assert interpreted_error(name) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHAPES)
def test_layers_on_a_gpu(name: str) -> None:
    """In float32 to rounding; in bfloat16 with graphs, no further from it than twice what plain torch is."""
    shape, started = SHAPES[name], time.perf_counter()
    if shape.vocab * shape.hidden > LARGEST_EMBEDDING:
        shape = shape._replace(vocab=32_003)
    config = configuration(name, shape, layers=2)
    figures: dict[str, float] = {}
    if name in IN_FLOAT32:
        exact = ShapeRun(config, "cuda", torch.float32, RANKS, pool_mb=2500, max_running=16, cuda_graphs=False)
        requests, used = requests_for(exact, 16, lengths=(1, 17, 70, 200), new=3, seed=1)
        figures["float32"] = worst_error(exact, requests, used, exact.generate(requests), torch.float32)
        del exact
        free()
    run = ShapeRun(config, "cuda", torch.bfloat16, RANKS, pool_mb=1500, max_running=512, step_tokens=1024)
    figures |= {"bfloat16": 0.0, "torch_bfloat16": 0.0}
    # One sequence of an adapter, two or three, and 64: each has LoRA kernels of its own.
    for batch, lengths in ((1, (33,)), (24, (1, 17, 70, 200)), (512, (2, 3))):
        requests, used = requests_for(run, batch, lengths, new=3, seed=batch, name=f"{batch}-", first=1)
        found = run.generate(requests)
        some = requests[:: max(1, batch // 40)]
        figures["bfloat16"] = max(figures["bfloat16"], worst_error(run, some, used, found, torch.float32))
        figures["torch_bfloat16"] = max(figures["torch_bfloat16"], rounding_error(run, some, used, found))
        del found
    del run
    free()
    keep(name, shape, **figures, seconds=time.perf_counter() - started)
    assert figures.get("float32", 0.0) < 1e-4
    assert figures["bfloat16"] <= 2 * figures["torch_bfloat16"]


# Mixtures of experts, with the sizes of the published configurations.
MIXTURES = [name for name, raw in card_table.MODELS.items() if ModelConfig.from_dict(raw).experts is not None]


def mixture(name: str, **sizes: Any) -> ModelConfig:
    """Two layers, one of each kind."""
    raw = card_table.MODELS[name]
    kinds = {"layer_types": ["linear_attention", "full_attention"]} if raw["model_type"].startswith("qwen3_5") else {}
    few = {"num_hidden_layers": 2, "max_position_embeddings": 1024, "tie_word_embeddings": True, **kinds, **sizes}
    return ModelConfig.from_dict({**raw, **few})


def scaled_mixture(name: str) -> ModelConfig:
    """Small enough for the interpreter, with the factors of the model's sizes that are no powers of two."""
    raw, whole = card_table.MODELS[name], ModelConfig.from_dict(card_table.MODELS[name])
    assert whole.experts is not None
    inner = whole.experts.inner // (128 if whole.experts.inner > 8192 else 32 if whole.experts.inner > 2048 else 16)
    sizes = {
        "hidden_size": whole.hidden_size // 32, "num_attention_heads": whole.num_heads // whole.num_kv_heads,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 127, "quantization_config": None, "sliding_window": 12,
        "intermediate_size": inner if "moe_intermediate_size" not in raw else 2 * inner,
        "num_experts_per_tok": min(3, whole.experts.per_token),
    }  # fmt: skip
    sizes |= dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), inner)
    sizes |= dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 6)
    sizes |= {"linear_num_key_heads": 1, "linear_num_value_heads": 2}
    sizes |= dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16)
    return mixture(name, **{key: value for key, value in sizes.items() if key in raw or not key.startswith("linear")})


def test_every_published_mixture_has_a_row() -> None:
    assert {"Qwen3-30B-A3B", "Qwen3.5-35B-A3B", "GPT-OSS-20B", "GPT-OSS-120B", "Mixtral-8x7B", "GLM-4.5-Air"} <= {
        *MIXTURES
    }


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "Qwen3.5-35B-A3B" else pytest.mark.long) for n in MIXTURES if n[-4:] != "120B"],
)
@pytest.mark.usefixtures("larger_pieces")
def test_scaled_mixtures_in_the_interpreter(name: str) -> None:
    """Adapters on every projection, router and expert; 120B differs from 20B in numbers of layers and experts only."""
    run = ShapeRun(scaled_mixture(name), "cpu", torch.float32, (20,), pool_mb=16, max_running=4, cuda_graphs=False)
    requests, used = requests_for(run, 2, lengths=(2, 18), new=2, seed=len(name))
    assert worst_error(run, requests, used, run.generate(requests), torch.float32) < 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_on_a_gpu(name: str) -> None:
    """In float32: in 16 bits a router may choose another expert than the reference, whose output is then another."""
    started = time.perf_counter()
    run = ShapeRun(mixture(name, vocab_size=32_003), "cuda", torch.float32, (8, 40), pool_mb=6000, max_running=64)
    error = 0.0
    for batch, lengths in ((1, (33,)), (16, (1, 17, 70, 200)), (64, (2, 3))):
        requests, used = requests_for(run, batch, lengths, new=3, seed=batch, name=f"{batch}-", first=1)
        found = run.generate(requests)
        error = max(error, worst_error(run, requests[::4], used, found, torch.float32))
    del run, found
    free()
    print(name, f"{error:.3g} in {time.perf_counter() - started:.1f} s")
    assert error < 1e-4


def free() -> None:
    """Engines refer to themselves; several test processes share the card."""
    gc.collect()
    torch.cuda.empty_cache()


def keep(name: str, shape: Shape, **figures: float) -> None:
    """Add a row for each figure; printed too."""
    print(name, {key: f"{value:.3g}" for key, value in figures.items()})
    row: dict[str, Any] = {
        "workload": "shapes", "model": name, "system": "lorikeet", "case": "two layers, ranks 1 to 256, 1 to 512 rows",
        "gpu": torch.cuda.get_device_name().removeprefix("NVIDIA "), "gpus": 1, "commit": commit(),
        "date": str(date.today()), "settings": {**shape._asdict(), "family": family_of(name)}, "floor": None,
    }  # fmt: skip
    lines = "".join(
        json.dumps({**row, "metric": f"{key}_error" if key != "seconds" else key, "value": round(value, 9), "unit": ""})
        + "\n"
        for key, value in figures.items()
    )
    with RESULTS.open("a") as file:  # one write: several test processes append
        file.write(lines)


def commit() -> str:
    known = os.environ.get("LORIKEET_COMMIT")
    return (
        known
        or subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent, check=False
        ).stdout.strip()
    )
