"""Sums over the GPUs of a host through symmetric memory, which all of them can read.

NCCL's all-reduce is a chain of steps, whose latency exceeds the transfer time for the activations of a decode step.

- ``SymmetricAddends``: the products before a norm write to symmetric memory, and the norm's kernel reads the addends of
  all N GPUs. No kernel copies or adds anything else; only a barrier lies between them. Larger sums of more than two
  GPUs take two parts: each GPU adds up its share of the rows, and writes the sums to all GPUs.
- ``SymmetricSums``, for other small sums: every GPU copies its part into symmetric memory, waits for the others, and
  adds up all parts in the order of the ranks, in one kernel.

In one part every GPU receives N - 1 times a tensor's bytes from others, in two parts 2 - 2 / N times. The switches'
multicast is not used.

The memory of a GPU begins with the flags of ``lora_kernels.peer_sums``, then that of small sums, then that of addends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from lora_engine.model.parallel import Parallel, PartialSum, in_two_parts

from .peer_memory import PeerMemory, share_memory

log = logging.getLogger(__name__)

_DTYPES = (torch.bfloat16, torch.float32)
# Bytes that the kernel reads at once; tensors must be a multiple of it.
_ALIGNED = 16
# Bytes of which the parts of the memory are a multiple, so that each begins on a page of a GPU.
_PART = 1 << 16
# Sums that norms add up in the check at start, and the rows and columns of the small ones and of the large ones.
_CHECKS, _CHECKED = 16, ((255, 1024), (1025, 1024))


class SymmetricSums:
    """The ``SmallSums`` through memory of all ranks."""

    def __init__(self, memory: PeerMemory, start: int, num_bytes: int) -> None:
        """Create the sums of tensors of up to ``num_bytes``, which begin at byte ``start`` of every rank's memory."""
        self._addresses, self._flags, self._rank = memory.at(start), memory.at(0), memory.rank
        self._num_bytes = num_bytes

    def takes(self, x: torch.Tensor) -> bool:
        return x.dtype in _DTYPES and 0 < x.nbytes <= self._num_bytes and x.nbytes % _ALIGNED == 0 and x.is_contiguous()

    def all_reduce(self, x: torch.Tensor) -> None:
        from lora_kernels.peer_sums import sum_in_place  # imports triton, which an engine on CPUs does not have

        sum_in_place(x, self._addresses, self._flags, self._rank)


class SymmetricAddends:
    """The ``SharedAddends`` in two buffers of every rank's memory, which sums use by turns.

    One barrier for each part of a sum suffices. A rank overwrites a buffer only behind the barriers of the next sum,
    and another rank reaches them only when its norm has read the buffer. Within a sum of two parts, a rank overwrites
    only the rows that it alone adds up. From one step to the next, in which a buffer may be used twice in a row, the
    sum of the embeddings has the effect of a barrier.
    """

    def __init__(self, memory: PeerMemory, start: int, num_bytes: int) -> None:
        """Create the buffers of ``num_bytes`` each, the first of which begins at byte ``start``."""
        starts = start, start + num_bytes
        self._buffers = [memory.local[each : each + num_bytes] for each in starts]
        self._addresses = [memory.at(each) for each in starts]
        self._flags, self._rank, self._next = memory.at(0), memory.rank, 0

    def addend(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor | None:
        buffer, num_bytes = self._buffers[self._next], rows * columns * dtype.itemsize
        if num_bytes > buffer.nbytes or num_bytes % _ALIGNED:
            return None
        return buffer[:num_bytes].view(dtype).view(rows, columns)

    def contains(self, x: torch.Tensor) -> bool:
        return x.data_ptr() == self._buffers[self._next].data_ptr()

    def sum(self, addend: torch.Tensor) -> PartialSum | torch.Tensor:
        # These import triton, which an engine on CPUs does not have.
        from lora_kernels.elementwise import sum_rows
        from lora_kernels.peer_sums import meet

        addresses = self._addresses[self._next]
        self._next = 1 - self._next
        meet(self._flags, self._rank)
        if not in_two_parts(addend.nbytes, len(addresses)):
            return PartialSum(addend, addresses)
        sum_rows(addend, addresses, self._rank)
        meet(self._flags, self._rank)
        return addend


def with_symmetric_memory(
    parallel: Parallel, device: torch.device, small_bytes: int, fused_bytes: int, peers: Collection[int]
) -> Parallel:
    """Return ``parallel`` with sums of up to ``small_bytes`` and ``fused_bytes`` (0: none) through symmetric memory.

    The latter are sums that a norm's kernel reads. If not all ranks support it, ``parallel`` is returned unchanged, and
    the log has the reason. All ranks call this. ``peers``: indices of the GPUs of all ranks.
    """
    if not (small_bytes or fused_bytes) or parallel.world == 1:
        return parallel
    made, problem = None, _refused(device, peers)
    began = time.monotonic()
    if parallel.smallest(not problem, device):
        exchanged = time.monotonic()
        try:
            made = _allocate(parallel, device, small_bytes, fused_bytes)
        except (RuntimeError, OSError, AttributeError, ImportError) as error:  # of the driver, or without triton
            problem = str(error).splitlines()[0]
        if parallel.smallest(made is not None, device) and made is not None:
            mapped = time.monotonic()
            problem = _tried(made, parallel, device)
            if parallel.smallest(not problem, device):
                log.info(
                    "sums before norms of up to %d KiB, and others of up to %d KiB, go through symmetric memory",
                    fused_bytes >> 10, small_bytes >> 10,
                )  # fmt: skip
                log.debug(
                    "the first exchange took %.1f s, mapping memory %.1f s, checking sums %.1f s",
                    exchanged - began, mapped - exchanged, time.monotonic() - mapped,
                )  # fmt: skip
                return replace(parallel, small=made.small, shared=made.shared)
    log.warning("every all-reduce goes through NCCL: %s", problem or "another rank has no symmetric memory")
    return parallel


@dataclass(frozen=True, slots=True)
class _Made:
    """The memory that all ranks of a group share, for both kinds of sums."""

    small: SymmetricSums | None
    shared: SymmetricAddends | None


def _refused(device: torch.device, peers: Collection[int]) -> str:
    """Return the reason why this GPU cannot use symmetric memory; empty if it can."""
    if device.type != "cuda":
        return "symmetric memory needs GPUs"
    alone = [peer for peer in peers if peer != device.index and not torch.cuda.can_device_access_peer(device, peer)]
    return f"{device} cannot read the memory of cuda:{alone[0]}" if alone else ""


def _allocate(parallel: Parallel, device: torch.device, small_bytes: int, fused_bytes: int) -> _Made:
    from lora_kernels.peer_sums import meeting_places  # imports triton, which an engine on CPUs does not have

    start = _aligned(4 * parallel.world * meeting_places(small_bytes))
    memory = share_memory(parallel, device, start + _aligned(small_bytes) + 2 * fused_bytes)
    return _Made(
        SymmetricSums(memory, start, small_bytes) if small_bytes else None,
        SymmetricAddends(memory, start + _aligned(small_bytes), fused_bytes) if fused_bytes else None,
    )


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _PART) * _PART


def _tried(made: _Made, parallel: Parallel, device: torch.device) -> str:
    """Check sums of known results by the kernels that steps use; return the problem, empty if there is none."""
    try:
        differences = [] if made.small is None else [_small_difference(made.small, parallel, device)]
        if made.shared is not None:  # each buffer several times, with each shape
            shapes = [_CHECKED[number // 2 % len(_CHECKED)] for number in range(_CHECKS)]
            differences += [
                _fused_difference(made.shared, parallel, device, number, *shape) for number, shape in enumerate(shapes)
            ]
        wrong = [difference for difference in map(float, differences) if difference]
    except (RuntimeError, AttributeError) as error:
        return str(error).splitlines()[0]
    return f"a sum over symmetric memory is off by {wrong[0]}" if wrong else ""


def _small_difference(small: SymmetricSums, parallel: Parallel, device: torch.device) -> torch.Tensor:
    addends = [torch.arange(64, dtype=torch.float32, device=device) + rank for rank in range(parallel.world)]
    total = addends[parallel.rank].clone()
    small.all_reduce(total)
    return (total - torch.stack(addends).sum(0)).abs().max()


def _fused_difference(
    shared: SymmetricAddends, parallel: Parallel, device: torch.device, number: int, rows: int, columns: int
) -> torch.Tensor:
    """Return the largest error of a sum that a norm's kernel adds up. Small integers have exact sums in any order."""
    from lora_kernels.elementwise import add_norm  # imports triton, which an engine on CPUs does not have

    def addend(rank: int) -> torch.Tensor:
        numbers = torch.arange(rows * columns, device=device).view(rows, columns)
        return ((numbers * (rank + 3) + number) % 13).bfloat16()

    place = shared.addend(rows, columns, torch.bfloat16)
    if place is None:  # the setting allows no sums of this size
        return torch.zeros((), device=device)
    place.copy_(addend(parallel.rank))
    total, normed = torch.zeros_like(place), torch.empty_like(place)
    weight = torch.ones(columns, dtype=place.dtype, device=device)
    summed = shared.sum(place)
    add_norm(place, total, weight, 1e-5, normed, addends=summed.addresses if isinstance(summed, PartialSum) else None)
    expected = torch.stack([addend(rank) for rank in range(parallel.world)]).sum(0)
    return (total - expected).abs().max()
