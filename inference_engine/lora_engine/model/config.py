"""A model's shape, read from the Hugging Face ``config.json`` beside its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUPPORTED_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")


class UnsupportedModel(Exception):
    """The folder does not hold a model this engine can run; the message says what to do."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding parameters; ``kind`` is "default", "linear", "llama3" or "yarn"."""

    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder-only transformer of the Llama kind."""

    family: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_window: int  # 0 = full attention
    sliding_layers: frozenset[int]

    @classmethod
    def load(cls, folder: Path) -> ModelConfig:
        """Read ``folder/config.json``. Raises ``UnsupportedModel``."""
        path = folder / "config.json"
        if not path.is_file():
            raise UnsupportedModel(f"{folder} holds no config.json; point --model at a Hugging Face model folder.")
        return cls.from_dict(json.loads(path.read_text()))

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> ModelConfig:
        family = raw.get("model_type", "")
        if family not in SUPPORTED_FAMILIES:
            raise UnsupportedModel(
                f"model_type {family!r} is not supported; use one of {', '.join(SUPPORTED_FAMILIES)}."
            )
        if raw.get("hidden_act", "silu") != "silu":
            raise UnsupportedModel(f"activation {raw['hidden_act']!r} is not supported; the model must use silu.")
        if raw.get("quantization_config"):
            raise UnsupportedModel("quantised weights are not supported; use the float16 or bfloat16 checkpoint.")
        heads = raw["num_attention_heads"]
        bias = bool(raw.get("attention_bias", False))
        window, sliding_layers = _sliding_window(raw, family)
        return cls(
            family=family,
            num_layers=raw["num_hidden_layers"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_heads=heads,
            num_kv_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            vocab_size=raw["vocab_size"],
            max_position=raw.get("max_position_embeddings", 2048),
            rms_norm_eps=raw.get("rms_norm_eps", 1e-6),
            rope=_rope(raw),
            tie_embeddings=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=True if family == "qwen2" else bias,
            o_bias=False if family == "qwen2" else bias,
            mlp_bias=bool(raw.get("mlp_bias", False)),
            qk_norm=family == "qwen3",
            sliding_window=window,
            sliding_layers=sliding_layers,
        )

    def target_shapes(self, rank: int = 0, world: int = 1) -> dict[str, tuple[int, int]]:
        """``(in_features, out_features)`` of each LoRA target on one tensor-parallel rank."""
        q, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        hidden, inner = self.hidden_size, self.intermediate_size
        return {
            "q_proj": (hidden, q // world),
            "k_proj": (hidden, kv // world),
            "v_proj": (hidden, kv // world),
            "o_proj": (q // world, hidden),
            "gate_proj": (hidden, inner // world),
            "up_proj": (hidden, inner // world),
            "down_proj": (inner // world, hidden),
        }


def _sliding_window(raw: dict[str, Any], family: str) -> tuple[int, frozenset[int]]:
    layers = raw["num_hidden_layers"]
    window = raw.get("sliding_window") or 0
    if not window or (family.startswith("qwen") and not raw.get("use_sliding_window", False)):
        return 0, frozenset()
    if raw.get("layer_types"):
        sliding = {i for i, kind in enumerate(raw["layer_types"]) if kind == "sliding_attention"}
    elif family == "mistral":
        sliding = set(range(layers))
    elif family.startswith("qwen"):
        sliding = set(range(raw.get("max_window_layers", layers), layers))
    else:
        sliding = set()
    return (window, frozenset(sliding)) if sliding else (0, frozenset())


def _rope(raw: dict[str, Any]) -> RopeConfig:
    # transformers 5 writes rope_parameters; earlier versions rope_theta beside rope_scaling.
    scaling = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or raw.get("rope_theta") or 10_000.0
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in ("default", "linear", "llama3", "yarn"):
        raise UnsupportedModel(f"rope type {kind!r} is not supported; supported are default, linear, llama3, yarn.")
    if raw.get("partial_rotary_factor", scaling.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UnsupportedModel("partial rotary embeddings are not supported.")
    original = scaling.get("original_max_position_embeddings") or raw.get("max_position_embeddings", 2048)
    factor = scaling.get("factor", 1.0)
    attention_factor = scaling.get("attention_factor")
    return RopeConfig(
        theta=float(theta),
        kind=kind,
        factor=factor,
        low_freq_factor=scaling.get("low_freq_factor", 1.0),
        high_freq_factor=scaling.get("high_freq_factor", 4.0),
        original_max_position=original,
        beta_fast=scaling.get("beta_fast") or 32.0,
        beta_slow=scaling.get("beta_slow") or 1.0,
        attention_factor=attention_factor if attention_factor is not None else _yarn_attention(kind, factor, scaling),
        truncate=scaling.get("truncate", True),
    )


def _yarn_attention(kind: str, factor: float, scaling: dict[str, Any]) -> float:
    """YaRN's temperature on the rotary tables (arXiv 2309.00071, section 3.4)."""
    import math

    if kind != "yarn":
        return 1.0

    def mscale(scale: float, weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(scale) + 1.0 if scale > 1 else 1.0

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return mscale(factor, scaling["mscale"]) / mscale(factor, scaling["mscale_all_dim"])
    return mscale(factor)
