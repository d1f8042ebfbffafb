"""A combination packs several adapters as one, with their ranks added: its product is their weighted sum.

PEFT's ``add_weighted_adapter`` does the same with ``combination_type="cat"``. Its "linear" differs: it adds A and B
separately, which adds products of one adapter's A with another one's B.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import ModuleLora

from .host_memory import HostMemory
from .layout import AdapterLayout, ModuleSlot, PackedAdapter, TargetShapes, plan_layer
from .tensors import factor_rows, module_rows, pool_rows_per_row

Weighted = tuple[PackedAdapter, float]


@dataclass(frozen=True, slots=True)
class _Share:
    """A part's module, and the factor on its product: its scale times the part's weight."""

    part: int
    slot: ModuleSlot
    scale: float


def combine(
    digest: str,
    parts: Sequence[Weighted],
    geometry: PoolGeometry,
    targets: TargetShapes,
    memory: HostMemory,
    max_rank: int,
) -> PackedAdapter:
    """Combine packed adapters in the pool's dtype.

    Raises ``StageError`` if a part is no plain LoRA, or their ranks exceed ``max_rank``.
    """
    for packed, _ in parts:
        _require_plain(packed)
    shares = [_shares(parts, layer) for layer in range(geometry.num_layers)]
    layout = _plan(shares, geometry, targets)
    rank = max((slot.b_rank for layer in layout.layers for slot in layer), default=0)
    if rank > max_rank:
        raise StageError(
            "rank_too_high",
            f"Together the adapters have rank {rank}; the limit is {max_rank}.",
            f"Combine adapters whose ranks add up to {max_rank} or less.",
        )
    all_ranks = parts[0][0].of_ranks is not None
    shape = (geometry.num_layer_groups, layout.num_pages, geometry.page_elems)
    sources = [_of_ranks(packed) for packed, _ in parts]
    data = memory.zeros((len(sources[0]), *shape) if all_ranks else shape, sources[0].dtype)
    for rank_data, *rank_sources in zip(data if all_ranks else [data], *sources, strict=True):
        for layer, slots in enumerate(layout.layers):
            group = geometry.layer_group(layer)
            pool_rows = factor_rows(rank_data[group], geometry.kv_dim, fp8=False)
            of_parts = [
                factor_rows(source[group], geometry.kv_dim, fp8=packed.layout.fp8_rows > 0)
                for (packed, _), source in zip(parts, rank_sources, strict=True)
            ]
            for slot in slots:
                _write(pool_rows, slot, shares[layer][slot.target], of_parts)
    return PackedAdapter(digest, rank, layout, data[0] if all_ranks else data, data if all_ranks else None)


def combined_bytes(parts: Sequence[PackedAdapter]) -> int:
    """Return an upper bound of the bytes of a combination."""
    return sum(packed.num_bytes * max(1, packed.layout.fp8_rows) for packed in parts)


def _of_ranks(packed: PackedAdapter) -> torch.Tensor:
    """Return an adapter's data as ``[ranks, layer groups, pages, page_elems]``."""
    return packed.data[None] if packed.of_ranks is None else packed.of_ranks


def _require_plain(packed: PackedAdapter) -> None:
    layout = packed.layout
    if layout.epilogues or layout.experts or layout.invocation_tokens or layout.embedding_layers is not None:
        raise StageError(
            "adapters_cannot_be_combined",
            f"{packed.digest[:19]} is more than LoRA on linear projections (DoRA, biases, invocation tokens, "
            "experts, or changes of embed_tokens or lm_head), of which there is no sum.",
            "Combine plain LoRA adapters, or call this one by itself.",
        )


def _shares(parts: Sequence[Weighted], layer: int) -> dict[str, list[_Share]]:
    shares: defaultdict[str, list[_Share]] = defaultdict(list)
    for part, (packed, weight) in enumerate(parts):
        for slot in packed.layout.layers[layer]:
            if slot.rank:
                shares[slot.target].append(_Share(part, slot, slot.scale * weight))
    return shares


def _plan(shares: Sequence[dict[str, list[_Share]]], geometry: PoolGeometry, targets: TargetShapes) -> AdapterLayout:
    layers, used = [], [0] * geometry.num_layer_groups
    for layer, by_target in enumerate(shares):
        modules = {
            target: ModuleLora(
                layer, target, sum(share.slot.b_rank for share in parts), 0.0, parts[0].scale or 1.0, "", ""
            )
            for target, parts in by_target.items()
        }
        group = geometry.layer_group(layer)
        slots, used[group] = plan_layer(modules, geometry.kv_dim, targets, used[group])
        layers.append(slots)
    return AdapterLayout(tuple(layers), -(-max(used) // geometry.rows_per_page))


def _write(
    pool_rows: torch.Tensor, slot: ModuleSlot, shares: Sequence[_Share], sources: Sequence[torch.Tensor]
) -> None:
    """Write one module for all ranks. There is one scale; where the parts' scales differ, the ratio goes into B."""
    kv_dim, done = pool_rows.shape[1], 0
    per_a, per_b = pool_rows_per_row(slot.in_features, kv_dim), pool_rows_per_row(slot.out_features, kv_dim)
    for share in shares:
        part, source = share.slot, sources[share.part]
        a = module_rows(source, part.a_row, part.rank, slot.in_features)
        b = module_rows(source, part.b_row, part.b_rank, slot.out_features)
        module_rows(pool_rows, slot.a_row + done * per_a, part.rank, slot.in_features).copy_(a)
        factor = share.scale / slot.scale
        b = b if factor == 1.0 else b.float() * factor
        # Rows of B are in the order of those of A: rank by rank, where each rank has some of them.
        for shard, rows in enumerate(b.split(part.rank)):
            first = shard * slot.rank + done
            module_rows(pool_rows, slot.b_row + first * per_b, part.rank, slot.out_features).copy_(rows)
        done += part.rank
