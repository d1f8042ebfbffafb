"""The tiling of a batch for the LoRA kernels: each adapter's rows are cut into tiles, each tile's rank into work items.

A launch of a captured graph has room for a fixed number of tiles. A work item is a tile and one block of rank rows.
The persistent programs of a shrink share the work items of the batch, so that small ranks and empty tiles cost nothing.
A program locates its work item through a running count that the tiles carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from .kernel_variants import SHRINK, KernelVariant

# Fields of a tile: slot, first row, rows, and the running count of one target's work items, this tile's included.
TILE_FIELDS = 4
_FIELDS = tl.constexpr(TILE_FIELDS)
# Work items, more than any batch has; three times as many still fit into an int32.
_FAR = tl.constexpr(1 << 28)


class Span(NamedTuple):
    """A range of rows ``[start, stop)`` that use the adapter in ``slot``; ``rank`` bounds the rank of its modules.

    Rows without an adapter have slot 0 and rank 0.
    """

    slot: int
    start: int
    stop: int
    rank: int


def tiles_needed(spans: Sequence[Span], variant: KernelVariant) -> int:
    """Return the number of tiles of at most ``variant`` rows that the spans are cut into."""
    return sum(-(-(span.stop - span.start) // variant) for span in spans)


def write_tiles(spans: Sequence[Span], variant: KernelVariant, out: npt.NDArray[np.int32]) -> None:
    """Fill ``out [capacity, 4]`` with tiles of at most ``variant`` rows, in order, then with empty ones.

    ``out`` int32, fields as ``TILE_FIELDS`` says. Raises ``ValueError`` if there are more tiles than ``capacity``.
    """
    rows = SHRINK[variant].rows
    tiles, work_items = [], 0
    for slot, start, stop, rank in spans:
        for first in range(start, stop, variant):
            work_items += -(-rank // rows)
            tiles.append((slot, first, min(variant, stop - first), work_items))
    if len(tiles) > len(out):
        raise ValueError(f"{len(tiles)} token tiles do not fit into {len(out)}")
    out[:] = (0, 0, 0, work_items)
    if tiles:
        out[: len(tiles)] = tiles


def token_tiles(spans: Sequence[Span], variant: KernelVariant, capacity: int | None = None) -> torch.Tensor:
    """Return ``write_tiles``' tiles as a new tensor ``[capacity, 4]`` int32; by default it has no empty tiles."""
    out = np.empty((tiles_needed(spans, variant) if capacity is None else capacity, TILE_FIELDS), dtype=np.int32)
    write_tiles(spans, variant, out)
    return torch.from_numpy(out)


@triton.jit
def load_tile(tiles_ptr, number):
    """Load a tile's slot, first row and number of rows."""
    tile = tiles_ptr + number * _FIELDS
    return tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)


@triton.jit
def count_work_items(tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr):
    """Return the number of work items: A rows of all targets are contiguous, and no target has more than the rank."""
    return NUM_TARGETS * tl.load(tiles_ptr + (num_tiles - 1) * _FIELDS + 3)


@triton.jit
def find_work_item(item, tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr, MAX_TILES: tl.constexpr):
    """Return the tile of a work item and the index of its block of rank rows; ``item`` < ``count_work_items``.

    All counts are compared at once: a binary search would wait for memory at every step.
    """
    index = tl.arange(0, MAX_TILES)
    ends = NUM_TARGETS * tl.load(tiles_ptr + index * _FIELDS + 3, mask=index < num_tiles, other=_FAR)
    passed = ends <= item
    return tl.sum(passed.to(tl.int32)), item - tl.max(tl.where(passed, ends, 0))
