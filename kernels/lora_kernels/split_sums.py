"""A long sum split over several programs: the last one to arrive adds up the parts, always in the same order."""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl


@triton.jit
def add_up_splits(
    acc, parts_ptr, arrived_ptr, tile, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr
):  # fmt: skip
    """Return the whole sum of ``tile``, and whether this program has it: the one that arrives last.

    ``acc [BLOCK_N, BLOCK_M]`` float32 is this program's part, of ``SPLITS``.
    """
    last = True
    if SPLITS > 1:
        inside = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        parts = parts_ptr + tile.to(tl.int64) * (SPLITS * BLOCK_N * BLOCK_M) + inside
        tl.store(parts + split * (BLOCK_N * BLOCK_M), acc)
        tl.debug_barrier()  # all threads must have written their parts before one of them signals it
        last = tl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == SPLITS - 1
        if last:
            acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
            for index in tl.static_range(SPLITS):
                acc += tl.load(parts + index * (BLOCK_N * BLOCK_M), cache_modifier=".cg")
            tl.store(arrived_ptr + tile, 0)  # for the next product
    return acc, last


def split_buffers(x: torch.Tensor, tiles: int, splits: int, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the memory for parts of ``elements`` each, and the counters of arrived programs, on ``x``'s device.

    Without splits it is ``x`` itself, which nothing reads as such.
    """
    if splits == 1:
        return x, x
    parts = torch.empty(tiles * splits * elements, dtype=torch.float32, device=x.device)
    return parts, _arrived(x.device, triton.next_power_of_2(max(tiles, 1024)))


@cache
def _arrived(device: torch.device, tiles: int) -> torch.Tensor:
    """Return the counters of arrived programs, one for each tile; they are zero between products."""
    return torch.zeros(tiles, dtype=torch.int32, device=device)
