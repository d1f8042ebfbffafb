"""Kernels by which the GPUs of a host meet, and add up small tensors, through memory that all of them have mapped.

Each GPU has flags, one for each meeting place and GPU. To meet, a GPU raises its flags at all others, then waits for
theirs at its place and lowers them. The n-th program of a kernel meets the n-th programs on the other GPUs, so all of
them must launch the same kernels in the same order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Bytes that a program of ``sum_in_place`` adds up: 16 of each GPU's for each of 256 threads.
SUM_BYTES = 4096
# Bytes that a thread reads at once.
_READ_BYTES = 16


def meeting_places(num_bytes: int) -> int:
    """Return the number of meeting places that ``meet``, and sums of up to ``num_bytes``, need."""
    return 1 + -(-num_bytes // SUM_BYTES)


@triton.jit
def _meet(flags_ptr, place, rank, GPUS: tl.constexpr):
    for index in tl.static_range(GPUS):
        if index != rank:
            theirs = tl.load(flags_ptr + index).to(tl.pointer_type(tl.int32)) + place * GPUS + rank
            # A flag that is still up was not seen yet: its GPU has not left the last meeting.
            raised = tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys")
            while raised != 0:
                raised = tl.atomic_cas(theirs, 0, 1, sem="release", scope="sys")
    local = tl.load(flags_ptr + rank).to(tl.pointer_type(tl.int32)) + place * GPUS
    for index in tl.static_range(GPUS):
        if index != rank:
            raised = tl.atomic_cas(local + index, 1, 0, sem="acquire", scope="sys")
            while raised != 1:
                raised = tl.atomic_cas(local + index, 1, 0, sem="acquire", scope="sys")


@triton.jit(do_not_specialize=["rank"])
def _meet_kernel(flags_ptr, rank, GPUS: tl.constexpr):
    _meet(flags_ptr, 0, rank, GPUS)


@triton.jit(do_not_specialize=["reads", "rank"])
def _sum_kernel(x_ptr, memory_ptr, flags_ptr, reads, rank, GPUS: tl.constexpr, BLOCK: tl.constexpr, READ: tl.constexpr):
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    ok = offsets < reads * READ
    local = tl.multiple_of(tl.load(memory_ptr + rank).to(tl.pointer_type(x_ptr.dtype.element_ty)), 16)
    tl.store(local + offsets, tl.load(x_ptr + offsets, mask=ok, other=0.0), mask=ok)
    tl.debug_barrier()
    _meet(flags_ptr, 1 + program, rank, GPUS)
    tl.debug_barrier()
    total = tl.zeros((BLOCK,), tl.float32)
    for index in tl.static_range(GPUS):
        part = tl.multiple_of(tl.load(memory_ptr + index).to(tl.pointer_type(x_ptr.dtype.element_ty)), 16)
        # Not through the L1 cache, which does not know of other GPUs' writes.
        total += tl.load(part + offsets, mask=ok, other=0.0, cache_modifier=".cg").to(tl.float32)
    tl.store(x_ptr + offsets, total.to(x_ptr.dtype.element_ty), mask=ok)
    tl.debug_barrier()
    _meet(flags_ptr, 1 + program, rank, GPUS)  # the next sum overwrites the memory


def meet(flags: torch.Tensor, rank: int) -> None:
    """Wait, in the order of the stream, until the streams of all GPUs are here; they see all that was written before.

    ``flags [n]`` int64: the addresses of all GPUs' flags, this one's at ``rank``; each ``[places, n]`` int32, and zero
    at first.
    """
    _meet_kernel[(1,)](flags, rank, GPUS=len(flags), num_warps=1)


def sum_in_place(x: torch.Tensor, memory: torch.Tensor, flags: torch.Tensor, rank: int) -> None:
    """Replace ``x`` by its sum over all GPUs, computed in float32 in their order and rounded to its dtype.

    ``memory [n]`` int64: the addresses of memory of all GPUs, each of the size of ``x`` at least; for ``flags`` see
    ``meet``. Raises ``ValueError`` if ``x`` is not contiguous, or its size no multiple of 16 bytes.
    """
    if not x.is_contiguous() or x.nbytes % _READ_BYTES:
        raise ValueError(
            f"x is {tuple(x.shape)} {x.dtype} with strides {x.stride()}, but must be contiguous, of 16 n bytes"
        )
    block, read = SUM_BYTES // x.dtype.itemsize, _READ_BYTES // x.dtype.itemsize
    grid = (triton.cdiv(x.numel(), block),)
    _sum_kernel[grid](x, memory, flags, x.numel() // read, rank, GPUS=len(flags), BLOCK=block, READ=read, num_warps=8)
