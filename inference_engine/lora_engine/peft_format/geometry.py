"""The base model's shape, as far as an adapter must fit it."""

from __future__ import annotations

from dataclasses import dataclass

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})


@dataclass(frozen=True, slots=True)
class BaseGeometry:
    """Everything an adapter is checked against; ``name`` and ``digest`` are for messages."""

    name: str
    digest: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int

    def features(self, target: str) -> tuple[int, int]:
        """``(in_features, out_features)`` of a target projection."""
        q = self.num_attention_heads * self.head_dim
        kv = self.num_key_value_heads * self.head_dim
        return {
            "q_proj": (self.hidden_size, q),
            "k_proj": (self.hidden_size, kv),
            "v_proj": (self.hidden_size, kv),
            "o_proj": (q, self.hidden_size),
            "gate_proj": (self.hidden_size, self.intermediate_size),
            "up_proj": (self.hidden_size, self.intermediate_size),
            "down_proj": (self.intermediate_size, self.hidden_size),
        }[target]


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """How large an adapter may be; sizes in bytes."""

    max_rank: int = 256
    max_bytes: int = 2 << 30
    max_header_bytes: int = 16 << 20
    max_tensors: int = 20_000


def module_key(layer: int, target: str) -> str:
    """The module's name inside the base model, which PEFT's patterns are matched against."""
    block = "self_attn" if target in _ATTENTION else "mlp"
    return f"model.layers.{layer}.{block}.{target}"
