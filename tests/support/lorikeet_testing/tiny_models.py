"""Small random models of every supported family, and PEFT adapters of every supported variant.

Made with ``transformers`` and ``peft`` themselves, so that what the engine is compared with
is what users bring. Weights are scaled up until greedy outputs vary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

from lora_engine.adapters.layout import PackedAdapter, pack_adapter
from lora_engine.engine import Engine
from lora_engine.peft_format import (
    AdapterLimits,
    BaseGeometry,
    SafetensorsFile,
    adapter_digest,
    folder_digests,
    inspect_adapter,
)

VOCAB = 512
_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 150,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2-mha": ("llama", {"num_key_value_heads": 4}),
    "llama3-scaled-rope-tied": ("llama", {"rope_parameters": _LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama-linear-rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama-yarn": ("llama", {"rope_parameters": _YARN_ROPE}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral-sliding-window": ("mistral", {"sliding_window": 40}),
    "qwen2-qkv-bias": ("qwen2", {}),
    "qwen2.5-windowed-upper-layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1},
    ),
    "qwen3-qk-norm": ("qwen3", {"head_dim": 32}),
}

_ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention-r8": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "all-linear-r16-rslora": {"r": 16, "lora_alpha": 8, "use_rslora": True, "target_modules": "all-linear"},
    "v-only-r1": {"r": 1, "lora_alpha": 4, "target_modules": ["v_proj"]},
    "mlp-r5": {"r": 5, "lora_alpha": 7, "target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "qv-r32": {"r": 32, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": _ALL,
        "rank_pattern": {"q_proj": 12, "layers.1.mlp.down_proj": 20},
        "alpha_pattern": {"o_proj": 3},
    },
    "one-layer-r64": {"r": 64, "lora_alpha": 64, "target_modules": _ALL, "layers_to_transform": [1]},
    "down-r256": {"r": 256, "lora_alpha": 64, "target_modules": ["down_proj"]},
}
_STORED_AS = {"mlp-r5": torch.float16, "qv-r32": torch.bfloat16}


def save_model(family: str, folder: Path, seed: int = 0, **shape: Any) -> PreTrainedModel:
    """Write a random model of ``family`` (of another ``shape``) in Hugging Face format; returns it in float32."""
    kind, overrides = FAMILIES[family]
    config = CONFIG_MAPPING[kind](**{**_SHAPE, **overrides, **shape})
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    model.save_pretrained(folder, max_shard_size="200KB" if family == "qwen2-qkv-bias" else "1GB")
    save_tokenizer(folder)
    return model


def save_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: 256 bytes, then placeholders up to the vocabulary's size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate(alphabet)}
    vocab |= {f"<extra_{index}>": index for index in range(len(vocab), VOCAB)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def save_adapter(name: str, model: PreTrainedModel, folder: Path, seed: int = 1) -> Path:
    """Write a random adapter of the named variant as PEFT writes it; ``model`` is left as it was."""
    torch.manual_seed(seed)
    peft_model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **ADAPTERS[name]))
    with torch.no_grad():
        for key, parameter in peft_model.named_parameters():
            if "lora_" in key:
                parameter.copy_(torch.randn_like(parameter) * 0.08)
                if name in _STORED_AS:
                    parameter.data = parameter.data.to(_STORED_AS[name])
    peft_model.save_pretrained(folder)
    peft_model.unload()
    return folder


def save_scaled_adapter(
    model: PreTrainedModel,
    folder: Path,
    targets: list[str],
    alpha: float,
    size: float,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write an adapter of rank 1 with random weights of about ``size``; ``model`` is left as it was."""
    torch.manual_seed(1)
    config = LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, r=1, lora_alpha=alpha, target_modules=targets)
    peft_model = get_peft_model(model, config)
    with torch.no_grad():
        for key, parameter in peft_model.named_parameters():
            if "lora_" in key:
                parameter.copy_(torch.randn_like(parameter) * size)
                parameter.data = parameter.data.to(dtype)
    peft_model.save_pretrained(folder)
    peft_model.unload()
    return folder


@dataclass(frozen=True)
class Adapter:
    """An adapter on disk, and what the engine calls it."""

    name: str
    folder: Path
    digest: str


def geometry_of(engine: Engine) -> BaseGeometry:
    config = engine.model_config
    return BaseGeometry(
        name=engine.loaded.name,
        digest=engine.loaded.digest,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
    )


def adapter_at(name: str, folder: Path) -> Adapter:
    return Adapter(name, folder, adapter_digest(folder_digests(folder)))


def pack_for(engine: Engine, adapter: Adapter) -> PackedAdapter:
    """Validate and pack an adapter for ``engine``, as staging does."""
    report = inspect_adapter(adapter.folder, geometry_of(engine), AdapterLimits())
    assert report.ok and report.manifest is not None, report.problems
    weights = SafetensorsFile.open(adapter.folder / "adapter_model.safetensors")
    return pack_adapter(
        adapter.digest, report.manifest, weights, engine.pool.geometry, engine.targets, engine.pool.data.dtype
    )
