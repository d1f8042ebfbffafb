"""From files on disk to an adapter packed for this engine's pool."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

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

from .delta_norms import Norms, delta_norms
from .errors import StageError
from .host_memory import HostMemory
from .layout import PackedAdapter, TargetShapes, pack_adapter, plan_layout


class Packer(Protocol):
    """Checks and packs adapters for one engine."""

    limits: AdapterLimits

    def inspect(self, folder: Path, *, check_finite: bool) -> AdapterManifest:
        """Validate against the base model. Raises ``StageError``."""

    def num_bytes(self, manifest: AdapterManifest) -> int:
        """What the packed adapter will take in host memory."""

    def pack(self, digest: str, folder: Path, manifest: AdapterManifest) -> PackedAdapter:
        """Read the weights. Takes time and memory; call it off the step thread. Raises ``StageError``, ``OSError``."""

    def delta_norms(self, packed: PackedAdapter) -> list[Norms]:
        """Of each layer, the squared norms of what it adds to the base's matrices. Takes time, as ``pack`` does."""


class PoolPacker:
    """Packs into the layout and dtype of a page pool; in ``memory``, which is page-locked if the pool is on a GPU."""

    def __init__(
        self,
        base: BaseGeometry,
        limits: AdapterLimits,
        geometry: PoolGeometry,
        targets: TargetShapes,
        dtype: torch.dtype,
        memory: HostMemory,
    ) -> None:
        """Rank 0 of several packs for all of them."""
        self.limits = limits
        self._base = base
        self._geometry = geometry
        self._targets = targets
        self._dtype = dtype
        self._memory = memory

    def inspect(self, folder: Path, *, check_finite: bool) -> AdapterManifest:
        report = inspect_adapter(folder, self._base, self.limits, check_finite=check_finite)
        if report.manifest is None:
            first = report.problems[0]
            others = f" ({report.problem_count - 1} more problems)" if report.problem_count > 1 else ""
            raise StageError(first.code, first.message + others, first.fix)
        return report.manifest

    def num_bytes(self, manifest: AdapterManifest) -> int:
        pages = plan_layout(manifest, self._geometry, self._targets).num_pages
        return pages * self._geometry.page_bytes(self._dtype) * self._targets.world

    def pack(self, digest: str, folder: Path, manifest: AdapterManifest) -> PackedAdapter:
        try:
            weights = SafetensorsFile.open(folder / WEIGHTS_FILE, self.limits)
            return pack_adapter(
                digest,
                manifest,
                weights,
                self._geometry,
                self._targets,
                self._dtype,
                self._memory,
                all_ranks=self._targets.world > 1,
            )
        except FormatError as error:  # it was right a moment ago, when it was inspected
            raise StageError(error.code, error.message, error.fix) from None

    def delta_norms(self, packed: PackedAdapter) -> list[Norms]:
        return delta_norms(packed, self._geometry.kv_dim)
