"""The kernels' tables of resident adapters, kept by index."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from lora_kernels.tables import MODULE_FIELDS, TARGETS, SlotTables

from .epilogue import EpilogueSlot
from .layout import TARGET_GROUPS, AdapterLayout, ModuleSlot

_INDEX = {target: index for index, target in enumerate(TARGETS)}
# A group's fused module takes the index of the first of several.
_INDEX |= {group[-1]: _INDEX[group[0]] for group in TARGET_GROUPS if group[-1] not in _INDEX}


class DeviceTable:
    """An allocator of rows of ``SlotTables``. Index 0 means no adapter."""

    def __init__(self, tables: SlotTables) -> None:
        self.tables = tables
        self._free = list(range(tables.pages.shape[0] - 1, 0, -1))

    @property
    def full(self) -> bool:
        return not self._free

    def take(self) -> int:
        """Return an unused index, to be filled by ``write``."""
        return self._free.pop()

    def write(self, index: int, layout: AdapterLayout, pages: list[int], sign: int = 1) -> None:
        """Describe an adapter to the kernels, in the order of the current stream. ``sign`` -1 subtracts its delta."""
        modules = np.zeros((self.tables.num_layers, len(TARGETS), MODULE_FIELDS), dtype=np.int32)
        scales = np.zeros((self.tables.num_layers, len(TARGETS)), dtype=np.float32)
        for layer, slots in enumerate(layout.layers):
            by_target = {slot.target: slot for slot in slots}
            for targets in TARGET_GROUPS:
                _describe_group(targets, by_target, modules[layer], scales[layer])
        for layer, epilogues in enumerate(layout.epilogues):
            _describe_epilogues(epilogues, modules[layer])
        of_modules = pages[: len(pages) - layout.embedding_layer_pages]  # kernels read no other pages
        self.tables.write(index, of_modules, torch.from_numpy(modules), torch.from_numpy(sign * scales))

    def give_back(self, index: int) -> None:
        """Free the index for use by another adapter."""
        self._free.append(index)


def _describe_group(
    targets: tuple[str, ...],
    by_target: dict[str, ModuleSlot],
    modules: npt.NDArray[np.int32],
    scales: npt.NDArray[np.float32],
) -> None:
    """Describe a group. Its rows of A are one block: absent targets point at its start, with rank 0."""
    present = [by_target[target] for target in targets if target in by_target]
    for target in targets if present else ():
        index, slot = _INDEX[target], by_target.get(target)
        if slot is None:
            modules[index, 0] = present[0].a_row
        else:
            modules[index, :3] = (slot.a_row, slot.b_row, slot.rank)
            scales[index] = slot.scale


def _describe_epilogues(slots: tuple[EpilogueSlot, ...], modules: npt.NDArray[np.int32]) -> None:
    for slot in slots:
        rows = (slot.factor_row, slot.offset_row)
        modules[_INDEX[slot.target], 3:] = [0 if row is None else 1 + row for row in rows]
