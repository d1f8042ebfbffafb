"""A model's shape, read from the Hugging Face ``config.json`` beside its weights as ``transformers`` reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lora_engine.errors import UnsupportedModel

from .families import FAMILIES, Family, Settings
from .quantization import Quantization, read_quantization
from .rope_config import RopeConfig, read_ropes

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
_LAYER_TYPES = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The configuration of a base model: its family, its sizes, and the kind of each layer."""

    family: Family
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    norm_eps: float
    activation: str  # "silu" or "gelu_tanh"
    tie_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    windows: tuple[int, ...]  # per layer; 0 is full attention
    ropes: tuple[RopeConfig | None, ...]  # per layer; None: it does not rotate
    attention_scale: float
    attention_softcap: float  # 0: none
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    logit_softcap: float  # 0: none
    quantization: Quantization | None = None  # None: the checkpoint's matrices are not quantised

    @classmethod
    def load(cls, folder: Path) -> ModelConfig:
        """Read ``folder/config.json``. Raises ``UnsupportedModel``."""
        return cls.from_dict(read_json_object(folder / "config.json"))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Build the configuration from config.json's object. Raises ``UnsupportedModel`` with the key and the fix."""
        family = _family(raw)
        settings: Settings = {**family.defaults, **raw}
        for name, meaning in family.refused.items():
            if settings.get(name):
                raise UnsupportedModel(f"config.json sets {name}: {meaning} is not supported; use another model.")
        layers, heads = _whole(settings, "num_hidden_layers"), _whole(settings, "num_attention_heads")
        kv_heads, hidden = _whole(settings, "num_key_value_heads", heads), _whole(settings, "hidden_size")
        head_dim = _whole(settings, "head_dim", hidden // heads)
        if heads % kv_heads or (not settings.get("head_dim") and hidden % heads):
            raise UnsupportedModel(
                f"config.json has {heads} attention heads, {kv_heads} key-value heads and a hidden size of {hidden}, "
                "none of which divides the one before; copy config.json from the model's source again."
            )
        windows = _windows(settings, family, layers)
        max_position = _whole(settings, "max_position_embeddings")
        ropes, max_position = read_ropes(settings, family, windows, head_dim, max_position)
        return cls(
            family=family,
            num_layers=layers,
            hidden_size=hidden,
            intermediate_size=_whole(settings, "intermediate_size"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=_whole(settings, "vocab_size"),
            max_position=max_position,
            norm_eps=_number(settings, family.norm.eps),
            activation=_activation(settings, family),
            tie_embeddings=bool(settings.get("tie_word_embeddings", False)),
            qkv_bias=_switch(settings, family.qkv_bias),
            o_bias=_switch(settings, family.o_bias),
            mlp_bias=_switch(settings, family.mlp_bias),
            windows=windows,
            ropes=ropes,
            attention_scale=_computed(settings, family.attention_scale, head_dim**-0.5),
            attention_softcap=_number(settings, family.attention_softcap, 0.0),
            embedding_scale=_computed(settings, family.embedding_scale, 1.0),
            residual_scale=_number(settings, family.residual_scale, 1.0),
            logit_scale=_computed(settings, family.logit_scale, 1.0),
            logit_softcap=_number(settings, family.logit_softcap, 0.0),
            quantization=read_quantization(raw),
        )

    def target_shapes(self, rank: int = 0, world: int = 1) -> dict[str, tuple[int, int]]:
        """Return ``(in_features, out_features)`` of each LoRA target on one tensor-parallel rank."""
        q, kv = self.num_heads * self.head_dim // world, self.num_kv_heads * self.head_dim // world
        hidden, inner = self.hidden_size, self.intermediate_size // world
        qkv = {"q_proj": (hidden, q), "k_proj": (hidden, kv), "v_proj": (hidden, kv)}
        gate_up = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner)}
        return {
            **({"qkv_proj": (hidden, q + 2 * kv)} if self.family.fused_qkv else qkv),
            "o_proj": (q, hidden),
            **({"gate_up_proj": (hidden, 2 * inner)} if self.family.fused_gate_up else gate_up),
            "down_proj": (inner, hidden),
        }


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a model's folder. Raises ``UnsupportedModel``."""
    if not path.is_file():
        raise UnsupportedModel(f"{path.parent} holds no {path.name}; point --model at a Hugging Face model folder.")
    text = path.read_bytes()
    if text.startswith(b"version https://git-lfs"):
        raise UnsupportedModel(f"{path} is a Git LFS pointer, not the file; run git lfs pull in {path.parent}.")
    try:
        value = json.loads(text)
    except ValueError as error:
        what = "is empty" if not text.strip() else f"is not JSON ({error})"
        raise UnsupportedModel(f"{path} {what}; copy it from the model's source again.") from None
    if not isinstance(value, dict):
        raise UnsupportedModel(f"{path} holds no JSON object; copy it from the model's source again.")
    return value


def _family(raw: Mapping[str, Any]) -> Family:
    name = raw.get("model_type")
    if not isinstance(name, str) or name not in FAMILIES:
        named = f"model_type {name!r}" if name else "a config.json without model_type"
        raise UnsupportedModel(f"{named} is not supported; supported are {', '.join(FAMILIES)}.")
    return FAMILIES[name]


def _whole(settings: Settings, name: str, default: int | None = None) -> int:
    value = settings.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise UnsupportedModel(f"config.json: {name} must be a whole number above 0, but is {value!r}; {_AGAIN}")
    return value


def _number(settings: Settings, name: str, default: float | None = None) -> float:
    """Return a setting as a number, or ``default`` if it is missing or null."""
    value = settings.get(name) if name else None
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:
        raise UnsupportedModel(f"config.json: {name} must be a number, but is {value!r}; {_AGAIN}")
    return float(value)


_AGAIN = "copy config.json from the model's source again."


def _computed(settings: Settings, compute: Any, default: float) -> float:
    if compute is None:
        return default
    try:
        return float(compute(settings))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, ArithmeticError) as error:
        raise UnsupportedModel(f"config.json: a scale cannot be computed ({error!r}); {_AGAIN}") from None


def _switch(settings: Settings, switch: bool | str) -> bool:
    return bool(settings.get(switch, False)) if isinstance(switch, str) else switch


def _activation(settings: Settings, family: Family) -> str:
    name = settings.get(family.activation, "silu")
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        raise UnsupportedModel(f"activation {name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}.")
    return _ACTIVATIONS[name]


def _windows(settings: Settings, family: Family, layers: int) -> tuple[int, ...]:
    """Return the sliding window of each layer, 0 for full attention."""
    if family.slides_everywhere:
        slides = [settings.get("sliding_window") is not None] * layers
    elif family.layer_types is None:
        slides = [False] * layers
    else:
        try:
            kinds = settings.get("layer_types")
            kinds = family.layer_types(settings) if kinds is None else kinds
        except (KeyError, TypeError, IndexError, ZeroDivisionError) as error:
            raise UnsupportedModel(f"config.json: the kinds of layers cannot be read ({error!r}); {_AGAIN}") from None
        if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= set(_LAYER_TYPES):
            raise UnsupportedModel(
                f"config.json: layer_types must name one of {', '.join(_LAYER_TYPES)} for each of {layers} layers; "
                f"{_AGAIN}"
            )
        slides = [kind == "sliding_attention" for kind in kinds]
        if "use_sliding_window" in family.defaults and not settings.get("use_sliding_window"):
            settings = {**settings, "sliding_window": None}
    window = _whole(settings, "sliding_window") if any(slides) else 0
    return tuple(window if slide else 0 for slide in slides)
