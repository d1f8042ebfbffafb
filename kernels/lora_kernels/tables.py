"""The LoRA kernels' tables of the adapters in the pool: tensors of fixed size.

The tensors are allocated once and changed in place, so that a captured CUDA graph keeps
reading the right adapters whatever is loaded or evicted after the capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Targets that read the same input are a group; their indices in every table are adjacent. Each group has as many as the
# family with most modules there: q, k, v; o; gate, up; down; a gated delta layer's inputs with its gates; its output;
# the router of a layer with experts; gate and up, and down, of an MLP beside them.
GROUP_SIZES = (3, 1, 2, 1, 6, 1, 2, 2, 1)
# Most targets of a group, for each of which the kernels have a constant.
MOST_TARGETS = max(GROUP_SIZES)
ALL_TARGETS = sum(GROUP_SIZES)
FIRST_TARGETS = tuple(sum(GROUP_SIZES[:group]) for group in range(len(GROUP_SIZES)))
# Fields of a module's entry: first pool row of A, first pool row of B, rank, and the first pool rows of the epilogue's
# factor and offset plus one (0: no such vector).
MODULE_FIELDS = 5
# Added to the first pool rows of A and B whose rows are in FP8 (E4M3). Such rows are counted in pool rows of ``kv_dim``
# FP8 elements, of which a page holds ``SlotTables.fp8_rows`` times as many.
FP8_ROWS = 1 << 30
# Modules of each expert of a layer: gate, up, down. Fields of such a module's entry: first pool row of A and the pool
# rows from one expert's A to the next one's (0: all experts have the same), the same two of B, and the rank.
EXPERT_MODULES = 3
EXPERT_FIELDS = 5
# Added to an expert's place in ``ResidencyTables`` if its rows are read from host memory.
HOST_ROWS = 1 << 30
# Bytes in which the distance of host memory from the pool is counted: kernels read as many at once.
HOST_UNIT = 16


@dataclass(frozen=True, slots=True)
class Group:
    """A group of targets that share their input: index of the first target, and output features of each."""

    name: str
    first_target: int
    in_features: int
    out_features: tuple[int, ...]


class ResidencyTables:
    """The tables of adapters of whose experts only some lie in the pool: where each expert's rows are.

    ``row_of [slots]`` is a slot's row in the other tables; 0: all of its experts lie in the pool, at equal distances.
    ``places [rows, layers, experts]`` are pool rows from the first expert's place in the packed adapter to the place
    where the expert's rows are now: in the adapter's pages, or, with ``HOST_ROWS`` added, in the packed adapter in host
    memory. ``host [rows, layers]`` is the distance of that layer there from the layer's pool, in ``HOST_UNIT`` bytes.
    Kernels read that memory through the bus, so any expert may be routed to at any time. They count the pairs of each
    expert in ``counts [rows, layers, experts]``.
    """

    def __init__(self, num_slots: int, rows: int, num_layers: int, experts: int, device: torch.device | str) -> None:
        self.row_of = torch.zeros(num_slots, dtype=torch.int32, device=device)
        self.places = torch.zeros(rows, num_layers, experts, dtype=torch.int32, device=device)
        self.counts = torch.zeros(rows, num_layers, experts, dtype=torch.int32, device=device)
        self.host = torch.zeros(rows, num_layers, dtype=torch.int64, device=device)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in (self.row_of, self.places, self.counts, self.host))


class SlotTables:
    """The device tables of all slots: each adapter's pages, and per layer and target its pool rows, rank and scale.

    Slot 0 always means "no adapter": its ranks are zero. Within a group the A rows of all targets are contiguous, in
    target order; an absent target has rank 0 and the pool row of the group's first row.
    """

    def __init__(
        self,
        num_slots: int,
        num_layers: int,
        max_pages: int,
        device: torch.device | str,
        *,
        experts: bool = False,
        fp8_rows: int = 0,
        residency: ResidencyTables | None = None,
    ) -> None:
        """Create tables without adapters. ``experts``: some layers of the model have experts.

        ``fp8_rows``: pool rows of FP8 elements in the bytes of one of the pool's dtype; 0: no adapter is in FP8.
        ``residency``: where experts lie of which only some are in the pool; None: they always all are.
        """
        self.fp8_rows = fp8_rows
        self.residency = residency
        self.num_layers = num_layers
        layers = num_layers if experts else 0
        entries = (num_slots, layers, EXPERT_MODULES)
        self.experts = torch.zeros(*entries, EXPERT_FIELDS, dtype=torch.int32, device=device)
        self.expert_scales = torch.zeros(*entries, dtype=torch.float32, device=device)
        self.pages = torch.zeros(num_slots, max_pages, dtype=torch.int32, device=device)
        self.modules = torch.zeros(num_slots, num_layers, ALL_TARGETS, MODULE_FIELDS, dtype=torch.int32, device=device)
        self.scales = torch.zeros(num_slots, num_layers, ALL_TARGETS, dtype=torch.float32, device=device)

    def write(
        self,
        slot: int,
        pages: Sequence[int],
        modules: torch.Tensor,
        scales: torch.Tensor,
        experts: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        """Point ``slot`` at an adapter: ``modules [layers, targets, 5]`` int32, ``scales [layers, targets]``.

        ``experts``: the same of its modules of experts, ``[layers, 3, 5]`` and ``[layers, 3]``; None: it has none.
        The write is ordered on the current stream: kernels launched before it read the old adapter, later ones the new.
        Raises ``ValueError`` for a slot that does not exist, or for more pages than a row holds.
        """
        if not 0 < slot < self.pages.shape[0]:
            raise ValueError(f"slot {slot} is outside 1 to {self.pages.shape[0] - 1}; slot 0 means no adapter")
        if len(pages) > self.pages.shape[1]:
            raise ValueError(f"an adapter of {len(pages)} pages does not fit into a table of {self.pages.shape[1]}")
        self.pages[slot, : len(pages)] = self._send(torch.tensor(pages, dtype=torch.int32))
        self.modules[slot] = self._send(modules.to(torch.int32))
        self.scales[slot] = self._send(scales.to(torch.float32))
        if experts is not None:
            self.experts[slot] = self._send(experts[0].to(torch.int32))
            self.expert_scales[slot] = self._send(experts[1].to(torch.float32))
        elif self.experts.shape[1]:
            self.experts[slot].zero_()
        if self.residency is not None:
            self.residency.row_of[slot] = 0

    def write_residency(
        self, slot: int, row: int, places: torch.Tensor, host: torch.Tensor, pages: Sequence[int]
    ) -> None:
        """Write where the experts of the adapter in a slot lie, after ``write``, and set their counts to zero.

        ``places [layers, experts]`` int32 and ``host [layers]`` int64, in ``row`` of ``ResidencyTables``.
        """
        assert self.residency is not None, "the tables have no places of experts"
        self.residency.counts[row].zero_()
        self.residency.host[row] = self._send(host)
        self.write_places(slot, row, places, pages)
        self.residency.row_of[slot] = row

    def write_places(self, slot: int, row: int, places: torch.Tensor, pages: Sequence[int]) -> None:
        """Change where experts lie, and the pages of their rows, in the order of the current stream."""
        assert self.residency is not None, "the tables have no places of experts"
        self.pages[slot, : len(pages)] = self._send(torch.tensor(pages, dtype=torch.int32))
        self.residency.places[row] = self._send(places)

    def _send(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy to the device from pinned memory: a copy from pageable memory makes the host wait for the stream."""
        device = self.pages.device
        return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
