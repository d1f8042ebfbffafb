"""How an adapter's weights lie in pool pages.

A LoRA module is a set of rows: ``rank`` rows of A (each ``in_features`` long) and ``rank``
rows of B transposed (each ``out_features`` long). A row starts on a pool row of ``kv_dim``
elements and takes as many pool rows as it needs; rows follow each other without gaps, modules
in a fixed order, so that A of q, k and v (which read the same input) are one block of rows.
Any rank and any mix of targets therefore wastes less than one page, plus the tail of a
pool row per row where a row's length is no multiple of ``kv_dim``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import AdapterManifest, ModuleLora, SafetensorsFile

from .ends import EndsLayout, EndsPlanner, pack_ends
from .host_memory import HostMemory, PageableMemory
from .tensors import pool_rows_per_row, read_tensor

# Targets that read the same input, and are therefore shrunk together.
# A model that has the last name of a group as one module has none of the others.
TARGET_GROUPS = (
    ("q_proj", "k_proj", "v_proj", "qkv_proj"), ("o_proj",), ("gate_proj", "up_proj", "gate_up_proj"), ("down_proj",),
)  # fmt: skip
COLUMN_PARALLEL = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"})


@dataclass(frozen=True, slots=True)
class TargetShapes:
    """``(in_features, out_features)`` of each target on this rank, after sharding."""

    shapes: dict[str, tuple[int, int]]
    rank: int = 0
    world: int = 1


@dataclass(frozen=True, slots=True)
class ModuleSlot:
    """Where one module's rows lie: pool row offsets from the start of the adapter's pages."""

    target: str
    rank: int
    scale: float
    a_row: int
    b_row: int
    in_features: int
    out_features: int


@dataclass(frozen=True, slots=True)
class AdapterLayout:
    """Per layer, the module slots in packing order; the same pages serve every layer.

    ``ends``, if there are any, begin on a page of their own: the last ``end_pages`` are only theirs.
    """

    layers: tuple[tuple[ModuleSlot, ...], ...]
    num_pages: int
    ends: EndsLayout | None = None
    end_pages: int = 0


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter ready to be copied into the pool.

    ``data`` is ``[num_layers, num_pages, page_elems]`` in the pool's dtype, contiguous, in
    pinned memory when the pool is on a GPU. ``of_ranks`` ``[ranks, …]`` are those of all tensor-parallel ranks, the
    first of which is ``data``, where one process packs for several.
    """

    digest: str
    rank: int
    layout: AdapterLayout
    data: torch.Tensor
    of_ranks: torch.Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """For all ranks that it is packed for."""
        return (self.data if self.of_ranks is None else self.of_ranks).nbytes

    @property
    def num_pages(self) -> int:
        return self.layout.num_pages


def plan_layout(manifest: AdapterManifest, geometry: PoolGeometry, targets: TargetShapes) -> AdapterLayout:
    """Assign every module its pool rows."""
    by_layer: list[dict[str, ModuleLora]] = [{} for _ in range(geometry.num_layers)]
    for module in manifest.modules:
        by_layer[module.layer][module.target] = module
    layers, max_pool_rows = [], 0
    for modules in by_layer:
        slots, used = _plan_layer(modules, geometry.kv_dim, targets)
        layers.append(slots)
        max_pool_rows = max(max_pool_rows, used)
    module_pages = -(-max_pool_rows // geometry.rows_per_page)
    planner = EndsPlanner(geometry, module_pages * geometry.rows_per_page)
    ends = planner.plan(manifest.ends)
    num_pages = -(-planner.row // geometry.rows_per_page)
    return AdapterLayout(tuple(layers), num_pages, ends, num_pages - module_pages)


def pack_adapter(
    digest: str,
    manifest: AdapterManifest,
    weights: SafetensorsFile,
    geometry: PoolGeometry,
    targets: TargetShapes,
    dtype: torch.dtype,
    memory: HostMemory | None = None,
    *,
    all_ranks: bool = False,
) -> PackedAdapter:
    """Read an adapter's tensors (already validated) into the pool's layout and dtype; on rank 0, for ``all_ranks``."""
    layout = plan_layout(manifest, geometry, targets)
    ranks = range(targets.world) if all_ranks else [targets.rank]
    shape = (geometry.num_layers, layout.num_pages, geometry.page_elems)
    data = (memory or PageableMemory()).zeros((len(ranks), *shape) if all_ranks else shape, dtype)
    names = {(m.layer, m.target): m for m in manifest.modules}
    for layer, slots in enumerate(layout.layers):
        for slot in slots:
            module = names[layer, slot.target]
            a, b = read_tensor(weights, module.a_name), read_tensor(weights, module.b_name).T
            for part, rank in zip(data if all_ranks else [data], ranks, strict=True):
                pool_rows = part[layer].view(-1, geometry.kv_dim)
                column = slot.target in COLUMN_PARALLEL
                _write_rows(pool_rows, slot.a_row, a if column else _shard(a, rank, targets.world))
                _write_rows(pool_rows, slot.b_row, _shard(b, rank, targets.world) if column else b)
    if layout.ends is not None:
        for part in data if all_ranks else [data]:  # every rank has both ends whole
            pack_ends(manifest.ends, layout.ends, weights, part, geometry.kv_dim)
    if all_ranks:
        return PackedAdapter(digest, manifest.rank, layout, data[0], data)
    return PackedAdapter(digest, manifest.rank, layout, data)


def module_rows(pool_rows: torch.Tensor, pool_row: int, count: int, features: int) -> torch.Tensor:
    """``[count, features]`` view of rows that start at ``pool_row``; ``pool_rows`` is ``[pool rows, kv_dim]``."""
    per_row = pool_rows_per_row(features, pool_rows.shape[1])
    return pool_rows[pool_row : pool_row + count * per_row].view(count, per_row * pool_rows.shape[1])[:, :features]


def _plan_layer(
    modules: dict[str, ModuleLora], kv_dim: int, targets: TargetShapes
) -> tuple[tuple[ModuleSlot, ...], int]:
    slots: list[ModuleSlot] = []
    cursor = 0
    for group in TARGET_GROUPS:
        present = [modules[target] for target in group if target in modules]
        a_rows = {}
        for module in present:
            a_rows[module.target] = cursor
            cursor += module.rank * pool_rows_per_row(targets.shapes[module.target][0], kv_dim)
        for module in present:
            in_features, out_features = targets.shapes[module.target]
            slots.append(
                ModuleSlot(
                    module.target, module.rank, module.scale, a_rows[module.target], cursor, in_features, out_features
                )
            )
            cursor += module.rank * pool_rows_per_row(out_features, kv_dim)
    return tuple(slots), cursor


def _shard(rows: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """A rank's slice of each row: B of a column-parallel layer, A of a row-parallel one."""
    width = rows.shape[1] // world
    return rows[:, rank * width : (rank + 1) * width]


def _write_rows(pool_rows: torch.Tensor, pool_row: int, rows: torch.Tensor) -> None:
    count, features = rows.shape
    module_rows(pool_rows, pool_row, count, features).copy_(rows)
