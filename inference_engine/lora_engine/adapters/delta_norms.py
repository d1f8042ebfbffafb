"""The norms of what an adapter adds to the base's matrices."""

from __future__ import annotations

import torch

from lora_engine.memory.page_pool import PoolGeometry

from . import experts
from .layout import COLUMN_PARALLEL, TARGET_GROUPS, ModuleSlot, PackedAdapter
from .targets import EXPERTS_GROUP, REPLICATED
from .tensors import factor_rows, module_rows

# For a layer: index into ``TARGET_GROUPS``, or ``EXPERTS_GROUP`` -> squared Frobenius norm.
Norms = dict[int, float]


def delta_norms(packed: PackedAdapter, geometry: PoolGeometry) -> list[Norms]:
    """Return for each layer the squared norms of ``scale * B A`` by group, without groups that the adapter does not
    touch.

    They are of the weights in the pool's dtype, as they are multiplied. Norms of modules with an epilogue were computed
    when they were packed.
    """
    parts = [packed.data] if packed.of_ranks is None else packed.of_ranks.unbind()
    added: list[dict[str, float]] = [{} for _ in packed.layout.layers]
    for index, slots in enumerate(packed.layout.layers):
        fp8 = packed.layout.fp8_rows > 0
        rows = [factor_rows(part[geometry.layer_group(index)], geometry.kv_dim, fp8=fp8) for part in parts]
        for slot in slots:
            if (index, slot.target) not in packed.added:
                added[index][slot.target] = slot.scale**2 * _product_norm(rows, slot)
    for (index, target), norm in packed.added.items():
        added[index][target] = norm
    norms = [_by_group(by_target) for by_target in added]
    for index, modules in enumerate(packed.layout.experts):
        if modules:
            fp8 = packed.layout.fp8_rows > 0
            rows = [factor_rows(part[geometry.layer_group(index)], geometry.kv_dim, fp8=fp8) for part in parts]
            norms[index][EXPERTS_GROUP] = experts.delta_norm(modules, rows)
    return norms


def _by_group(by_target: dict[str, float]) -> Norms:
    norms: Norms = {}
    for target, norm in by_target.items():
        group = next(index for index, targets in enumerate(TARGET_GROUPS) if target in targets)
        norms[group] = norms.get(group, 0.0) + norm
    return norms


def _product_norm(parts: list[torch.Tensor], slot: ModuleSlot) -> float:
    """Return the squared norm of ``B A`` by rank-by-rank products: trace(A^T B^T B A) is the sum of (B^T B) * (A A^T).

    A factor that is split by features is summed over the ranks; one that is split by rows is concatenated.
    """
    parts, column = parts[:1] if slot.target in REPLICATED else parts, slot.target in COLUMN_PARALLEL
    all_a = [module_rows(part, slot.a_row, slot.rank, slot.in_features).double() for part in parts]
    all_b = [module_rows(part, slot.b_row, slot.b_rank, slot.out_features).double() for part in parts]
    if column:
        a = torch.cat(all_a) if slot.shards > 1 else all_a[0]
        products = _squared([a]), _squared(all_b)
    else:
        products = _squared(all_a), _squared(all_b if slot.shards > 1 else all_b[:1])
    return max(0.0, float((products[0] * products[1]).sum()))


def _squared(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return ``M M^T`` of a matrix whose columns are split over ``parts``."""
    return torch.stack([part @ part.T for part in parts]).sum(0)
