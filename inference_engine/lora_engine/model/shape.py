"""The numbers that a forward pass is made of, on one tensor-parallel rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lora_engine.memory.page_pool import PoolGeometry

from .config import ModelConfig
from .parallel import Parallel
from .rope import rotary_tables

# Indices into adapters.layout.TARGET_GROUPS.
QKV, OUT, GATE_UP, DOWN = range(4)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Local head counts, rotary tables ``[max_context, head_dim]`` and each layer's attention window (0 = full)."""

    num_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    cos: torch.Tensor
    sin: torch.Tensor
    windows: tuple[int, ...]
    targets: dict[str, tuple[int, int]]

    @classmethod
    def of(
        cls, config: ModelConfig, parallel: Parallel, max_context: int, device: torch.device, dtype: torch.dtype
    ) -> ModelShape:
        cos, sin = rotary_tables(config.rope, config.head_dim, max_context, device, dtype)
        return cls(
            num_layers=config.num_layers,
            heads=parallel.shard(config.num_heads, "attention heads"),
            kv_heads=parallel.shard(config.num_kv_heads, "key-value heads"),
            head_dim=config.head_dim,
            eps=config.rms_norm_eps,
            cos=cos,
            sin=sin,
            windows=tuple(config.sliding_window if i in config.sliding_layers else 0 for i in range(config.num_layers)),
            targets=config.target_shapes(parallel.rank, parallel.world),
        )

    def pool_geometry(self, page_tokens: int) -> PoolGeometry:
        return PoolGeometry(self.num_layers, page_tokens, self.kv_heads, self.head_dim)
