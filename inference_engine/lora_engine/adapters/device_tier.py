"""The device tier holds the adapters in the device pool and the views through which a batch reads them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from lora_engine.memory import Evictable, EvictionQueue, OutOfPages, PageAllocator, PagePool, RestoreCosts

from . import epilogue
from .device_copies import Arrival, DeviceCopies, InlineCopies
from .embedding_pages import AdapterEmbeddingLayer
from .epilogue import EpilogueWeights
from .expert_policy import ExpertFramesOf, ExpertPolicy, ExpertTable, ResidencyMirror
from .expert_residency import ExpertResidency, write_packed
from .experts import ExpertFactors, read_slot
from .layout import TARGET_GROUPS, AdapterLayout, ModuleSlot, PackedAdapter
from .load_times import LoadTimes
from .targets import EXPERTS_GROUP
from .tensors import factor_rows, module_rows


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """The weights of one target in a group: columns of the shrunk activation, columns of the output, and B.

    Where both factors are split over ranks, the columns are those that this rank shrinks, and B has the rows of all
    ranks; or the output columns are a part of the target's, counted from the first of them.
    """

    rank_start: int
    rank_stop: int
    out_start: int
    out_stop: int
    b: torch.Tensor  # [rank, out]
    scale: float


@dataclass(frozen=True, slots=True)
class GroupWeights:
    """The weights of a layer's modules that read the same input."""

    a_t: torch.Tensor  # [in, sum of ranks]
    targets: tuple[TargetWeights, ...]


class AdapterSlot(Evictable):
    """A place of an adapter in the pool.

    A slot belongs to one digest for its whole life and is never re-used: a reader of the slot reads that adapter's
    weights or, after ``close``, fails. Reference counts keep its pages while a request uses it.
    """

    _generations = itertools.count(1)

    def __init__(
        self,
        packed: PackedAdapter,
        pages: list[int],
        pool: PagePool,
        group_offsets: GroupOffsets,
        table_index: int = 0,
        residency: ExpertResidency | None = None,
    ) -> None:
        super().__init__()
        self.digest = packed.digest
        self.rank, self.priced_rank = packed.rank, packed.priced_rank
        self.num_bytes = packed.num_bytes
        self.pages = pages
        self.residency = residency  # None: the adapter has all its pages
        self.generation = next(self._generations)
        self.table_index = table_index  # row in the kernels' tables; 0 without tables
        self.delta_correction_index = 0  # row with negated scales, while the adapter is merged into the base weights
        self.invocation_tokens = packed.layout.invocation_tokens
        # Whether a merge leaves other requests' output unchanged; None before the check. An epilogue, a delta that acts
        # later, or one of experts cannot be merged.
        never = packed.layout.epilogues or packed.layout.experts or self.invocation_tokens
        self.mergeable: bool | None = False if never else None
        self.refs = 0
        self.pinned = False  # stays on the device without a request
        self.last_used = 0.0
        self.arrival: Arrival | None = None  # its copy to the device, until that is complete
        self.layout = packed.layout
        self.groups = target_groups(packed.layout)
        layers = packed.layout.embedding_layers
        of_packed = residency.packed_pages if residency is not None else pages
        self.embedding = (
            AdapterEmbeddingLayer(layers.embedding, pool, of_packed) if layers and layers.embedding else None
        )
        self.head = AdapterEmbeddingLayer(layers.head, pool, of_packed) if layers and layers.head else None
        self.has_epilogues = bool(packed.layout.epilogues)
        self._pool = pool
        self._offsets = group_offsets
        self._contiguous = (
            residency is None and pages == list(range(pages[0], pages[0] + len(pages))) if pages else True
        )
        self._views: dict[int, tuple[GroupWeights | None, ...]] = {}  # by layer; of copies only the latest one

    def fill(self, packed: PackedAdapter, table: AdapterTable | None = None) -> None:
        """Copy the adapter into its pages, and describe it to the kernels."""
        pages, pool = self.pages, self._pool
        if self.residency is not None:
            write_packed(pool, self.residency)
            pages = self.residency.packed_pages
        elif pages and self._contiguous:
            pool.data[:, pages[0] : pages[0] + len(pages)].copy_(packed.data, non_blocking=True)
        elif pages:
            index = torch.tensor(pages, device=pool.data.device)
            pool.data.index_copy_(1, index, packed.data.to(pool.data.device, non_blocking=True))
        if table:
            table.write(self.table_index, packed.layout, pages)
            if self.residency is not None:
                table.write_residency(self.residency, pool)

    def group(self, layer: int, group: int) -> GroupWeights | None:
        """Return the weights of a layer's target group, or None if the adapter does not change it."""
        groups = self._views.get(layer)
        if groups is None:
            groups = self._resolve(layer)
            if not self._contiguous or self.layout.fp8_rows:  # views cost nothing, but these are copies of their size
                self._views.clear()
            self._views[layer] = groups
        return groups[group]

    @property
    def has_embedding_layers(self) -> bool:
        """True if the adapter changes the embedding or the head."""
        return self.embedding is not None or self.head is not None

    def epilogues(self, layer: int, group: int) -> tuple[EpilogueWeights, ...]:
        """Return the epilogues of a layer's target group."""
        slots = [slot for slot in self.layout.epilogues[layer] if slot.target in TARGET_GROUPS[group]]
        pool_rows = self._pool_rows(layer) if slots else None
        return () if pool_rows is None else tuple(epilogue.read(pool_rows, s, self._offsets[s.target]) for s in slots)

    def experts(self, layer: int) -> dict[str, ExpertFactors]:
        """Return the factors of a layer's experts by module; empty if the adapter does not change them."""
        slots = self.layout.experts[layer] if self.layout.experts else ()
        if not slots:
            return {}
        pool_rows = self._pool_rows(layer) if self.residency is None else self.residency.rows(self._pool, layer)
        rows, dtype = factor_rows(pool_rows, pool_rows.shape[1], fp8=self.layout.fp8_rows > 0), pool_rows.dtype
        read = {slot.module: read_slot(rows, slot) for slot in slots}
        return {module: ExpertFactors(f.a.to(dtype), f.b.to(dtype), f.scale) for module, f in read.items()}

    def close(self) -> None:
        """Invalidate the slot before its pages are freed: reading through it raises from now on."""
        if self.refs:
            raise AssertionError(f"adapter {self.digest} is dropped while {self.refs} requests use it")
        self._views, self.embedding, self.head, self.residency = {}, None, None, None
        self.layout = None  # type: ignore[assignment]

    def _resolve(self, layer: int) -> tuple[GroupWeights | None, ...]:
        slots = {slot.target: slot for slot in self.layout.layers[layer]}
        pool_rows = self._pool_rows(layer) if slots else None
        if pool_rows is not None and self.layout.fp8_rows:
            pool_rows = factor_rows(pool_rows, pool_rows.shape[1], fp8=True).to(pool_rows.dtype)
        return tuple(
            self._group_weights(pool_rows, [slots[t] for t in targets if t in slots]) for targets in TARGET_GROUPS
        )

    def _pool_rows(self, layer: int) -> torch.Tensor:
        """Return ``[pool_rows, kv_dim]``: a view of consecutive pages, or a copy of scattered ones.

        Of an adapter without all its pages, the pages before those of experts.
        """
        data, kv_dim = self._pool.layer(layer), self._pool.geometry.kv_dim
        if self._contiguous:
            return data[self.pages[0] : self.pages[0] + len(self.pages)].view(-1, kv_dim)
        pages = self.pages if self.residency is None else self.residency.fixed_pages
        return data[torch.tensor(pages, dtype=torch.int64, device=data.device)].view(-1, kv_dim)

    def _group_weights(self, pool_rows: torch.Tensor | None, slots: list[ModuleSlot]) -> GroupWeights | None:
        if not slots or pool_rows is None:
            return None
        ranks = [slot.rank for slot in slots]
        a = module_rows(pool_rows, slots[0].a_row, sum(ranks), slots[0].in_features)
        ends = list(itertools.accumulate(ranks))
        targets = tuple(
            TargetWeights(
                end - slot.rank,
                end,
                self._offsets[slot.target],
                self._offsets[slot.target] + slot.out_features,
                module_rows(pool_rows, slot.b_row, slot.b_rank, slot.out_features),
                slot.scale,
            )
            for slot, end in zip(slots, ends, strict=True)
        )
        return GroupWeights(a.T, targets)


def target_groups(layout: AdapterLayout) -> frozenset[int]:
    """Return the indices of ``TARGET_GROUPS`` that the adapter changes in any layer, and of the experts' modules."""
    targets = {module.target for layers in (layout.layers, layout.epilogues) for layer in layers for module in layer}
    groups = frozenset(index for index, group in enumerate(TARGET_GROUPS) if not targets.isdisjoint(group))
    return groups | {EXPERTS_GROUP} if any(layout.experts) else groups


GroupOffsets = dict[str, int]


def group_offsets(shapes: dict[str, tuple[int, int]]) -> GroupOffsets:
    """Return the start of each target's output in its group's merged output."""
    offsets = {}
    for targets in TARGET_GROUPS:
        start = 0
        for target in targets:
            if target in shapes:
                offsets[target] = start
                start += shapes[target][1]
    return offsets


class AdapterTable(ExpertTable, Protocol):
    """A table in which kernels find adapters; backends that read the slots need none."""

    def take(self) -> int:
        """Return an unused index, to be filled by ``write``."""

    def write(self, index: int, layout: AdapterLayout, pages: list[int], sign: int = 1) -> None:
        """Describe an adapter to the kernels, in the order of the current stream. ``sign`` -1 negates it."""

    def give_back(self, index: int) -> None:
        """Free the index for use by another adapter."""

    @property
    def full(self) -> bool: ...

    @property
    def residencies_full(self) -> bool:
        """True if ``take_residency`` would fail."""

    def take_residency(self) -> int:
        """Return a row for an adapter that may have only some of its experts in the pool."""

    def give_back_residency(self, row: int) -> None:
        """Free the row for use by another adapter."""

    def write_residency(self, residency: ExpertResidency, pool: PagePool) -> None:
        """Tell the kernels where the experts lie of an adapter that is described by ``write``."""


@dataclass(slots=True)
class LoadStats:
    """Totals of copies to the device. ``exposed_seconds`` is the part that steps waited for."""

    adapters: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    exposed_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceAdapter:
    """An adapter on the device, with the number of requests that use it now."""

    digest: str
    running: int
    num_bytes: int
    rank: int
    # Units of its experts, in the pool and in all; 0 if it has none, or all its pages.
    experts_resident: int = 0
    experts_total: int = 0


class DeviceMirror(ResidencyMirror, Protocol):
    """The other ranks of a tensor-parallel group, whose pools have their parts of the same adapters in equal pages."""

    def load(self, slot: AdapterSlot, packed: PackedAdapter) -> Arrival:
        """Copy the other ranks' parts. The result needs no ``join``: the ranks execute commands in order."""

    def drop(self, slot: AdapterSlot) -> None:
        """Drop the adapter on the other ranks, before its pages are reused."""

    def copy_pages(self, source: list[int], target: list[int]) -> None:
        """Copy pages on the other ranks, as ``PagePool.copy_pages`` does here."""


class _Arrivals:
    """The copies of one adapter to several ranks."""

    def __init__(self, local: Arrival | None, others: Arrival) -> None:
        self._local, self._others = local, others

    def done(self) -> bool:
        return (self._local is None or self._local.done()) and self._others.done()

    def join(self) -> None:
        if self._local is not None:
            self._local.join()

    def seconds(self) -> float:
        return self._others.seconds() if self._local is None else self._local.seconds()


class DeviceTier:
    """The adapters on the device: load, acquire for a request, release, drop."""

    def __init__(
        self,
        pool: PagePool,
        allocator: PageAllocator,
        shapes: dict[str, tuple[int, int]],
        clock: Callable[[], float] = time.monotonic,
        table: AdapterTable | None = None,
        queue: EvictionQueue | None = None,
        costs: RestoreCosts | None = None,
        copies: DeviceCopies | None = None,
        mirror: DeviceMirror | None = None,
        experts: float | None = 1.0,
        in_host_memory: Callable[[PackedAdapter], bool] = lambda packed: True,
    ) -> None:
        """Create an empty tier.

        ``experts``: the largest share of an adapter's experts that have pages, below 1; None: as many as fit. The
        others are read from host memory, so such an adapter is dropped once it is not ``in_host_memory``.
        """
        self.stats = LoadStats()
        self.load_times = LoadTimes()
        self.idle_pages = 0  # of evictable adapters without a request
        self.pinned_idle_pages = 0  # of pinned adapters without a request
        self._pool = pool
        self._allocator = allocator
        self._offsets = group_offsets(shapes)
        self._clock = clock
        self._slots: dict[str, AdapterSlot] = {}
        self._table = table
        self._queue = EvictionQueue() if queue is None else queue  # an empty queue is falsy
        self._costs = costs or RestoreCosts()
        self._copies = copies or InlineCopies()
        self._mirror = mirror
        self.experts: ExpertPolicy | None = None  # with ``experts`` of all adapters in the pool
        if experts is None or experts < 1.0:
            self.experts = ExpertPolicy(
                pool, allocator, self._queue, self._costs, self._copies, table, mirror, experts, clock
            )  # fmt: skip
        self._in_host_memory = in_host_memory
        # Host memory must not be reused for another adapter while the bus still reads it.
        self._arriving: dict[AdapterSlot, PackedAdapter] = {}
        self._abandoned: list[tuple[Arrival, PackedAdapter]] = []

    def get(self, digest: str) -> AdapterSlot | None:
        return self._slots.get(digest)

    def on_device(self, digest: str) -> bool:
        """Return whether a batch can use the adapter immediately."""
        slot = self._slots.get(digest)
        return slot is not None and slot.arrival is None

    def copy_seconds(self, pages: int) -> float:
        """Predict the seconds of a copy of ``pages`` pages to the device from earlier copies."""
        return pages * self._costs.adapter_page

    def slots(self) -> Iterable[AdapterSlot]:
        return self._slots.values()

    def report(self) -> list[DeviceAdapter]:
        return [
            DeviceAdapter(
                slot.digest, slot.refs, slot.num_bytes, slot.rank,
                *((slot.residency.residents, slot.residency.units) if slot.residency else ()),
            )
            for slot in self._slots.values()
        ]  # fmt: skip

    @property
    def num_arriving(self) -> int:
        return len(self._arriving)

    @property
    def arriving_idle_pages(self) -> int:
        """Number of pages among ``idle_pages`` that cannot be freed yet, as a copy into them is running."""
        return sum(len(slot.pages) for slot in self._arriving if not slot.refs and not slot.pinned)

    @property
    def arrival_seconds(self) -> float:
        """Predicted seconds until every copy to the device that is under way has ended."""
        return self.copy_seconds(sum(len(slot.pages) for slot in self._arriving))

    def pages_wanted(self, packed: PackedAdapter) -> int:
        """Return the pages with which ``load`` would place an adapter if so many are free."""
        if self.experts is None or packed.layout.frames is None:
            return packed.num_pages
        return self.experts.least_pages(packed) + self.experts.frames(packed) * packed.layout.frames.pages

    def least_pages(self, packed: PackedAdapter) -> int:
        """Return the pages without which an adapter cannot be loaded."""
        if self.experts is None or packed.layout.frames is None:
            return packed.num_pages
        return self.experts.least_pages(packed)

    def load(self, packed: PackedAdapter, spare: int = 0) -> AdapterSlot:
        """Begin to copy an adapter into the pool. It is idle until acquired, and must be ``ready`` or joined before
        use.

        One on experts, of which only some need pages, leaves ``spare`` pages free. Raises ``OutOfPages``: free pages
        first.
        """
        count, least, residency = self.pages_wanted(packed), self.least_pages(packed), None
        if self.experts is not None and packed.layout.frames is not None:
            of_frame = packed.layout.frames.pages
            count = least + min(count - least, max(0, self._allocator.free - spare - least)) // of_frame * of_frame
        pages = self._allocator.allocate_run(count) if count else []
        index = self._table_row()
        if self.experts is not None and packed.layout.frames is not None:
            residency = ExpertResidency(packed, self._pool.geometry, pages, index, self._residency_row())
        slot = AdapterSlot(packed, pages, self._pool, self._offsets, index, residency)
        if self.experts is not None and residency is not None:
            self.experts.open(slot.generation, residency, lambda pages: self._pages_changed(slot, pages))
        began = self._clock()
        slot.arrival = self._copies.start(lambda: slot.fill(packed, self._table))
        if self._mirror is not None:
            slot.arrival = _Arrivals(slot.arrival, self._mirror.load(slot, packed))
        copied = packed.num_bytes * count // packed.num_pages if packed.num_pages else 0
        if slot.arrival is not None:
            self._arriving[slot] = packed
        else:
            self.load_times.add(copied, self._clock() - began)
        self.stats.adapters += 1
        self.stats.num_bytes += copied
        self._slots[packed.digest] = slot
        self._becomes_idle(slot)
        return slot

    def ready(self, slot: AdapterSlot) -> bool:
        """Return whether a batch may read the adapter now."""
        if slot.arrival is not None and slot.arrival.done():
            self._arrived(slot, slot.arrival)
        return slot.arrival is None

    def join(self, slot: AdapterSlot) -> None:
        """Make the device, not the host, wait for the copy before it runs the next launch."""
        if slot.arrival is not None:
            slot.arrival.join()

    def acquire(self, slot: AdapterSlot) -> None:
        if not slot.refs:
            self._queue.withdraw(slot)
            self._count_idle(slot, -1)
        slot.refs += 1
        slot.uses += 1
        self._update_experts(slot)

    def release(self, slot: AdapterSlot) -> None:
        slot.refs -= 1
        if not slot.refs:
            self._becomes_idle(slot)

    def acquire_merged(self, slot: AdapterSlot) -> None:
        """Acquire the adapter for a merge into the base weights, with a table row by which others can subtract it."""
        self.acquire(slot)
        if self._table:
            slot.delta_correction_index = self._table_row()
            self._table.write(slot.delta_correction_index, slot.layout, slot.pages, -1)

    def release_merged(self, slot: AdapterSlot) -> None:
        if self._table:
            self._table.give_back(slot.delta_correction_index)
            slot.delta_correction_index = 0
        self.release(slot)

    def offer(self, slot: AdapterSlot) -> None:
        """Let an idle adapter be evicted, unless it is pinned."""
        if not slot.pinned:
            self._queue.offer(slot, self._costs.adapter_page)

    def pin(self, slot: AdapterSlot) -> None:
        """Keep an adapter on the device, even while no request uses it."""
        self._set_pinned(slot, pinned=True)

    def unpin(self, slot: AdapterSlot) -> None:
        """Let the adapter be evicted when it is idle, like others."""
        self._set_pinned(slot, pinned=False)

    def unpin_idle(self, pages: int) -> None:
        """Unpin idle adapters, least recently used first, until they have ``pages`` pages in all."""
        for slot in sorted((s for s in self._slots.values() if s.pinned and not s.refs), key=lambda s: s.last_used):
            if pages <= 0:
                return
            pages -= len(slot.pages)
            self.unpin(slot)

    @property
    def has_table_row(self) -> bool:
        """True if another adapter fits into the kernels' tables without evicting a pinned one."""
        if self._table is None or not self._table.full:
            return True
        return any(not slot.refs and not slot.pinned for slot in self._slots.values())

    def refresh(self, digest: str) -> None:
        """Move an idle adapter that is needed soon to the end of the eviction order."""
        slot = self._slots.get(digest)
        if slot is not None and not slot.refs:
            self._queue.withdraw(slot)
            self.offer(slot)

    def drop(self, slot: AdapterSlot) -> None:
        """Free an idle adapter's pages."""
        residency = slot.residency
        slot.close()
        if residency is not None:
            self._drop_experts(slot, residency)
        if slot.arrival is not None:  # others must not write to these pages before the copy is complete
            slot.arrival.join()
            self._abandoned.append((slot.arrival, self._arriving.pop(slot)))
        if self._mirror is not None:
            self._mirror.drop(slot)
        if self._table:
            self._table.give_back(slot.table_index)
        self._queue.withdraw(slot)
        self._count_idle(slot, -1)
        del self._slots[slot.digest]
        self._allocator.release(slot.pages)

    def _arrived(self, slot: AdapterSlot, arrival: Arrival) -> None:
        seconds = arrival.seconds()
        self.stats.seconds += seconds
        self.load_times.add(slot.num_bytes, seconds)
        if slot.refs:  # it was joined: a step waited
            self.stats.exposed_seconds += seconds
        if slot.pages:
            self._costs.adapter_page += 0.1 * (seconds / len(slot.pages) - self._costs.adapter_page)
        slot.arrival = None
        del self._arriving[slot]
        self._update_experts(slot)

    def collect_arrivals(self) -> None:
        """Update the adapters whose copies are complete, and choose which experts have pages; between two steps."""
        self.free_host_memory()
        if self.experts is not None:
            self.experts.step()

    def free_host_memory(self) -> bool:
        """Let go of host memory that the device no longer reads, and drop idle adapters that left it but for the
        experts that the device reads there.

        Returns whether the device still reads some that will be free once that has ended.
        """
        for slot in list(self._arriving):
            self.ready(slot)
        if self.experts is not None:
            for slot in [s for s in self._slots.values() if s.residency and not s.refs and not s.arrival]:
                if slot.residency is not None and not self._in_host_memory(slot.residency.packed):
                    self.drop(slot)  # its memory there is another's to use
        self._abandoned = [(arrival, packed) for arrival, packed in self._abandoned if not arrival.done()]
        return bool(self._arriving or self._abandoned)

    def _becomes_idle(self, slot: AdapterSlot) -> None:
        slot.last_used = self._clock()
        self._count_idle(slot, 1)
        self.offer(slot)
        self._update_experts(slot)

    def _update_experts(self, slot: AdapterSlot) -> None:
        """Tell the policy of experts whether an adapter is in use."""
        if self.experts is not None and slot.residency is not None:
            state = {"in_use": slot.refs > 0, "pinned": slot.pinned, "arrived": slot.arrival is None}
            self.experts.set_state(slot.generation, **state)

    def _drop_experts(self, slot: AdapterSlot, residency: ExpertResidency) -> None:
        """Forget an adapter on experts, whose host memory launched steps may still read."""
        assert self.experts is not None
        for reader in (self.experts.close(slot.generation), self._copies.mark()):
            if reader is not None:
                self._abandoned.append((reader, residency.packed))
        if self._table:
            self._table.give_back_residency(residency.row)

    def _pages_changed(self, slot: AdapterSlot, pages: list[int]) -> None:
        if not slot.refs:
            raise AssertionError(f"the pages of the idle adapter {slot.digest} change")
        slot.pages = pages

    @property
    def evictable_pages(self) -> int:
        """Number of pages of experts that running adapters can do without."""
        return 0 if self.experts is None else self.experts.evictable_pages

    def kept_pages(self, slot: AdapterSlot) -> int:
        """Return how many pages of a running adapter are not among ``evictable_pages``."""
        if self.experts is None or slot.residency is None or slot.pinned or slot.arrival is not None:
            return len(slot.pages)
        return slot.residency.least_pages

    def evict_experts(self, entry: ExpertFramesOf) -> None:
        """Free pages of the least used experts of a running adapter."""
        assert self.experts is not None
        self.experts.evict(entry)

    def _residency_row(self) -> int:
        if self._table is None:
            return 0
        if self._table.residencies_full:  # it has more rows than sequences can run, so some adapter is idle
            idle = (slot for slot in self._slots.values() if slot.residency is not None and not slot.refs)
            self.drop(min(idle, key=lambda slot: (slot.pinned, slot.last_used)))
        return self._table.take_residency()

    def _set_pinned(self, slot: AdapterSlot, *, pinned: bool) -> None:
        if slot.pinned == pinned:
            return
        if not slot.refs:
            self._queue.withdraw(slot)
            self._count_idle(slot, -1)
        slot.pinned = pinned
        if not slot.refs:
            self._count_idle(slot, 1)
            self.offer(slot)
        self._update_experts(slot)

    def _count_idle(self, slot: AdapterSlot, sign: int) -> None:
        if slot.pinned:
            self.pinned_idle_pages += sign * len(slot.pages)
        else:
            self.idle_pages += sign * len(slot.pages)

    def _table_row(self) -> int:
        if self._table is None:
            return 0
        if self._table.full:  # it has more rows than sequences can run, so some adapter is idle
            self.drop(min((s for s in self._slots.values() if not s.refs), key=lambda s: (s.pinned, s.last_used)))
        return self._table.take()


__all__ = ["AdapterSlot", "DeviceAdapter", "DeviceTier", "GroupWeights", "OutOfPages", "TargetWeights", "group_offsets"]
