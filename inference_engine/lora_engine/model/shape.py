"""The sizes and constants of a forward pass on one tensor-parallel rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lora_engine.memory.page_pool import PoolGeometry

from .config import ModelConfig
from .families import Norm
from .parallel import Parallel
from .rope import RotaryPairs, RotaryTable, rotary_table

# Indices into adapters.layout.TARGET_GROUPS.
QKV, OUT, GATE_UP, DOWN = range(4)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a model on this rank: its head counts, and each layer's rotary table and window (0: full)."""

    num_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_context: int
    device: torch.device
    dtype: torch.dtype
    norm: Norm
    eps: float
    qk_norm: str  # see ``Family``
    activation: str
    attention_scale: float
    attention_softcap: float
    residual_scale: float
    pairs: RotaryPairs
    ropes: tuple[RotaryTable, ...]
    windows: tuple[int, ...]
    targets: dict[str, tuple[int, int]]

    @classmethod
    def of(
        cls, config: ModelConfig, parallel: Parallel, max_context: int, device: torch.device, dtype: torch.dtype
    ) -> ModelShape:
        """Build this rank's shape. Raises ``ValueError`` for a model that cannot be split over the ranks."""
        family = config.family
        if parallel.world > 1 and (family.fused_qkv or family.fused_gate_up or family.qk_norm == "all"):
            raise ValueError(
                f"models of the family {family.model_type} cannot be split over tensor-parallel ranks; start it "
                "without --tensor-parallel"
            )
        rotary_dim = next((rope.rotary_dim for rope in config.ropes if rope is not None), config.head_dim)
        pairs = RotaryPairs(config.head_dim, rotary_dim, family.rope.interleaved)
        tables = {rope: rotary_table(rope, pairs, max_context, device, dtype) for rope in set(config.ropes)}
        return cls(
            num_layers=config.num_layers,
            heads=parallel.shard(config.num_heads, "attention heads"),
            kv_heads=parallel.shard(config.num_kv_heads, "key-value heads"),
            head_dim=config.head_dim,
            max_context=max_context,
            device=device,
            dtype=dtype,
            norm=family.norm,
            eps=config.norm_eps,
            qk_norm=family.qk_norm,
            activation=config.activation,
            attention_scale=config.attention_scale,
            attention_softcap=config.attention_softcap,
            residual_scale=config.residual_scale,
            pairs=pairs,
            ropes=tuple(tables[rope] for rope in config.ropes),
            windows=config.windows,
            targets=config.target_shapes(parallel.rank, parallel.world),
        )

    def pool_geometry(self, page_tokens: int, fp8_kv: bool = False) -> PoolGeometry:
        """Return the pool's geometry. Raises ``ValueError`` for pages that hold no whole row of an adapter."""
        kv_per_element = self.dtype.itemsize if fp8_kv else 1
        if 2 * page_tokens % kv_per_element:
            raise ValueError(f"--kv-cache-dtype fp8 needs an even --page-tokens, but it is {page_tokens}")
        return PoolGeometry(self.num_layers, page_tokens, self.kv_heads, self.head_dim, kv_per_element)
