"""Which adapters are in the device pool, and the views through which a batch reads them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from lora_engine.memory import OutOfPages, PageAllocator, PagePool

from .layout import TARGET_GROUPS, AdapterLayout, ModuleSlot, PackedAdapter, row_chunks


@dataclass(frozen=True, slots=True)
class Part:
    """One target inside a group: columns of the shrunk activation, columns of the output, B."""

    rank_start: int
    rank_stop: int
    out_start: int
    out_stop: int
    b: torch.Tensor  # [rank, out]
    scale: float


@dataclass(frozen=True, slots=True)
class GroupWeights:
    """The modules of one layer that read the same input."""

    a_t: torch.Tensor  # [in, sum of ranks]
    parts: tuple[Part, ...]


class AdapterSlot:
    """An adapter's place in the pool.

    A slot belongs to one digest for its whole life and is never re-used: whoever holds a
    slot reads that adapter's weights or, after ``close``, fails. Reference counts keep its
    pages while a request uses it.
    """

    _generations = itertools.count(1)

    def __init__(
        self,
        packed: PackedAdapter,
        pages: list[int],
        pool: PagePool,
        group_offsets: GroupOffsets,
        table_index: int = 0,
    ) -> None:
        self.digest = packed.digest
        self.rank = packed.rank
        self.num_bytes = packed.num_bytes
        self.pages = pages
        self.generation = next(self._generations)
        self.table_index = table_index  # its row in the kernels' tables; 0 without them
        self.refs = 0
        self.last_used = 0.0
        self._layout = packed.layout
        self._pool = pool
        self._offsets = group_offsets
        self._contiguous = pages == list(range(pages[0], pages[0] + len(pages))) if pages else True
        self._views: dict[int, tuple[GroupWeights | None, ...]] = {}

    def group(self, layer: int, group: int) -> GroupWeights | None:
        """Weights of a layer's target group, or None if the adapter does not touch it."""
        groups = self._views.get(layer)
        if groups is None:
            groups = self._resolve(layer)
            if self._contiguous:  # views cost nothing to keep; a gathered copy would cost its size
                self._views[layer] = groups
        return groups[group]

    def close(self) -> None:
        """The pages are about to be given back: reading through this slot is an error from now on."""
        if self.refs:
            raise AssertionError(f"adapter {self.digest} is dropped while {self.refs} requests use it")
        self._views = {}
        self._layout = None  # type: ignore[assignment]

    def _resolve(self, layer: int) -> tuple[GroupWeights | None, ...]:
        slots = {slot.target: slot for slot in self._layout.layers[layer]}
        cells = self._cells(layer) if slots else None
        return tuple(self._group_weights(cells, [slots[t] for t in targets if t in slots]) for targets in TARGET_GROUPS)

    def _cells(self, layer: int) -> torch.Tensor:
        """``[chunks, kv_dim]``: a view of consecutive pages, or a copy of scattered ones."""
        data, kv_dim = self._pool.data[layer], self._pool.geometry.kv_dim
        if self._contiguous:
            return data[self.pages[0] : self.pages[0] + len(self.pages)].view(-1, kv_dim)
        return data[torch.tensor(self.pages, device=data.device)].view(-1, kv_dim)

    def _group_weights(self, cells: torch.Tensor | None, slots: list[ModuleSlot]) -> GroupWeights | None:
        if not slots or cells is None:
            return None
        ranks = [slot.rank for slot in slots]
        a = _rows(cells, slots[0].a_chunk, sum(ranks), slots[0].in_features)
        ends = list(itertools.accumulate(ranks))
        parts = tuple(
            Part(
                end - slot.rank,
                end,
                self._offsets[slot.target],
                self._offsets[slot.target] + slot.out_features,
                _rows(cells, slot.b_chunk, slot.rank, slot.out_features),
                slot.scale,
            )
            for slot, end in zip(slots, ends, strict=True)
        )
        return GroupWeights(a.T, parts)


GroupOffsets = dict[str, int]


def group_offsets(shapes: dict[str, tuple[int, int]]) -> GroupOffsets:
    """Where each target's output starts inside its group's merged output."""
    offsets = {}
    for targets in TARGET_GROUPS:
        start = 0
        for target in targets:
            offsets[target] = start
            start += shapes[target][1]
    return offsets


class AdapterTable(Protocol):
    """Where kernels look adapters up; None for backends that read the slots themselves."""

    def add(self, layout: AdapterLayout, pages: list[int]) -> int:
        """Describe an adapter to the kernels; its index from now on."""

    def remove(self, index: int) -> None:
        """The index may be used again."""

    @property
    def full(self) -> bool: ...


class AdapterResidency:
    """The device tier: acquire an adapter for a request, give it back, evict idle ones."""

    def __init__(
        self,
        pool: PagePool,
        allocator: PageAllocator,
        shapes: dict[str, tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
        table: AdapterTable | None = None,
    ) -> None:
        self._pool = pool
        self._allocator = allocator
        self._offsets = group_offsets(shapes)
        self._clock = clock
        self._slots: dict[str, AdapterSlot] = {}
        self._table = table

    def get(self, digest: str) -> AdapterSlot | None:
        return self._slots.get(digest)

    def slots(self) -> Iterable[AdapterSlot]:
        return self._slots.values()

    def load(self, packed: PackedAdapter) -> AdapterSlot:
        """Copy an adapter into the pool. Raises ``OutOfPages`` (make room first with ``evict_idle``)."""
        pages = self._allocator.allocate_run(packed.num_pages) if packed.num_pages else []
        if pages:
            self._pool.write_adapter(pages, packed.data)
        index = self._table_row(packed.layout, pages)
        slot = AdapterSlot(packed, pages, self._pool, self._offsets, index)
        self._slots[packed.digest] = slot
        slot.last_used = self._clock()
        return slot

    def _table_row(self, layout: AdapterLayout, pages: list[int]) -> int:
        if self._table is None:
            return 0
        if self._table.full:  # it has more rows than sequences can run, so some adapter is idle
            self.drop(min((s for s in self._slots.values() if not s.refs), key=lambda s: s.last_used))
        return self._table.add(layout, pages)

    def acquire(self, slot: AdapterSlot) -> None:
        slot.refs += 1

    def release(self, slot: AdapterSlot) -> None:
        slot.refs -= 1
        slot.last_used = self._clock()

    def evict_idle(self, pages_wanted: int) -> bool:
        """Evict idle adapters, least recently used first, until ``pages_wanted`` are free. True if they are."""
        idle = sorted((slot for slot in self._slots.values() if not slot.refs), key=lambda slot: slot.last_used)
        for slot in idle:
            if self._allocator.free >= pages_wanted:
                break
            self.drop(slot)
        return self._allocator.free >= pages_wanted

    def idle_pages(self) -> int:
        return sum(len(slot.pages) for slot in self._slots.values() if not slot.refs)

    def drop(self, slot: AdapterSlot) -> None:
        """Give an idle adapter's pages back."""
        slot.close()
        if self._table:
            self._table.remove(slot.table_index)
        del self._slots[slot.digest]
        self._allocator.release(slot.pages)


def _rows(cells: torch.Tensor, chunk: int, count: int, features: int) -> torch.Tensor:
    """``[count, features]`` view of rows that start at ``chunk``."""
    per_row = row_chunks(features, cells.shape[1])
    return cells[chunk : chunk + count * per_row].view(count, per_row * cells.shape[1])[:, :features]


__all__ = ["AdapterResidency", "AdapterSlot", "GroupWeights", "OutOfPages", "Part", "group_offsets"]
