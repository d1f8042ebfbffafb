"""Host memory that all ranks see: rank 0 packs adapters into it, each rank copies its part to its own device."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable

import torch

from lora_engine.adapters.host_memory import SLAB_BYTES, PinnedSlabs


class SharedSlabs(PinnedSlabs):
    """Slabs of anonymous shared memory, which no limit of ``/dev/shm`` concerns."""

    def __init__(
        self,
        share: Callable[[int, int, int], None],
        drop: Callable[[int], None],
        *,
        pinned: bool,
        slab_bytes: int = SLAB_BYTES,
    ) -> None:
        """``share`` is given each new slab's index, size and file descriptor; ``drop`` the index of one that is gone.
        Both may be called from any thread.
        """
        super().__init__(slab_bytes, self._new)
        self._share, self._drop, self._pinned = share, drop, pinned
        self._shared = 0
        self._ranges: dict[int, tuple[int, int]] = {}  # of each slab: its first address and the one after its last

    def place(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The slab that a tensor lies in, and its first byte there."""
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
    """``[num_bytes]`` uint8 of the file's memory, page-locked if a device is to read it."""
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
