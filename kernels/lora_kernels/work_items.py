"""How a batch's rows are cut for the LoRA kernels: each adapter's into tiles, each tile's rank into work items.

A launch of a captured graph has room for a fixed number of tiles. What a shrink has to do follows from the tiles'
contents: persistent programs share the work items that there are, so that small ranks and empty tiles cost nothing. A
work item is a tile and one block of rank rows; a program finds it through a running count that the tiles carry.
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

TILE_FIELDS = 4  # slot, first row, rows, work items of one target up to and with this tile
_FIELDS = tl.constexpr(TILE_FIELDS)
_FAR = tl.constexpr(1 << 28)  # more work items than any batch has, times three still an int32


class Span(NamedTuple):
    """Rows ``[start, stop)`` use the adapter in ``slot`` of the tables, no module of which is above ``rank``.

    Slot 0, with rank 0, are rows without an adapter.
    """

    slot: int
    start: int
    stop: int
    rank: int


def tiles_needed(spans: Sequence[Span], variant: KernelVariant) -> int:
    """Tiles of at most ``variant`` rows that the spans are cut into."""
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
    """``write_tiles`` into a new tensor ``[capacity, 4]`` int32; without ``capacity``, into as many as there are."""
    out = np.empty((tiles_needed(spans, variant) if capacity is None else capacity, TILE_FIELDS), dtype=np.int32)
    write_tiles(spans, variant, out)
    return torch.from_numpy(out)


@triton.jit
def load_tile(tiles_ptr, number):
    """A tile's slot, first row and rows."""
    tile = tiles_ptr + number * _FIELDS
    return tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)


@triton.jit
def count_work_items(tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr):
    """Number of work items: rows of A of all targets follow each other, none has more rows than the rank."""
    return NUM_TARGETS * tl.load(tiles_ptr + (num_tiles - 1) * _FIELDS + 3)


@triton.jit
def find_work_item(item, tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr, MAX_TILES: tl.constexpr):
    """The tile that a work item, one of ``count_work_items``, belongs to, and which of its blocks of rank rows it is.

    All counts are compared at once: a binary search would wait for memory at every step.
    """
    index = tl.arange(0, MAX_TILES)
    ends = NUM_TARGETS * tl.load(tiles_ptr + index * _FIELDS + 3, mask=index < num_tiles, other=_FAR)
    passed = ends <= item
    return tl.sum(passed.to(tl.int32)), item - tl.max(tl.where(passed, ends, 0))
