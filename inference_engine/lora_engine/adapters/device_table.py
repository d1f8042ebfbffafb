"""The kernels' tables of resident adapters, kept by index."""

from __future__ import annotations

import torch

from lora_kernels.tables import MODULE_FIELDS, TARGETS, SlotTables

from .layout import TARGET_GROUPS, AdapterLayout, ModuleSlot


class DeviceTable:
    """Hands out rows of ``SlotTables``. Index 0 means no adapter."""

    def __init__(self, tables: SlotTables) -> None:
        self.tables = tables
        self._free = list(range(tables.pages.shape[0] - 1, 0, -1))

    @property
    def full(self) -> bool:
        return not self._free

    def add(self, layout: AdapterLayout, pages: list[int]) -> int:
        index = self._free.pop()
        modules = torch.zeros(self.tables.num_layers, len(TARGETS), MODULE_FIELDS, dtype=torch.int32)
        scales = torch.zeros(self.tables.num_layers, len(TARGETS))
        for layer, slots in enumerate(layout.layers):
            by_target = {slot.target: slot for slot in slots}
            for targets in TARGET_GROUPS:
                self._describe_group(layer, targets, by_target, modules, scales)
        self.tables.write(index, pages, modules, scales)
        return index

    def remove(self, index: int) -> None:
        self._free.append(index)

    @staticmethod
    def _describe_group(
        layer: int,
        targets: tuple[str, ...],
        by_target: dict[str, ModuleSlot],
        modules: torch.Tensor,
        scales: torch.Tensor,
    ) -> None:
        """A group's rows of A are one block: absent targets point at its start, with rank 0."""
        present = [by_target[target] for target in targets if target in by_target]
        if not present:
            return
        for target in targets:
            index, slot = TARGETS.index(target), by_target.get(target)
            if slot is None:
                modules[layer, index, 0] = present[0].a_chunk
            else:
                modules[layer, index] = torch.tensor([slot.a_chunk, slot.b_chunk, slot.rank], dtype=torch.int32)
                scales[layer, index] = slot.scale
