"""The policy of ``--expert-residency``: which experts of an adapter have pages, by how often the router chose them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import ceil
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory import Evictable, EvictionQueue, PageAllocator, PagePool, RestoreCosts

from .device_copies import Arrival, DeviceCopies
from .expert_residency import Change, ExpertResidency, Move, ResidencyTable, Residents
from .layout import PackedAdapter

# Steps between two readings of the router's counts.
_READ_EVERY = 16
# Share of an earlier reading's counts that remains in the next one.
_KEPT = 0.75
# Maximum bytes of units that are copied for one adapter after a reading: 1.3 ms of the bus.
_MOST_BYTES = 64 << 20
# A unit replaces another if it was used this many times as often, and this much more. Reading it from host memory once
# moves as many bytes as its copy.
_TIMES, _MORE = 2.0, 2.0
# Divisor of the pool's pages for those that stay free when an adapter grows, or is loaded with more than it needs.
_SPARE_SHARE = 16
# Seconds of pairs that a report sums up.
_RECENT_S = 60.0
# Uses in a reading beyond which a frame is no more worth to keep.
_MOST_USES = 8.0


@dataclass(slots=True)
class ExpertStats:
    """Totals of adapters on experts: units that were copied into the pool and out of it, and pairs of a token and an
    expert, of which some were read from host memory.
    """

    promotions: int = 0
    demotions: int = 0
    pairs: int = 0
    host_pairs: int = 0


@dataclass(frozen=True, slots=True)
class ExpertReport:
    """The units of the adapters on the device, in the pool and in all, the totals of ``ExpertStats``, and those of the
    last minute.
    """

    setting: str
    resident: int = 0
    total: int = 0
    promotions: int = 0
    demotions: int = 0
    pairs: int = 0
    host_pairs: int = 0
    recent_pairs: int = 0
    recent_host_pairs: int = 0


class RecentPairs:
    """The pairs of the last minute, all and those that were read from host memory, in steps of a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = deque[tuple[float, int, int]]()

    def add(self, pairs: int, host_pairs: int) -> None:
        began = self._clock()
        if self._seconds and began - self._seconds[-1][0] < 1:
            began, pairs_before, host_before = self._seconds.pop()
            pairs, host_pairs = pairs + pairs_before, host_pairs + host_before
        self._seconds.append((began, pairs, host_pairs))

    def report(self) -> dict[str, int]:
        while self._seconds and self._clock() - self._seconds[0][0] > _RECENT_S:
            self._seconds.popleft()
        pairs, host_pairs = (sum(each[index] for each in self._seconds) for index in (1, 2))
        return {"recent_pairs": int(pairs), "recent_host_pairs": int(host_pairs)}


class ExpertTable(ResidencyTable, Protocol):
    """A ``ResidencyTable`` with the kernels' counts."""

    def read_counts(self, rows: list[int]) -> Callable[[], npt.NDArray[np.int64] | None]:
        """Begin to read, and reset, the counts ``[rows, layers, experts]``; the result returns None until it has
        them.
        """


class ResidencyMirror(Protocol):
    """The other ranks, which carry out the same changes."""

    def change_experts(self, generation: int, change: Change) -> None:
        """Change which experts of an adapter lie in the pool, as ``Residents.change`` does on this rank."""

    def settle_experts(self, generation: int) -> None:
        """Complete the last change of an adapter's experts, as ``Residents.settle`` does on this rank."""


class ExpertFramesOf(Evictable):
    """The frames of an adapter on experts, which may be evicted while it runs, one at a time, the least used first."""

    def __init__(self, generation: int, residency: ExpertResidency, pages_changed: Callable[[list[int]], None]) -> None:
        super().__init__()
        self.generation, self.residency = generation, residency
        self._pages_changed = pages_changed
        self.in_use = self.pinned = False
        self.arrived = False

    @property
    def evictable_pages(self) -> int:
        """Number of pages that can be freed while requests run."""
        return self.residency.frame_pages if self.in_use and self.arrived and not self.pinned else 0

    def update_pages(self) -> None:
        self._pages_changed(self.residency.pages)


class ExpertPolicy:
    """The decisions which experts of each adapter on experts lie in the pool."""

    def __init__(
        self,
        pool: PagePool,
        allocator: PageAllocator,
        queue: EvictionQueue,
        costs: RestoreCosts,
        copies: DeviceCopies,
        table: ExpertTable | None,
        mirror: ResidencyMirror | None,
        share: float | None,
        clock: Callable[[], float],
    ) -> None:
        """Create the policy. An adapter has at most ``share`` of its experts in the pool; None: as many as fit."""
        self.stats, self._recent = ExpertStats(), RecentPairs(clock)
        self._pool, self._allocator, self._queue, self._costs = pool, allocator, queue, costs
        self._table, self._mirror, self._share = table, mirror, share
        self._residents = Residents(pool, table, copies)
        self._entries: dict[int, ExpertFramesOf] = {}
        self._reading: tuple[list[ExpertFramesOf], Callable[[], npt.NDArray[np.int64] | None]] | None = None
        self._steps = 0

    def frames(self, packed: PackedAdapter) -> int:
        """Return the frames with which an adapter is loaded: with ``share`` at most these, else as many as are free."""
        frames = packed.layout.frames
        assert frames is not None
        most = self._most(frames.count)
        if self._share is not None:
            return most
        spare = self._allocator.free - self._allocator.total // _SPARE_SHARE - self.least_pages(packed)
        return min(most, max(0, spare // frames.pages))

    @staticmethod
    def least_pages(packed: PackedAdapter) -> int:
        """Return the pages of an adapter without any expert."""
        frames = packed.layout.frames
        assert frames is not None
        return packed.num_pages - frames.count * frames.pages

    @property
    def evictable_pages(self) -> int:
        """Number of pages of running adapters that can be freed."""
        return sum(entry.evictable_pages for entry in self._entries.values())

    def report(self) -> ExpertReport:
        residencies = [entry.residency for entry in self._entries.values()]
        resident, total = sum(r.residents for r in residencies), sum(r.units for r in residencies)
        setting = "auto" if self._share is None else f"{self._share:g}"
        return ExpertReport(setting, resident, total, **asdict(self.stats), **self._recent.report())

    def open(self, generation: int, residency: ExpertResidency, changed: Callable[[list[int]], None]) -> None:
        """Begin to decide for an adapter that is being loaded. ``changed`` gets its pages when they change."""
        self._entries[generation] = ExpertFramesOf(generation, residency, changed)

    def close(self, generation: int) -> Arrival | None:
        """End with an adapter before its pages are freed; return the copy that still reads its host memory."""
        entry = self._entries.pop(generation)
        self._queue.withdraw(entry)
        return self._residents.forget(entry.residency)

    def set_state(self, generation: int, *, in_use: bool, pinned: bool, arrived: bool) -> None:
        """Update whether requests use an adapter, it must stay, and its first copy is complete."""
        entry = self._entries[generation]
        entry.in_use, entry.pinned, entry.arrived = in_use, pinned, arrived
        self._queue.withdraw(entry)
        self._offer(entry)

    def evict(self, entry: ExpertFramesOf) -> bool:
        """Free the least used frame of a running adapter; its experts are read from host memory from now on."""
        if not entry.evictable_pages:
            return False
        residency = entry.residency
        frame = min(residency.pages_of, key=lambda frame: (_uses(residency, frame), -frame))
        before = residency.residents
        self._change(entry, Change(removed=(frame,)))
        self.stats.demotions += before - residency.residents
        self._offer(entry)
        return True

    def step(self) -> None:
        """Settle copies, read counts and begin copies; between two steps, and without a wait."""
        if not self._entries:
            return
        for entry in self._entries.values():
            if self._residents.arrived(entry.residency):
                self._settle(entry)
        self._collect()
        self._steps += 1
        if self._reading is None and self._steps % _READ_EVERY == 0:
            used = [entry for entry in self._entries.values() if entry.in_use and entry.arrived]
            if used and self._table is not None:
                self._reading = used, self._table.read_counts([entry.residency.row for entry in used])
            for entry in used if self._table is None else ():
                self._judge(entry, entry.residency.counts.copy())
                entry.residency.counts[:] = 0

    def check(self) -> None:
        """Verify every adapter's frames. Raises ``AssertionError``."""
        for entry in self._entries.values():
            entry.residency.check()

    def _collect(self) -> None:
        if self._reading is None:
            return
        entries, poll = self._reading
        counts = poll()
        if counts is None:
            return
        self._reading = None
        for entry, of_adapter in zip(entries, counts, strict=True):
            if self._entries.get(entry.generation) is entry:
                self._judge(entry, of_adapter)

    def _judge(self, entry: ExpertFramesOf, counts: npt.NDArray[np.int64]) -> None:
        """Take the counts of an adapter's experts into account."""
        residency = entry.residency
        by_unit = residency.by_unit(counts)
        pairs, host_pairs = int(by_unit.sum()), int(by_unit[residency.frame_of < 0].sum())
        self.stats.pairs += pairs
        self.stats.host_pairs += host_pairs
        self._recent.add(pairs, host_pairs)
        residency.heat *= _KEPT
        residency.heat += by_unit
        if entry.in_use and entry.arrived and not self._residents.moves(residency):
            added = self._grow(residency)
            moves = self._moves(residency, [frame for frame, _ in added])
            if added or moves:
                before = residency.residents
                self._change(entry, Change((), tuple(added), tuple(moves)))
                self.stats.demotions += before - residency.residents
                if self._residents.arrived(residency):
                    self._settle(entry)
        self._queue.withdraw(entry)
        self._offer(entry)

    def _grow(self, residency: ExpertResidency) -> list[tuple[int, tuple[int, ...]]]:
        """Allocate frames for units that are used and lie in none, while pages are free."""
        frames, added = residency.frames, list[tuple[int, tuple[int, ...]]]()
        missing = int((((residency.heat >= _MORE) & (residency.frame_of < 0)).sum(axis=1)).max())
        most = self._most(frames.count)
        most_now = max(1, _MOST_BYTES // self._bytes_of_unit(residency) // len(residency.heat))
        spare = self._allocator.total // _SPARE_SHARE
        free = [frame for frame in range(frames.count) if frame not in residency.pages_of]
        room = min(missing, most - len(residency.pages_of), most_now)
        for frame in free[: max(0, room)]:
            if self._allocator.free - spare < frames.pages:
                break
            added.append((frame, tuple(self._allocator.allocate_run(frames.pages))))
        return added

    def _moves(self, residency: ExpertResidency, added: Iterable[int]) -> list[Move]:
        """Choose units of each layer group to copy: the most used ones into empty frames, then for the least used."""
        most, moves = max(1, _MOST_BYTES // self._bytes_of_unit(residency)), list[tuple[float, Move]]()
        frames = {*residency.pages_of, *added}
        for group, units in enumerate(residency.frames.units):
            heat, frame_of = residency.heat[group], residency.frame_of[group]
            outside = sorted((unit for unit in range(units) if frame_of[unit] < 0), key=lambda unit: -heat[unit])
            empty = sorted(frame for frame in frames if residency.unit_of[group, frame] < 0)
            inside = sorted((unit for unit in range(units) if frame_of[unit] >= 0), key=lambda unit: heat[unit])
            targets = [(0.0, frame) for frame in empty] + [(heat[unit], int(frame_of[unit])) for unit in inside]
            for unit, (cold, frame) in zip(outside, targets, strict=False):
                if heat[unit] < _TIMES * cold + _MORE:
                    break
                moves.append((heat[unit] - cold, Move(group, unit, frame)))
        moves.sort(key=lambda move: -move[0])
        return [move for _, move in moves[:most]]

    def _change(self, entry: ExpertFramesOf, change: Change) -> None:
        if self._mirror is not None:
            self._mirror.change_experts(entry.generation, change)
        self._allocator.release(self._residents.change(entry.residency, change))
        entry.update_pages()

    def _settle(self, entry: ExpertFramesOf) -> None:
        if self._mirror is not None:
            self._mirror.settle_experts(entry.generation)
        self.stats.promotions += self._residents.settle(entry.residency)

    def _offer(self, entry: ExpertFramesOf) -> None:
        """Let the least used frame be evicted; its reads from host memory are what that costs."""
        if entry.evictable_pages:
            residency = entry.residency
            uses = min(_uses(residency, frame) for frame in residency.pages_of)
            self._queue.offer(entry, self._costs.adapter_page * min(uses, _MOST_USES))

    def _most(self, frames: int) -> int:
        return frames if self._share is None else min(frames, ceil(self._share * frames))

    def _bytes_of_unit(self, residency: ExpertResidency) -> int:
        return residency.frames.pages * self._pool.geometry.page_elems * self._pool.data.element_size()


def _uses(residency: ExpertResidency, frame: int) -> float:
    """Return how often the units of a frame were used lately, on average over layer groups."""
    units = residency.unit_of[:, frame]
    heat = np.where(units >= 0, residency.heat[np.arange(len(units)), units], 0.0)
    return float(heat.mean())


class CountsReading:
    """A copy of the kernels' counts to the host that has been started."""

    def __init__(self, counts: torch.Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if counts.is_cuda:
            self._counts = torch.empty(counts.shape, dtype=counts.dtype, pin_memory=True)
            self._counts.copy_(counts, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        else:
            self._counts = counts.clone()

    def __call__(self) -> npt.NDArray[np.int64] | None:
        """Return the counts, or None while they are being copied."""
        if self._arrived is not None and not self._arrived.query():
            return None
        return self._counts.numpy().astype(np.int64)
