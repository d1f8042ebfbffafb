"""The kernels' tables of resident adapters, kept by index."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory.page_pool import PagePool
from lora_engine.memory.pinned import to_device
from lora_kernels.tables import ALL_TARGETS, EXPERT_FIELDS, FIRST_TARGETS, FP8_ROWS, MODULE_FIELDS, SlotTables

from .epilogue import EpilogueSlot
from .expert_policy import CountsReading
from .expert_residency import ExpertResidency
from .experts import MODULES
from .layout import TARGET_GROUPS, AdapterLayout, ModuleSlot


class DeviceTable:
    """An allocator of rows of ``SlotTables``. Index 0 means no adapter."""

    def __init__(self, tables: SlotTables, targets: Container[str]) -> None:
        """Create the table of a base model that has ``targets``."""
        self.tables = tables
        # By group, the index of each target that the base has.
        self._groups = [
            {target: first + place for place, target in enumerate(target for target in group if target in targets)}
            for first, group in zip(FIRST_TARGETS, TARGET_GROUPS, strict=True)
        ]
        self._free = list(range(tables.pages.shape[0] - 1, 0, -1))
        residency = tables.residency
        self._free_rows = list(range(len(residency.places) - 1, 0, -1)) if residency is not None else []

    @property
    def full(self) -> bool:
        return not self._free

    @property
    def residencies_full(self) -> bool:
        """True if no more adapters can have only some of their experts in the pool."""
        return not self._free_rows

    def take_residency(self) -> int:
        """Return an unused row of ``ResidencyTables``, to be filled by ``write_residency``."""
        return self._free_rows.pop()

    def give_back_residency(self, row: int) -> None:
        """Free a row of ``ResidencyTables``."""
        self._free_rows.append(row)

    def write_residency(self, residency: ExpertResidency, pool: PagePool) -> None:
        """Tell the kernels where the experts lie of an adapter that is described by ``write``."""
        host, pages = residency.host_distances(pool), residency.kernel_pages
        self.tables.write_residency(residency.index, residency.row, residency.places(), host, pages)

    def write_places(self, residency: ExpertResidency) -> None:
        """Tell the kernels where the experts lie now: in other pages, or in host memory."""
        self.tables.write_places(residency.index, residency.row, residency.places(), residency.kernel_pages)

    def read_counts(self, rows: list[int]) -> CountsReading:
        """Begin to read, and reset, the kernels' counts of the rows."""
        assert self.tables.residency is not None, "the tables count nothing"
        counts = self.tables.residency.counts
        index = to_device(torch.tensor(rows), counts.device)
        reading = CountsReading(counts[index])
        counts[index] = 0
        return reading

    def take(self) -> int:
        """Return an unused index, to be filled by ``write``."""
        return self._free.pop()

    def write(self, index: int, layout: AdapterLayout, pages: list[int], sign: int = 1) -> None:
        """Describe an adapter to the kernels, in the order of the current stream. ``sign`` -1 subtracts its delta."""
        modules = np.zeros((self.tables.num_layers, ALL_TARGETS, MODULE_FIELDS), dtype=np.int32)
        scales = np.zeros((self.tables.num_layers, ALL_TARGETS), dtype=np.float32)
        first = FP8_ROWS if layout.fp8_rows else 0
        for layer, slots in enumerate(layout.layers):
            by_target = {slot.target: slot for slot in slots}
            for group in self._groups:
                _describe_group(group, by_target, modules[layer], scales[layer], first)
        for layer, epilogues in enumerate(layout.epilogues):
            self._describe_epilogues(epilogues, modules[layer])
        of_modules = pages[: len(pages) - layout.embedding_layer_pages]  # kernels read no other pages
        experts = _experts(layout, sign) if layout.experts else None
        self.tables.write(index, of_modules, torch.from_numpy(modules), torch.from_numpy(sign * scales), experts)

    def give_back(self, index: int) -> None:
        """Free the index for use by another adapter."""
        self._free.append(index)

    def _describe_epilogues(self, slots: tuple[EpilogueSlot, ...], modules: npt.NDArray[np.int32]) -> None:
        for slot in slots:
            index = next(group[slot.target] for group in self._groups if slot.target in group)
            modules[index, 3:] = [0 if row is None else 1 + row for row in (slot.factor_row, slot.offset_row)]


def _experts(layout: AdapterLayout, sign: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Describe the modules of experts, as ``SlotTables.write`` says."""
    sizes = len(layout.experts), len(MODULES)
    first = FP8_ROWS if layout.fp8_rows else 0
    modules, scales = torch.zeros(*sizes, EXPERT_FIELDS, dtype=torch.int32), torch.zeros(sizes)
    for layer, slots in enumerate(layout.experts):
        for slot in slots:
            entry = MODULES.index(slot.module)
            rows = first + slot.a_row, slot.a_step, first + slot.b_row, slot.b_step
            modules[layer, entry] = torch.tensor([*rows, slot.rank])
            scales[layer, entry] = sign * slot.scale
    return modules, scales


def _describe_group(
    group: dict[str, int],
    by_target: dict[str, ModuleSlot],
    modules: npt.NDArray[np.int32],
    scales: npt.NDArray[np.float32],
    first: int,
) -> None:
    """Describe a group; ``first`` is added to the pool rows of its factors.

    Its rows of A are one block: absent targets point at its start, with rank 0.
    """
    present = [by_target[target] for target in group if target in by_target]
    for target, index in group.items() if present else ():
        slot = by_target.get(target)
        if slot is None:
            modules[index, 0] = first + present[0].a_row
        else:
            modules[index, :3] = (first + slot.a_row, first + slot.b_row, slot.rank)
            scales[index] = slot.scale
