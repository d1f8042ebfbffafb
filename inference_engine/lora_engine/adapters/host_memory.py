"""Packed adapters lie in host memory, in page-locked slabs if they are to be copied to a GPU.

Page-locking takes the driver's lock for milliseconds, which would stall the running batch, and torch's cache of page-
locked memory rounds every size up to a power of two. So slabs are locked once and divided here; an adapter's bytes are
free again when its tensor is.
"""

from __future__ import annotations

import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable
from math import prod
from typing import Protocol

import torch

# Bytes of a slab: large, as locking each takes milliseconds.
SLAB_BYTES = 1 << 28
# Bytes to which extents are aligned: a memory page.
ALIGNMENT = 4096


class HostMemory(Protocol):
    """An allocator of memory for packed adapters, for calls from any thread."""

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor: ...


class PageableMemory:
    """An allocator of plain memory, for a pool that is in host memory itself."""

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)


class PinnedSlabs:
    """An allocator of best-fit extents of page-locked slabs. It keeps one free slab and returns others."""

    def __init__(
        self,
        slab_bytes: int = SLAB_BYTES,
        lock_slab: Callable[[int], torch.Tensor] = lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True),
    ) -> None:
        self._slab_bytes = slab_bytes
        self._lock_slab = lock_slab
        self._lock = threading.Lock()
        self._slabs: dict[int, torch.Tensor] = {}
        self._next_slab = 0
        self._free: list[tuple[int, int, int]] = []  # size, slab, start; smallest first
        self._returned: deque[tuple[int, int, int]] = deque()  # by finalizers, which must not wait for the lock

    @property
    def num_bytes(self) -> int:
        """Number of page-locked bytes, in use or not."""
        with self._lock:
            return sum(slab.numel() for slab in self._slabs.values())

    def zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        num_bytes = prod(shape) * dtype.itemsize
        size = -(-max(num_bytes, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            self._take_back()
            slab, start = self._take(size)
            tensor = self._slabs[slab][start : start + num_bytes].view(dtype).view(shape)
        weakref.finalize(tensor, self._returned.append, (size, slab, start))
        return tensor.zero_()

    def _take(self, size: int) -> tuple[int, int]:
        """Return an extent of ``size`` bytes from the smallest free one that fits, else from a new slab."""
        fit = next((extent for extent in self._free if extent[0] >= size), None)
        if fit is None:
            fit = (max(size, self._slab_bytes), self._next_slab, 0)
            self._slabs[self._next_slab] = self._lock_slab(fit[0])
            self._next_slab += 1
        else:
            self._free.remove(fit)
        free, slab, start = fit
        if free > size:
            insort(self._free, (free - size, slab, start + size))
        return slab, start

    def _take_back(self) -> None:
        """Free the extents that finalizers returned, and join them with free neighbours."""
        touched = set()
        while self._returned:
            insort(self._free, (extent := self._returned.popleft()))
            touched.add(extent[1])
        for slab in touched:
            self._join_neighbours(slab)

    def _join_neighbours(self, slab: int) -> None:
        extents = sorted((start, size) for size, of, start in self._free if of == slab)
        joined: list[tuple[int, int]] = []
        for start, size in extents:
            if joined and sum(joined[-1]) == start:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((start, size))
        self._free = [extent for extent in self._free if extent[1] != slab]
        if joined == [(0, self._slabs[slab].numel())] and len(self._slabs) > 1:
            del self._slabs[slab]
            return
        for start, size in joined:
            insort(self._free, (size, slab, start))
