"""How large what an adapter adds to the base's matrices is."""

from __future__ import annotations

import torch

from .layout import TARGET_GROUPS, ModuleSlot, PackedAdapter, module_rows

Norms = dict[int, float]  # of a layer: index into ``TARGET_GROUPS`` -> squared Frobenius norm


def delta_norms(packed: PackedAdapter, kv_dim: int) -> list[Norms]:
    """Of each layer the squared norms of ``scale * B A``, by group. Groups that the adapter does not touch are absent.

    From the weights in the pool's dtype, as they are multiplied; of modules with an epilogue, as it was computed.
    """
    # Each rank has either some of its rows or, of each row, a part: what it adds has no element that another adds too.
    parts = [packed.data] if packed.of_ranks is None else packed.of_ranks.unbind()
    added: list[dict[str, float]] = [{} for _ in packed.layout.layers]
    for index, slots in enumerate(packed.layout.layers):
        rows = [part[index].view(-1, kv_dim) for part in parts]
        for slot in slots:
            if (index, slot.target) not in packed.added:
                added[index][slot.target] = slot.scale**2 * sum(_product_norm(part, slot) for part in rows)
    for (index, target), norm in packed.added.items():
        added[index][target] = norm
    return [_by_group(norms) for norms in added]


def _by_group(by_target: dict[str, float]) -> Norms:
    norms: Norms = {}
    for target, norm in by_target.items():
        group = next(index for index, targets in enumerate(TARGET_GROUPS) if target in targets)
        norms[group] = norms.get(group, 0.0) + norm
    return norms


def _product_norm(pool_rows: torch.Tensor, slot: ModuleSlot) -> float:
    """Of ``B A``, through products of rank by rank: trace(A^T B^T B A) is the sum of (B^T B) * (A A^T)."""
    a = module_rows(pool_rows, slot.a_row, slot.rank, slot.in_features).double()
    b = module_rows(pool_rows, slot.b_row, slot.rank, slot.out_features).double()
    return max(0.0, float(((b @ b.T) * (a @ a.T)).sum()))
