"""Layers of real widths on a GPU: the Triton backend against plain torch, for a prompt and for decode steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lorikeet_testing.model_shapes import SHAPES

from lora_engine.config import EngineConfig
from lora_engine.memory import PagePool
from lora_engine.model.batch import PrefillSpan, StepBatch
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import build_transformer
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer
from lora_engine.model.weights import random_weights

# Widths, head sizes and groups that are no powers of two, and the widest head.
MODELS = (
    "SmolLM-135M", "Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-7B", "Llama-3.2-3B", "Llama-2-13B", "Qwen3-4B", "LLaMA-30B",
    "Phi-2", "Phi-3-mini", "Gemma-3-1B",
)  # fmt: skip
PROMPT, STEPS = 70, 3


def configuration(name: str) -> ModelConfig:
    shape = SHAPES[name]
    return ModelConfig.from_dict(
        {
            "model_type": "llama", "num_hidden_layers": 2, "hidden_size": shape.hidden,
            "intermediate_size": shape.inner, "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": 1000,
            "max_position_embeddings": 1024,
        }
    )  # fmt: skip


def logits(model: Transformer) -> torch.Tensor:
    """Of a prompt, then of each of a few tokens after it."""
    geometry = model.shape.pool_geometry(16)
    pages = torch.tensor([[7, 2, 5, 3, 8, 1]], device=model.device)
    pool = PagePool(geometry, 9, model.dtype, model.device)
    pool.data.fill_(float("nan"))
    found = []
    for start, stop in ((0, PROMPT), *((at, at + 1) for at in range(PROMPT, PROMPT + STEPS))):
        positions = torch.arange(start, stop, device=model.device)
        page = pages[0, positions // 16]
        decodes = stop - start == 1
        batch = StepBatch(
            token_ids=positions * 37 % 1000,
            positions=positions,
            slot_mapping=page * geometry.rows_per_page + positions % 16,
            num_decode=int(decodes),
            block_table=pages if decodes else pages[:0],
            seq_lens=positions[-1:] + 1 if decodes else positions[:0],
            prefill=[] if decodes else [PrefillSpan(0, stop, 0, pages[0])],
            lora=[],
            logit_rows=torch.tensor([stop - start - 1], device=model.device),
        )
        found.append(model.forward(batch, pool))
    return torch.cat(found).double()


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_steps_of_a_real_width(name: str) -> None:
    config, device = configuration(name), torch.device("cuda")
    weights = random_weights(config, device, torch.float32, Parallel())
    found = {}
    for backend in ("torch", "triton"):
        settings = EngineConfig(model=Path("random"), device="cuda", dtype="float32", backend=backend, max_running=8)
        model, _tables = build_transformer(settings, config, weights, 1024, Parallel())
        found[backend] = logits(model)
    error = (found["triton"] - found["torch"]).norm(dim=-1) / found["torch"].norm(dim=-1)
    assert float(error.max()) < 1e-4, error
