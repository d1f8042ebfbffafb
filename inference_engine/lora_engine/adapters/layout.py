"""The layout of an adapter's weights in pool pages.

A LoRA module is a set of rows: ``rank`` rows of A (each ``in_features`` long) and ``rank``
rows of B transposed (each ``out_features`` long). A row starts on a pool row of ``kv_dim``
elements and takes as many pool rows as it needs; rows follow each other without gaps, modules
in a fixed order, so that A of q, k and v (which read the same input) are one block of rows.
Any rank and any mix of targets therefore wastes less than one page, plus the tail of a
pool row per row where a row's length is no multiple of ``kv_dim``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import AdapterManifest, ExpertLora, ModuleLora

from . import epilogue
from .embedding_pages import EmbeddingLayersLayout, EmbeddingLayersPlanner
from .epilogue import EpilogueSlot, Place
from .experts import ExpertFrames, ExpertSlot, plan_experts
from .targets import COLUMN_PARALLEL, TARGET_GROUPS, TargetShapes
from .tensors import pool_rows_per_row


@dataclass(frozen=True, slots=True)
class ModuleSlot:
    """The place of one module's rows: pool row offsets from the start of the adapter's pages.

    ``rank`` is the number of rows of A on this tensor-parallel rank. ``shards``: ranks that both factors are split
    over.
    """

    target: str
    rank: int
    scale: float
    a_row: int
    b_row: int
    in_features: int
    out_features: int
    shards: int = 1

    @property
    def b_rank(self) -> int:
        """Number of rows of B: the rows of A on all ranks that have some of them."""
        return self.rank * self.shards if self.target in COLUMN_PARALLEL else self.rank


# Ranks that a rank on experts adds to the price of a token: on Qwen3-30B-A3B a step with one such adapter of rank 16
# takes 1.17 to 1.19 times as long, with four 1.28 to 1.37 times (docs/performance.md).
EXPERT_RANKS = 2


@dataclass(frozen=True, slots=True)
class AdapterLayout:
    """The module slots of each layer in packing order; the same pages serve every layer group of layers.

    ``epilogues``: per layer, the vectors after them, ``experts`` the modules of experts after those; each empty for an
    adapter without any. ``embedding_layers``, if there
    are any, begin on a new page: the last ``embedding_layer_pages`` are only theirs. With ``invocation_tokens`` the
    adapter acts only from their last occurrence in a prompt on.

    ``frames``: where experts have factors of their own, the frames of their rows.

    ``fp8_rows``: the factors of ``layers`` and ``experts`` are in FP8, and their rows are counted in pool rows of FP8
    elements, so many of which lie in one of the pool's dtype; 0: the factors have the pool's dtype.
    """

    layers: tuple[tuple[ModuleSlot, ...], ...]
    num_pages: int
    embedding_layers: EmbeddingLayersLayout | None = None
    embedding_layer_pages: int = 0
    epilogues: tuple[tuple[EpilogueSlot, ...], ...] = ()
    invocation_tokens: tuple[int, ...] = ()
    experts: tuple[tuple[ExpertSlot, ...], ...] = ()
    fp8_rows: int = 0
    frames: ExpertFrames | None = None

    @property
    def vocab_size(self) -> int:
        """Number of tokens that the adapter's embedding has a row for; 0 if it adds none to the base's vocabulary."""
        layers = self.embedding_layers
        # Before its invocation tokens an adapter does not act, so its new tokens have no embedding there.
        if layers is None or layers.embedding is None or self.invocation_tokens:
            return 0
        return layers.embedding.vocab


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter ready to be copied into the pool.

    ``data`` is ``[num_layer_groups, num_pages, page_elems]`` in the pool's dtype, contiguous, in pinned memory when the
    pool is on a GPU. Where one process packs for several tensor-parallel ranks, ``of_ranks`` ``[ranks, …]`` has the
    data of all, the first of which is ``data``.
    """

    digest: str
    rank: int
    layout: AdapterLayout
    data: torch.Tensor
    of_ranks: torch.Tensor | None = None
    added: Mapping[Place, float] = field(default_factory=dict)  # squared norms, as in ``epilogue.Computed``

    @property
    def priced_rank(self) -> int:
        """The rank by which its tokens are priced: see ``EXPERT_RANKS``."""
        of_experts = max((slot.rank for layer in self.layout.experts for slot in layer), default=0)
        return self.rank + EXPERT_RANKS * of_experts

    @property
    def num_bytes(self) -> int:
        """Number of bytes for all ranks that it is packed for."""
        return (self.data if self.of_ranks is None else self.of_ranks).nbytes

    @property
    def num_pages(self) -> int:
        return self.layout.num_pages


def plan_layout(
    manifest: AdapterManifest, geometry: PoolGeometry, targets: TargetShapes, fp8_rows: int = 0
) -> AdapterLayout:
    """Assign pool rows to every module. ``fp8_rows``: as in ``AdapterLayout``."""
    by_layer: list[dict[str, ModuleLora]] = [{} for _ in range(geometry.num_layers)]
    for module in manifest.modules:
        by_layer[module.layer][module.target] = module
    vectors, outs = epilogue.vectors_of(manifest), {target: out for target, (_, out) in targets.shapes.items()}
    layers, epilogues, used = [], [], [0] * geometry.num_layer_groups
    for layer, modules in enumerate(by_layer):
        group = geometry.layer_group(layer)
        slots, end = plan_layer(modules, geometry.kv_dim, targets, used[group], fp8_rows)
        behind, used[group] = epilogue.plan(vectors.get(layer, {}), end, geometry.kv_dim, outs, targets.biased)
        layers.append(slots)
        epilogues.append(behind)
    experts: tuple[tuple[ExpertSlot, ...], ...] = ()
    frames, module_pages = None, -(-max(used) // geometry.rows_per_page)
    if manifest.experts and targets.experts is not None:
        of_experts: list[list[ExpertLora]] = [[] for _ in range(geometry.num_layers)]
        for lora in manifest.experts:
            of_experts[lora.layer].append(lora)
        experts, frames, module_pages = plan_experts(of_experts, used, geometry, targets.experts, fp8_rows)
    planner = EmbeddingLayersPlanner(geometry, module_pages * geometry.rows_per_page)
    embedding_layers = planner.plan(manifest.embedding_layers)
    num_pages = -(-planner.row // geometry.rows_per_page)
    behind_modules = tuple(epilogues) if any(epilogues) else ()
    return AdapterLayout(
        tuple(layers),
        num_pages,
        embedding_layers,
        num_pages - module_pages,
        behind_modules,
        manifest.invocation_tokens,
        experts,
        fp8_rows,
        frames,
    )


def plan_layer(
    modules: dict[str, ModuleLora], kv_dim: int, targets: TargetShapes, cursor: int = 0, fp8_rows: int = 0
) -> tuple[tuple[ModuleSlot, ...], int]:
    """Assign pool rows from ``cursor`` on to a layer's modules; return the slots and the next free row.

    With ``fp8_rows`` the slots count rows of FP8 elements.
    """
    slots: list[ModuleSlot] = []
    cursor *= max(1, fp8_rows)
    for group in TARGET_GROUPS:
        present = [(modules[t], targets.module(t, modules[t].rank)) for t in group if t in modules]
        a_rows = {}
        for module, shape in present:
            a_rows[module.target] = cursor
            cursor += shape.a_rows * pool_rows_per_row(shape.in_features, kv_dim)
        for module, shape in present:
            slots.append(
                ModuleSlot(
                    module.target, shape.a_rows, module.scale, a_rows[module.target], cursor, shape.in_features,
                    shape.out_features, targets.shards,
                )
            )  # fmt: skip
            cursor += shape.b_rows * pool_rows_per_row(shape.out_features, kv_dim)
    return tuple(slots), -(-cursor // max(1, fp8_rows))


__all__ = [
    "COLUMN_PARALLEL",
    "TARGET_GROUPS",
    "AdapterLayout",
    "ModuleSlot",
    "PackedAdapter",
    "TargetShapes",
    "plan_layer",
    "plan_layout",
    "pool_rows_per_row",
]
