"""How a batch's rows are cut for the LoRA kernels: each adapter's into tiles, each tile's rank into pieces.

A launch of a captured graph has room for a fixed number of tiles. What a shrink has to do follows from the tiles'
contents: programs share the pieces that there are, so that small ranks and empty tiles cost nothing. A piece is a tile
and one block of rank rows; which one it is, a program finds through a running count that the tiles carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from .forms import SHRINK, Form

TILE_FIELDS = 4  # slot, first row, rows, pieces of one target up to and with this tile
_FIELDS = tl.constexpr(TILE_FIELDS)
_FAR = tl.constexpr(1 << 28)  # more pieces than any batch has, times three still an int32


class Span(NamedTuple):
    """Rows ``[start, stop)`` use the adapter in ``slot`` of the tables, no module of which is above ``rank``.

    Slot 0, with rank 0, are rows without an adapter.
    """

    slot: int
    start: int
    stop: int
    rank: int


def tiles_needed(spans: Sequence[Span], form: Form) -> int:
    """Tiles of at most ``form`` rows that the spans are cut into."""
    return sum(-(-(span.stop - span.start) // form) for span in spans)


def write_tiles(spans: Sequence[Span], form: Form, out: npt.NDArray[np.int32]) -> None:
    """Fill ``out [capacity, 4]`` with tiles of at most ``form`` rows, in order, then with empty ones.

    Raises ``ValueError`` if there are more tiles than ``capacity``.
    """
    rows = SHRINK[form].rows
    tiles, pieces = [], 0
    for slot, start, stop, rank in spans:
        for first in range(start, stop, form):
            pieces += -(-rank // rows)
            tiles.append((slot, first, min(form, stop - first), pieces))
    if len(tiles) > len(out):
        raise ValueError(f"{len(tiles)} token tiles do not fit into {len(out)}")
    out[:] = (0, 0, 0, pieces)
    if tiles:
        out[: len(tiles)] = tiles


def token_tiles(spans: Sequence[Span], form: Form, capacity: int | None = None) -> torch.Tensor:
    """``write_tiles`` into a new tensor ``[capacity, 4]`` int32; without ``capacity``, into as many as there are."""
    out = np.empty((tiles_needed(spans, form) if capacity is None else capacity, TILE_FIELDS), dtype=np.int32)
    write_tiles(spans, form, out)
    return torch.from_numpy(out)


@triton.jit
def load_tile(tiles_ptr, number):
    """A tile's slot, first row and rows."""
    tile = tiles_ptr + number * _FIELDS
    return tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)


@triton.jit
def count_pieces(tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr):
    """How many pieces the tiles have: the targets' rows of A follow each other, none of them of more than the rank."""
    return NUM_TARGETS * tl.load(tiles_ptr + (num_tiles - 1) * _FIELDS + 3)


@triton.jit
def find_piece(piece, tiles_ptr, num_tiles, NUM_TARGETS: tl.constexpr, MOST_TILES: tl.constexpr):
    """The tile that a piece, one of ``count_pieces``, belongs to, and which of its blocks of rank rows it is.

    All counts are looked at side by side: a search would wait for memory at every step.
    """
    index = tl.arange(0, MOST_TILES)
    ends = NUM_TARGETS * tl.load(tiles_ptr + index * _FIELDS + 3, mask=index < num_tiles, other=_FAR)
    passed = ends <= piece
    return tl.sum(passed.to(tl.int32)), piece - tl.max(tl.where(passed, ends, 0))
