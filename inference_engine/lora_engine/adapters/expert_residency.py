"""Some experts of an adapter lie in the pool, and the others are read from host memory.

A frame's pages have the same ids in every layer, but each layer group decides by itself which of its units lies there
(``ExpertFrames``). A unit in no frame is read from the packed adapter in host memory: by a kernel through the bus, so
that any routing is served at any time. What changes is the table of places, between two steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory.page_pool import PagePool, PoolGeometry
from lora_kernels.tables import HOST_ROWS, HOST_UNIT

from .device_copies import Arrival, DeviceCopies
from .experts import ExpertFrames
from .layout import PackedAdapter


class Move(NamedTuple):
    """The copy of a unit of a layer group from host memory into a frame."""

    group: int
    unit: int
    frame: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change between two steps: frames that are removed, others that are added with their pages, and copies.

    A copy's unit is read from host memory until ``Residents.settle``; so is the unit that it replaces from now on.
    """

    removed: tuple[int, ...] = ()
    added: tuple[tuple[int, tuple[int, ...]], ...] = ()
    moves: tuple[Move, ...] = ()


class ExpertResidency:
    """The frames of one adapter in the pool, and the units in them."""

    def __init__(
        self, packed: PackedAdapter, geometry: PoolGeometry, pages: list[int], index: int = 0, row: int = 0
    ) -> None:
        """Place as many of the first units as ``pages`` have room for.

        ``index`` and ``row`` are the adapter's in ``SlotTables`` and ``ResidencyTables``.
        """
        assert packed.layout.frames is not None, "the adapter's experts have no frames"
        self.packed, self.index, self.row = packed, index, row
        self.frames: ExpertFrames = packed.layout.frames
        self._geometry = geometry
        of_frames = self.frames.count * self.frames.pages
        behind = packed.num_pages - self.frames.first_page - of_frames
        count = (len(pages) - self.frames.first_page - behind) // self.frames.pages
        if count * self.frames.pages + self.frames.first_page + behind != len(pages):
            raise AssertionError(f"{len(pages)} pages are no whole number of frames of {packed.digest}")
        self.fixed_pages, self._behind = pages[: self.frames.first_page], pages[len(pages) - behind :]
        starts = range(self.frames.first_page, len(pages) - behind, self.frames.pages)
        self.pages_of = {frame: pages[start : start + self.frames.pages] for frame, start in enumerate(starts)}
        shape = geometry.num_layer_groups, self.frames.count
        self.frame_of = np.full(shape, -1, dtype=np.int32)  # of each unit; -1: it is in host memory
        self.unit_of = np.full(shape, -1, dtype=np.int32)  # in each frame; -1: none
        for group, units in enumerate(self.frames.units):
            first = min(units, count)
            self.frame_of[group, :first] = self.unit_of[group, :first] = np.arange(first)
        # Pairs of tokens with each unit that were counted lately, and those that torch's backend has counted.
        self.heat = np.zeros(shape, dtype=np.float64)
        self.counts = np.zeros((geometry.num_layers, self.frames.of_layer), dtype=np.int64)

    @property
    def pages(self) -> list[int]:
        """The adapter's pages, without frames that it has not."""
        frames = (page for frame in sorted(self.pages_of) for page in self.pages_of[frame])
        return [*self.fixed_pages, *frames, *self._behind]

    @property
    def frame_pages(self) -> int:
        """Number of pages of frames, which the adapter can give up."""
        return len(self.pages_of) * self.frames.pages

    @property
    def least_pages(self) -> int:
        """Number of pages without which the adapter cannot run."""
        return len(self.fixed_pages) + len(self._behind)

    @property
    def packed_pages(self) -> list[int]:
        """The page of each page of the packed adapter; 0, which nothing reads, where a frame is missing."""
        none = [0] * self.frames.pages
        frames = (page for frame in range(self.frames.count) for page in self.pages_of.get(frame, none))
        return [*self.fixed_pages, *frames, *self._behind]

    @property
    def kernel_pages(self) -> list[int]:
        """The packed adapter's pages that kernels read: without those of embeddings."""
        return self.packed_pages[: self.packed.num_pages - len(self._behind)]

    @property
    def units(self) -> int:
        """Number of units of the adapter's experts, over all layers."""
        return sum(self.frames.units)

    @property
    def residents(self) -> int:
        """Number of units in the pool."""
        return int((self.frame_of >= 0).sum())

    def add(self, frame: int, pages: list[int]) -> None:
        self.pages_of[frame] = pages

    def remove(self, frame: int) -> list[int]:
        """Take a frame away, and return its pages; the units in it are in host memory only."""
        for group in range(len(self.unit_of)):
            self.clear(group, frame)
        return self.pages_of.pop(frame)

    def clear(self, group: int, frame: int) -> None:
        """Empty a layer group's part of a frame."""
        if (unit := self.unit_of[group, frame]) >= 0:
            self.frame_of[group, unit] = self.unit_of[group, frame] = -1

    def put(self, move: Move) -> None:
        """Record that a copy is complete."""
        self.frame_of[move.group, move.unit] = move.frame
        self.unit_of[move.group, move.frame] = move.unit

    def places(self) -> torch.Tensor:
        """Return ``places`` of ``ResidencyTables`` for this adapter."""
        frames, experts = self.frames, np.arange(self.frames.of_layer)
        table = np.zeros((len(frames.first_units), frames.of_layer), dtype=np.int32)
        for layer, first in enumerate(frames.first_units):
            if first >= 0:
                of_frame = self.frame_of[self._geometry.layer_group(layer)][first + experts // frames.experts]
                there = ((of_frame - first) * frames.experts + experts % frames.experts) * frames.step
                table[layer] = np.where(of_frame >= 0, there, HOST_ROWS + experts * frames.step)
        return torch.from_numpy(table)

    def host_distances(self, pool: PagePool) -> torch.Tensor:
        """Return ``host`` of ``ResidencyTables`` for this adapter.

        Raises ``ValueError`` for memory that is unaligned, or that a GPU cannot read.
        """
        if pool.data.is_cuda and not self.packed.data.is_pinned():
            raise ValueError("a packed adapter must lie in page-locked memory, from which kernels read its experts")
        groups = [self._geometry.layer_group(layer) for layer in range(self._geometry.num_layers)]
        distances = [self.packed.data[g].data_ptr() - pool.data[g].data_ptr() for g in groups]
        if any(distance % HOST_UNIT for distance in distances):
            raise ValueError(f"a packed adapter must lie at a distance of the pool that {HOST_UNIT} bytes divide")
        return torch.tensor([distance // HOST_UNIT for distance in distances], dtype=torch.int64)

    def by_unit(self, counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return counts ``[layers, experts]`` by unit: ``[layer groups, units]``."""
        total = np.zeros(self.heat.shape)
        for layer, first in enumerate(self.frames.first_units):
            if first >= 0:
                of_units = counts[layer].reshape(-1, self.frames.experts).sum(axis=1)
                total[self._geometry.layer_group(layer), first : first + len(of_units)] = of_units
        return total

    def rows(self, pool: PagePool, layer: int) -> torch.Tensor:
        """Return the rows of the packed adapter ``[pool rows, kv_dim]`` of a layer's group: those in frames from the
        pool.
        """
        group, kv_dim = self._geometry.layer_group(layer), self._geometry.kv_dim
        data = self.packed.data[group].to(pool.data.device, copy=True)
        first = self.frames.first_page
        data[:first] = pool.layer(layer)[torch.tensor(self.fixed_pages, dtype=torch.int64, device=data.device)]
        for unit, frame in enumerate(self.frame_of[group]):
            if frame >= 0:
                start = first + unit * self.frames.pages
                data[start : start + self.frames.pages] = pool.layer(layer)[self.pages_of[int(frame)]]
        return data.view(-1, kv_dim)

    def count(self, layer: int, experts: torch.Tensor) -> None:
        """Count pairs with ``experts``, for a backend whose kernels do not."""
        self.counts[layer] += experts.flatten().bincount(minlength=self.frames.of_layer).cpu().numpy()

    def check(self) -> None:
        """Verify that units and frames agree. Raises ``AssertionError``."""
        for group, units in enumerate(self.frames.units):
            placed = {int(frame): unit for unit, frame in enumerate(self.frame_of[group]) if frame >= 0}
            filled = {frame: int(unit) for frame, unit in enumerate(self.unit_of[group]) if unit >= 0}
            if (
                placed != filled
                or not placed.keys() <= self.pages_of.keys()
                or max(placed.values(), default=-1) >= units
            ):
                raise AssertionError(f"units lie in {placed}, but frames {sorted(self.pages_of)} have {filled}")


def write_packed(pool: PagePool, residency: ExpertResidency) -> None:
    """Copy what a new adapter has pages for."""
    frames, data = residency.frames, residency.packed.data
    stop = frames.first_page + residency.frame_pages
    pages, behind = residency.pages, data.shape[1] - (frames.first_page + frames.count * frames.pages)
    for group in range(len(data)):
        pool.write_pages(group, pages[:stop], data[group, :stop])
        pool.write_pages(group, pages[stop:], data[group, data.shape[1] - behind :])


class ResidencyTable(Protocol):
    """A table in which kernels find experts."""

    def write_places(self, residency: ExpertResidency) -> None:
        """Tell the kernels where the experts lie, in the order of the current stream."""


class Residents:
    """The experts of adapters in one rank's pool; changes of them are in the order of its stream."""

    def __init__(self, pool: PagePool, table: ResidencyTable | None, copies: DeviceCopies) -> None:
        self._pool, self._table, self._copies = pool, table, copies
        self._moving: dict[ExpertResidency, _Moving] = {}

    def change(self, residency: ExpertResidency, change: Change) -> list[int]:
        """Begin a change, between two steps; return the pages of the removed frames, free in the order of the stream.

        Only one copy of an adapter's may run at a time.
        """
        moving = self._moving.get(residency)
        if moving is not None and change.removed:
            if moving.arrival is not None:  # into pages that are about to be another's
                moving.arrival.join()
            moving.moves = tuple(move for move in moving.moves if move.frame not in change.removed)
        freed = [page for frame in change.removed for page in residency.remove(frame)]
        for frame, pages in change.added:
            residency.add(frame, list(pages))
        for move in change.moves:
            residency.clear(move.group, move.frame)
        # Steps from now on read the units from host memory. Copies begin after the running step, which may read them.
        if self._table is not None:
            self._table.write_places(residency)
        if change.moves:
            assert moving is None, "a copy of the adapter's experts is still running"
            arrival = self._copies.start(lambda: self._copy(residency, change.moves))
            self._moving[residency] = _Moving(arrival, change.moves)
        return freed

    def moves(self, residency: ExpertResidency) -> bool:
        """Return whether copies have begun that are not settled."""
        return residency in self._moving

    def arrived(self, residency: ExpertResidency) -> bool:
        """Return whether copies can be settled without a wait."""
        moving = self._moving.get(residency)
        return moving is not None and (moving.arrival is None or moving.arrival.done())

    def settle(self, residency: ExpertResidency) -> int:
        """Let steps from now on read the copied units from the pool; return how many there were."""
        moving = self._moving.pop(residency)
        if moving.arrival is not None:
            moving.arrival.join()
        for move in moving.moves:
            residency.put(move)
        if self._table is not None:
            self._table.write_places(residency)
        return len(moving.moves)

    def forget(self, residency: ExpertResidency) -> Arrival | None:
        """Abandon the adapter's copies before its pages are freed; return the running one, which reads host memory."""
        moving = self._moving.pop(residency, None)
        if moving is None or moving.arrival is None:
            return None
        moving.arrival.join()
        return moving.arrival

    def _copy(self, residency: ExpertResidency, moves: Iterable[Move]) -> None:
        frames, data = residency.frames, residency.packed.data
        for move in moves:
            start = frames.first_page + move.unit * frames.pages
            pages = residency.pages_of[move.frame]
            self._pool.write_pages(move.group, pages, data[move.group, start : start + frames.pages])


@dataclass(slots=True)
class _Moving:
    arrival: Arrival | None
    moves: tuple[Move, ...] = field(default=())
