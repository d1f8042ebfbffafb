"""The places of a sequence's recurrent and convolution state in pages of the pool.

A layer's state is a matrix of rows of equal length. Rows fill a sequence's state pages one after the other; a page has
whole rows only, so that a kernel finds a row with one look-up in the sequence's page table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch

# Tokens of a chunk of the gated delta rule (``gated_delta.py``).
CHUNK = 64
# Elements of which the inputs of a draft row are a multiple, so that rows are aligned.
_ALIGNMENT = 16


class RunField(IntEnum):
    """The lines of a table of runs ``[4, decode rows]``; a run is a sequence's rows in a step, one after the other.

    A run's values are in the column of its first row. Its last ``DRAFTS`` rows are drafts: the state in the pool stays
    the one after the row before them, and their inputs are kept in the sequence's slot. At the beginning of a run the
    first ``REPLAYS`` kept rows, which were accepted, are taken into the state. In a run of drafts alone they are not
    written to the pool: its rows are kept behind them.
    """

    ROWS = 0  # number of rows; 0 in columns of other rows
    DRAFTS = 1
    REPLAYS = 2
    SLOT = 3


@dataclass(frozen=True, slots=True)
class DecodeRuns:
    """The runs of a step: ``table [4, decode rows]`` int32 (``RunField``), and the kept inputs of drafts ``[slots,
    drafts, width]`` of one layer (``DeltaShape.kept_columns``); None: no run has drafts.
    """

    table: torch.Tensor
    kept: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class StateRows:
    """The rows of one layer's state: ``count`` rows of ``length`` elements, from row ``first`` of the pages on.

    ``page_elems`` is the number of elements in a page, of the state's dtype; ``first_page`` the index in the sequence's
    page table of the page with row 0.
    """

    length: int
    count: int
    page_elems: int
    first: int = 0
    first_page: int = 0

    def __post_init__(self) -> None:
        if self.length > self.page_elems:
            raise ValueError(
                f"a row of {self.length} elements of state does not fit into a page of {self.page_elems}; start the "
                "engine with larger pages (--page-tokens)"
            )

    @property
    def per_page(self) -> int:
        """Number of rows in a page."""
        return self.page_elems // self.length

    @property
    def end_page(self) -> int:
        """Index in the page table behind the layer's last page."""
        return self.first_page - (-(self.first + self.count) // self.per_page)


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """The heads of a gated delta layer on one rank; each key head serves ``heads / key_heads`` value heads.

    ``beta_scale``: factor of the rate, 2 where a state's eigenvalues may be negative.
    """

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    eps: float
    beta_scale: float = 1.0

    @property
    def channels(self) -> int:
        """Number of columns of queries, keys and values together."""
        return 2 * self.key_heads * self.key_dim + self.heads * self.value_dim

    @property
    def kept_columns(self) -> tuple[int, int, int, int]:
        """First columns of a draft row's kept inputs after those of its convolution, and the width of all.

        They are a key and a value of each value head, after the convolution, and the outputs of the projections of
        decays and of rates. Value heads with one key keep it apart: the program of a head reads and writes its own.
        """
        keys = self.channels
        values = keys + self.heads * self.key_dim
        gates = values + self.heads * self.value_dim
        return keys, values, gates, -(-(gates + 2 * self.heads) // _ALIGNMENT) * _ALIGNMENT


def segment(channels: int) -> int:
    """Return the number of channels in a row of convolution state: the largest power of two up to 64 that divides."""
    return min(channels & -channels, 64)
