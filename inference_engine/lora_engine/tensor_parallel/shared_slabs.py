"""Host memory shared by all ranks: rank 0 packs adapters into it, and each rank copies its part to its device."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable

import torch

from lora_engine.adapters.host_memory import SLAB_BYTES, PinnedSlabs


class SharedSlabs(PinnedSlabs):
    """The slabs of anonymous shared memory, to which the limit of ``/dev/shm`` does not apply."""

    def __init__(
        self,
        share: Callable[[int, int, int], None],
        drop: Callable[[int], None],
        *,
        pinned: bool,
        slab_bytes: int = SLAB_BYTES,
    ) -> None:
        """Create an empty set of slabs.

        ``share`` is called with each new slab's index, size in bytes and file descriptor, ``drop`` with the index of a
        removed slab; both from any thread.
        """
        super().__init__(slab_bytes, self._new)
        self._share, self._drop, self._pinned = share, drop, pinned
        self._shared = 0
        self._ranges: dict[int, tuple[int, int]] = {}  # per slab: first address, and the address after the last

    def place(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Return the slab of a tensor and its offset there in bytes."""
        address = tensor.data_ptr()
        for index, (start, stop) in list(self._ranges.items()):
            if start <= address < stop:
                return index, address - start
        raise ValueError("the tensor is not in shared memory")

    def _new(self, num_bytes: int) -> torch.Tensor:
        descriptor = os.memfd_create("lora-adapters", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, num_bytes)
            slab = map_slab(descriptor, num_bytes, pinned=self._pinned)
            index, self._shared = self._shared, self._shared + 1
            self._ranges[index] = slab.data_ptr(), slab.data_ptr() + num_bytes
            self._share(index, num_bytes, descriptor)
        finally:
            os.close(descriptor)
        weakref.finalize(slab, self._gone, index)
        return slab

    def _gone(self, index: int) -> None:
        del self._ranges[index]
        self._drop(index)


def map_slab(descriptor: int, num_bytes: int, *, pinned: bool) -> torch.Tensor:
    """Map the file's memory as ``[num_bytes]`` uint8; ``pinned``: page-locked, for a device to read."""
    slab = torch.frombuffer(mmap.mmap(descriptor, num_bytes), dtype=torch.uint8)
    if pinned:
        runtime = torch.cuda.cudart()
        address = slab.data_ptr()
        if error := int(runtime.cudaHostRegister(address, num_bytes, 0)):
            raise MemoryError(
                f"{num_bytes >> 20} MiB of host memory for adapters cannot be page-locked (CUDA error {error}); "
                "lower --host-arena-mb, or raise the limit on locked memory (ulimit -l)"
            )
        weakref.finalize(slab, runtime.cudaHostUnregister, address)
    return slab
