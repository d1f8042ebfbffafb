"""Packing turns files on disk into an adapter for this engine's pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Protocol

import torch

from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import (
    WEIGHTS_FILE,
    AdapterLimits,
    AdapterManifest,
    BaseGeometry,
    FormatError,
    SafetensorsFile,
    inspect_adapter,
)

from . import epilogue
from .combining import Weighted, combine
from .delta_norms import Norms, delta_norms
from .embedding_pages import BaseEmbeddingLayers, against_base, pack_embedding_layers
from .epilogue import BaseModules
from .experts import pack_experts
from .fp8_factors import quantise_factors
from .host_memory import HostMemory
from .layout import AdapterLayout, ModuleSlot, PackedAdapter, TargetShapes, plan_layout
from .taken_out import factors
from .tensors import factor_rows, module_rows


class Packer(Protocol):
    """A packer that checks and packs adapters for one engine."""

    limits: AdapterLimits

    def pack(
        self, digest: str, folder: Path, *, check_finite: bool = False, reserve: Callable[[int], None] = lambda _: None
    ) -> PackedAdapter:
        """Check an adapter against the base model and read its weights. ``check_finite``: check every value too.

        ``reserve`` is called before memory is allocated, with the bytes that the packed adapter will take there. Takes
        time: call it off the step thread. Raises ``StageError``, ``OSError``, and what ``reserve`` raises.
        """

    def combine(self, digest: str, parts: Sequence[Weighted]) -> PackedAdapter:
        """Combine several adapters into one of at most their total bytes. Raises ``StageError``."""

    def delta_norms(self, packed: PackedAdapter) -> list[Norms]:
        """Return for each layer the squared norms of what it adds to the base's matrices. Takes as long as ``pack``."""


class PoolPacker:
    """A packer into the layout and dtype of a page pool, in ``memory``, which is page-locked if the pool is
    on a GPU.
    """

    def __init__(
        self,
        base: BaseGeometry,
        limits: AdapterLimits,
        geometry: PoolGeometry,
        targets: TargetShapes,
        dtype: torch.dtype,
        memory: HostMemory,
        embedding_layers: BaseEmbeddingLayers | None = None,
        pool_pages: int = 0,
        modules: BaseModules | None = None,
        *,
        fp8: bool = False,
        partial: bool = False,
    ) -> None:
        """Create the packer. Rank 0 of several packs for all of them.

        ``embedding_layers`` are the base's, to compare saved rows with; None skips that. ``pool_pages`` is the size of
        the pool, 0 for no limit. ``modules`` are the base's, without which adapters that need them (DoRA, biases,
        OLoRA) cannot be packed. ``fp8``: factors of LoRA are in FP8. ``partial``: experts may lie outside the pool.
        """
        self._partial = partial
        self._fp8 = fp8
        self._embedding_layers = embedding_layers
        self._pool_pages = pool_pages
        self.limits = limits
        self._base = base
        self._geometry = geometry
        self._targets = targets
        self._dtype = dtype
        self._memory = memory
        self._modules = modules

    def pack(
        self, digest: str, folder: Path, *, check_finite: bool = False, reserve: Callable[[int], None] = lambda _: None
    ) -> PackedAdapter:
        report = inspect_adapter(folder, self._base, self.limits, check_finite=check_finite)
        if report.manifest is None:
            first = report.problems[0]
            others = f" ({report.problem_count - 1} more problems)" if report.problem_count > 1 else ""
            raise StageError(first.code, first.message + others, first.fix)
        manifest, geometry, targets = report.manifest, self._geometry, self._targets
        try:
            weights = SafetensorsFile.open(folder / WEIGHTS_FILE, self.limits)
            if manifest.embedding_layers and self._embedding_layers is not None:
                manifest = against_base(manifest, weights, self._embedding_layers)
            fp8_rows = self._dtype.itemsize if self._fp8 and (manifest.modules or manifest.experts) else 0
            layout = plan_layout(manifest, geometry, targets, fp8_rows)
            self._require_room(layout)
            shape = (geometry.num_layer_groups, layout.num_pages, geometry.page_elems)
            reserve(prod(shape) * self._dtype.itemsize * targets.world)
            # The memory is free again with this tensor, not with its parts.
            data = self._memory.zeros((targets.world, *shape) if targets.world > 1 else shape, self._dtype)
            parts = dict(enumerate(data if targets.world > 1 else [data]))  # by rank
            layout = self._write_modules(manifest, layout, weights, parts)
            added = epilogue.pack(manifest, weights, layout.epilogues, parts, geometry, targets, self._modules)
            if layout.experts and targets.experts is not None:
                experts = pack_experts(
                    manifest.experts, layout.experts, weights, parts, geometry, targets.experts, targets.world,
                    fp8=fp8_rows > 0,
                )  # fmt: skip
                layout = replace(layout, experts=experts)
            if layout.embedding_layers is not None:
                for part in parts.values():  # every rank has both embedding layers in full
                    pack_embedding_layers(
                        manifest.embedding_layers, layout.embedding_layers, weights, part, geometry.kv_dim
                    )
        except FormatError as error:  # the file changed after it was inspected
            raise StageError(error.code, error.message, error.fix) from None
        of_ranks = data if targets.world > 1 else None
        return PackedAdapter(digest, manifest.rank, layout, parts[0], of_ranks, added)

    def _write_modules(
        self,
        manifest: AdapterManifest,
        layout: AdapterLayout,
        weights: SafetensorsFile,
        parts: Mapping[int, torch.Tensor],
    ) -> AdapterLayout:
        """Write each rank's factors into its part. Returns the layout, with the scales of factors in FP8."""
        names, layers = {(m.layer, m.target): m for m in manifest.modules}, list[tuple[ModuleSlot, ...]]()
        for layer, slots in enumerate(layout.layers):
            written = []
            for slot in slots:
                order = self._targets.interleaved.get(slot.target)
                a, b = factors(names[layer, slot.target], weights, self._modules, order)
                b = b.T
                if layout.fp8_rows:
                    a, b, scale = quantise_factors(a, b)
                    slot = replace(slot, scale=slot.scale * scale)
                for rank, part in parts.items():
                    group = part[self._geometry.layer_group(layer)]
                    pool_rows = factor_rows(group, self._geometry.kv_dim, fp8=layout.fp8_rows > 0)
                    shard_a, shard_b = self._targets.part(slot.target, a, b, rank)
                    module_rows(pool_rows, slot.a_row, *shard_a.shape).copy_(shard_a)
                    module_rows(pool_rows, slot.b_row, *shard_b.shape).copy_(shard_b)
                written.append(slot)
            layers.append(tuple(written))
        return replace(layout, layers=tuple(layers))

    def _require_room(self, layout: AdapterLayout) -> None:
        pages, page_bytes = layout.num_pages, self._geometry.page_bytes(self._dtype)
        if self._partial and layout.frames is not None:
            pages -= layout.frames.count * layout.frames.pages
        if self._pool_pages and pages >= self._pool_pages - 1:
            raise StageError(
                "adapter_too_large_for_pool",
                f"The adapter takes {pages * page_bytes >> 20} MiB on the device, but this host's pool has "
                f"{self._pool_pages * page_bytes >> 20} MiB, for all adapters and requests.",
                "Train fewer modules (experts, or whole matrices by modules_to_save) or a lower rank, or ask the "
                "operator for a larger pool (--pool-mb, --gpu-memory-fraction), --adapter-dtype fp8 or, for experts, "
                "--expert-residency auto.",
            )

    def combine(self, digest: str, parts: Sequence[Weighted]) -> PackedAdapter:
        return combine(digest, parts, self._geometry, self._targets, self._memory, self.limits.max_rank)

    def delta_norms(self, packed: PackedAdapter) -> list[Norms]:
        return delta_norms(packed, self._geometry)
