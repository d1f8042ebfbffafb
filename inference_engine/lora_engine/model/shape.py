"""The sizes and constants of a forward pass on one tensor-parallel rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from lora_engine.adapters.targets import TARGET_GROUPS
from lora_engine.memory.page_pool import PoolGeometry
from lora_kernels.state_pages import DeltaShape, StateRows, segment

from .config import DeltaConfig, ExpertsConfig, ModelConfig
from .families import Norm
from .parallel import Parallel
from .rope import RotaryPairs, RotaryTable, rotary_table

# Indices into adapters.layout.TARGET_GROUPS.
QKV, OUT, GATE_UP, DOWN, DELTA_IN, DELTA_OUT, ROUTER, SHARED_GATE_UP, SHARED_DOWN = range(9)
_ATTENTION_TARGETS = frozenset({*TARGET_GROUPS[QKV], *TARGET_GROUPS[OUT]})
_MLP_TARGETS = frozenset({*TARGET_GROUPS[GATE_UP], *TARGET_GROUPS[DOWN]})
_SHARED_TARGETS = frozenset({*TARGET_GROUPS[SHARED_GATE_UP], *TARGET_GROUPS[SHARED_DOWN]})
_DELTA_TARGETS = frozenset({*TARGET_GROUPS[DELTA_IN], *TARGET_GROUPS[DELTA_OUT]})


def _of_rank(delta: DeltaConfig, parallel: Parallel) -> DeltaConfig:
    """Return the sizes of gated delta layers on this rank. Raises ``ValueError`` if they cannot be split."""
    return replace(
        delta,
        heads=parallel.shard(delta.heads, "value heads of gated delta layers"),
        key_heads=parallel.shard(delta.key_heads, "key heads of gated delta layers"),
    )


def delta_shape(delta: DeltaConfig) -> DeltaShape:
    """Return the heads of gated delta layers with these sizes, as kernels read them."""
    sizes = delta.heads, delta.key_heads, delta.key_dim, delta.value_dim
    return DeltaShape(*sizes, delta.norm_eps, delta.max_rate)


@dataclass(frozen=True, slots=True)
class LayerState:
    """The rows of a gated delta layer's state in a sequence's pages: recurrent in float32, inputs of the convolution in
    the dtype of activations.
    """

    recurrent: StateRows
    convolution: StateRows


@dataclass(frozen=True, slots=True)
class DeltaLayers:
    """The gated delta layers of a model on this rank: their heads, the taps of their convolutions, and the states'
    places, which take ``pages`` pages of a sequence.
    """

    shape: DeltaShape
    taps: int
    states: dict[int, LayerState]
    pages: int

    @classmethod
    def of(cls, delta: DeltaConfig, layers: Iterable[int], page: PoolGeometry, itemsize: int) -> DeltaLayers:
        """Place the states of ``layers``: those of a layer group one after the other, each on pages of its own.

        ``page`` is the pool's geometry, ``itemsize`` the bytes of its elements.
        """
        shape = delta_shape(delta)
        length, used, states = segment(shape.channels), Counter[int](), {}
        for layer in sorted(layers):
            group = page.layer_group(layer)
            recurrent = StateRows(
                delta.key_dim, delta.heads * delta.value_dim, page.page_elems * itemsize // 4, first_page=used[group]
            )
            rows = delta.taps * (shape.channels // length)
            convolution = StateRows(length, rows, page.page_elems, first_page=recurrent.end_page)
            used[group] = convolution.end_page
            states[layer] = LayerState(recurrent, convolution)
        return cls(shape, delta.taps, states, max(used.values()))


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
    gated_queries: bool
    delta: DeltaConfig | None
    delta_layers: frozenset[int]
    layer_groups: tuple[int, ...]
    experts: ExpertsConfig | None
    sparse_layers: frozenset[int]
    sinks: bool  # see ``Family``

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
            gated_queries=family.gated_queries,
            delta=None if config.delta is None else _of_rank(config.delta, parallel),
            delta_layers=config.delta_layers,
            layer_groups=config.layer_groups,
            experts=config.experts,
            sparse_layers=config.sparse_layers,
            sinks=family.sinks,
        )

    def targets_of(self, layer: int) -> list[str]:
        """Return the LoRA targets of a layer."""
        others = _ATTENTION_TARGETS if layer in self.delta_layers else _DELTA_TARGETS
        if layer not in self.sparse_layers:
            others |= frozenset(TARGET_GROUPS[ROUTER]) | _SHARED_TARGETS
        elif self.experts is None or not self.experts.gated_shared:
            others |= _MLP_TARGETS
        return [target for target in self.targets if target not in others]

    def pool_geometry(self, page_tokens: int, fp8_kv: bool = False) -> PoolGeometry:
        """Return the pool's geometry. Raises ``ValueError`` for pages that hold no whole row of an adapter."""
        kv_per_element = self.dtype.itemsize if fp8_kv else 1
        if 2 * page_tokens % kv_per_element:
            raise ValueError(f"--kv-cache-dtype fp8 needs an even --page-tokens, but it is {page_tokens}")
        sizes = self.num_layers, page_tokens, self.kv_heads, self.head_dim, kv_per_element, self.layer_groups
        geometry = PoolGeometry(*sizes)
        if (delta := self.delta_states(geometry)) is None:
            return geometry
        return replace(geometry, state_pages=delta.pages)

    def delta_states(self, geometry: PoolGeometry) -> DeltaLayers | None:
        """Return the gated delta layers with their states' places in pages; None without such layers."""
        if self.delta is None:
            return None
        return DeltaLayers.of(self.delta, self.delta_layers, geometry, self.dtype.itemsize)
