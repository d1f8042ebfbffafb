"""A barrier of the ranks of a host within a kernel that reads what the kernel before has written on every rank."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True, slots=True)
class RankBarrier:
    """The memory of a barrier, which all sums of a rank share. All numbers are zero at first.

    Every rank launches the same kernels with it in the same order, and two of them never run at the same time.
    """

    flags: torch.Tensor  # [ranks - 1] int32, where each other rank writes the number of the barrier that it has reached
    places: torch.Tensor  # [ranks - 1] int64: the address of this rank's flag on each other rank
    passed: torch.Tensor  # [2] int32: barriers that this rank has reached; programs that have read this number
    memory: object = None  # keeps the places mapped

    @property
    def ranks(self) -> int:
        return len(self.flags) + 1


@triton.jit
def wait_for_ranks(flags_ptr, places_ptr, passed_ptr, RANKS: tl.constexpr):
    """Wait until all kernels before this one have ended on every rank; their output may be read afterwards.

    All programs of a one-dimensional grid call it once, after ``grid_dependency_wait``. Each writes the barrier's
    number to the other ranks before it waits, so it suffices that any one program of every rank runs. Another rank may
    be one barrier ahead, so its number may be larger by one. Numbers wrap around, hence the subtraction.
    """
    number = tl.atomic_add(passed_ptr, 0, sem="acquire", scope="gpu") + 1
    for other in tl.static_range(RANKS - 1):
        place = tl.load(places_ptr + other).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(place, number, sem="release", scope="sys")
    # The last program that has read the number increments it, while the others' answers are on their way.
    if tl.atomic_add(passed_ptr + 1, 1, sem="relaxed", scope="gpu") == tl.num_programs(0) - 1:
        tl.store(passed_ptr + 1, 0)
        tl.store(passed_ptr, number)
    for other in tl.static_range(RANKS - 1):
        reached = tl.atomic_add(flags_ptr + other, 0, sem="acquire", scope="sys")
        while reached - number < 0:
            reached = tl.atomic_add(flags_ptr + other, 0, sem="acquire", scope="sys")
