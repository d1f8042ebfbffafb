"""Layers with weights in FP8 and adapters on every target: kernels against torch.

On a GPU of real models' sizes; without one in Triton's interpreter, of Qwen2.5-7B's divided by 32.
"""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import pytest
import torch
from lorikeet_testing.model_shapes import SHAPES, Shape, family_of
from lorikeet_testing.shape_runs import ShapeRun, requests_for, rounding_error, worst_error

from lora_engine.model.config import ModelConfig

RANKS = (1, 8, 256, 16, 40, 64, 128)


def configuration(name: str, shape: Shape, layers: int) -> ModelConfig:
    return ModelConfig.from_dict(
        {
            "model_type": family_of(name), "num_hidden_layers": layers, "hidden_size": shape.hidden,
            "intermediate_size": shape.inner, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": shape.vocab,
            "max_position_embeddings": 1024, "tie_word_embeddings": True, "sliding_window": 48,
        }
    )  # fmt: skip


def test_layers_in_fp8_in_the_interpreter() -> None:
    config = configuration("Qwen2.5-7B", Shape(hidden=112, heads=7, kv_heads=1, head_dim=16, inner=592, vocab=127), 1)
    settings = {"pool_mb": 8, "max_running": 4, "cuda_graphs": False, "quantization": "fp8"}
    run = ShapeRun(config, "cpu", torch.float32, (20,), **settings)
    assert run.weights.num_quantised() == 4
    requests, used = requests_for(run, 2, lengths=(2, 18), new=2, seed=1)
    assert worst_error(run, requests, used, run.generate(requests), torch.float32) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize("name", SHAPES)
def test_layers_in_fp8_on_a_gpu(name: str) -> None:
    """With graphs, no further from float32 products of the same quantised numbers than plain torch in bfloat16 is.

    Both fall to one or the other side of what lies between two of E4M3, so twice as far is allowed.
    """
    shape = SHAPES[name]._replace(vocab=32_003)
    config = configuration(name, shape, layers=2)
    settings = {"pool_mb": 1500, "max_running": 128, "step_tokens": 1024, "quantization": "fp8"}
    run = ShapeRun(config, "cuda", torch.bfloat16, RANKS, **settings)
    assert run.weights.num_quantised() == 8
    figures = {"bfloat16": 0.0, "torch_bfloat16": 0.0}
    for batch, lengths in ((1, (33,)), (24, (1, 17, 70, 200)), (128, (2, 3))):
        requests, used = requests_for(run, batch, lengths, new=3, seed=batch, name=f"{batch}-", first=1)
        found = run.generate(requests)
        some = requests[:: max(1, batch // 24)]
        figures["bfloat16"] = max(figures["bfloat16"], worst_error(run, some, used, found, torch.float32))
        figures["torch_bfloat16"] = max(figures["torch_bfloat16"], rounding_error(run, some, used, found))
    del run
    gc.collect()
    torch.cuda.empty_cache()
    row = json.dumps({"model": name, **{key: round(value, 5) for key, value in figures.items()}})
    print(row)
    if folder := os.environ.get("OUT"):
        with (Path(folder) / "fp8_shapes.jsonl").open("a") as file:
            file.write(row + "\n")
    assert figures["bfloat16"] <= 2 * figures["torch_bfloat16"]
