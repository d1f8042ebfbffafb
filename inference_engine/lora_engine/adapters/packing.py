"""Packing turns files on disk into an adapter for this engine's pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.peft_format import (
    WEIGHTS_FILE,
    AdapterLimits,
    BaseGeometry,
    FormatError,
    SafetensorsFile,
    inspect_adapter,
)

from .combining import Weighted, combine
from .delta_norms import Norms, delta_norms
from .embedding_pages import BaseEmbeddingLayers, against_base
from .epilogue import BaseModules
from .host_memory import HostMemory
from .layout import AdapterLayout, PackedAdapter, TargetShapes, pack_adapter, plan_layout


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
        manifest = report.manifest
        try:
            weights = SafetensorsFile.open(folder / WEIGHTS_FILE, self.limits)
            if manifest.embedding_layers and self._embedding_layers is not None:
                manifest = against_base(manifest, weights, self._embedding_layers)
            fp8_rows = self._dtype.itemsize if self._fp8 else 0
            layout = plan_layout(manifest, self._geometry, self._targets, fp8_rows)
            self._require_room(layout)
            reserve(layout.num_pages * self._geometry.page_bytes(self._dtype) * self._targets.world)
            return pack_adapter(
                digest,
                manifest,
                weights,
                self._geometry,
                self._targets,
                self._dtype,
                self._memory,
                self._modules,
                all_ranks=self._targets.world > 1,
                fp8=self._fp8,
            )
        except FormatError as error:  # the file changed after it was inspected
            raise StageError(error.code, error.message, error.fix) from None

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
