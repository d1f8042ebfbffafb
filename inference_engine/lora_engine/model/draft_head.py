"""The interface of draft heads: layers that guess the tokens after a text, without an adapter.

The row of position p reads the embedding of token p + 1 and a feature of position p, and predicts token p + 2. Features
are made of hidden states of the adapted model. Behind the last known token, the feature is the head's own output of the
row before.

A head's keys and values are not in the page pool. Each drafting sequence has a ring of its last ``RING`` rows,
allocated at the start, and a row attends to the last ``WINDOW`` ones. Heads are trained on short texts and decide
little over thousands of tokens, and a wrong guess costs a row, never a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from .rope import RotaryPairs, RotaryTable, rotate

# Rows of a sequence that its ring holds, and rows that a row attends to. The difference is written by one pass at most:
# a row never overwrites one that another row of its pass still reads.
RING, WINDOW = 1024, 768
# Rows of a sequence in one pass at most.
MAX_ROWS = RING - WINDOW
# Rows of a sequence in the passes that all decoding sequences share; a prompt's rows have a pass of their own.
DECODE_ROWS = 16
# Places of a ring that a pass reads are a multiple of this number: short texts need not read whole rings.
_COLUMNS = 64


class Rings:
    """The keys and values of a head's last rows, and their positions, for each of ``slots`` sequences."""

    def __init__(
        self,
        slots: int,
        kv_heads: int,
        head_dim: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        by_kernels: bool = False,
    ) -> None:
        """Create empty rings; ``by_kernels``: attention is computed by Triton kernels."""
        self.device, self.dtype, self._by_kernels = device, dtype, by_kernels
        # The last place of a ring takes the rows of padding, and is never read.
        shape = (slots, RING + 1, kv_heads, head_dim)
        self._keys = torch.zeros(shape, device=device, dtype=dtype)
        self._values = torch.zeros(shape, device=device, dtype=dtype)
        self._positions = torch.full((slots, RING + 1), -1, device=device)  # of the rows in the ring; -1: none

    @property
    def num_bytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes + self._positions.nbytes

    def clear(self, slot: int | None = None) -> None:
        """Empty the ring of a slot; None: all rings."""
        self._positions[slice(None) if slot is None else slot] = -1

    def attend(
        self,
        slots: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        positions: torch.Tensor,
        table: RotaryTable,
        pairs: RotaryPairs,
        longest: int,
        scale: float,
    ) -> torch.Tensor:
        """Rotate queries and keys, put keys and values into the rings, and attend to the window before each row.

        ``q [slots * rows, heads, dim]``, ``k`` and ``v`` ``[slots * rows, kv heads, dim]``; ``positions [slots,
        rows]``, -1 for padding. Returns ``[slots * rows, heads * dim]``. If no position of a ring is
        ``longest`` or more, its places from there on are not read.
        """
        if self._by_kernels:
            from lora_kernels.ring_attention import ring_attention  # needs triton, which a CPU engine does not have

            return ring_attention(
                q, k, v, table.cos, table.sin, slots, positions, self._keys, self._values, self._positions,
                window=WINDOW, scale=scale, rotary_dim=pairs.rotary_dim, interleaved=pairs.interleaved,
            )  # fmt: skip
        # The last drafts of a text that ends may lie behind the longest context.
        at = positions.clamp(0, len(table.cos) - 1).flatten()
        cos, sin = table.cos[at, None], table.sin[at, None]
        q, k = rotate(q, cos, sin, pairs), rotate(k, cos, sin, pairs)
        rows = positions.shape
        self._write(slots, positions, k.unflatten(0, rows), v.unflatten(0, rows))
        return self._attend(slots, q.unflatten(0, rows), positions, longest, scale).flatten(0, 1)

    def _write(self, slots: torch.Tensor, positions: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        places = torch.where(positions < 0, RING, positions % RING)
        self._keys[slots[:, None], places] = k
        self._values[slots[:, None], places] = v
        self._positions[slots[:, None], places] = positions

    def _attend(
        self, slots: torch.Tensor, q: torch.Tensor, positions: torch.Tensor, longest: int, scale: float
    ) -> torch.Tensor:
        columns = min(RING, -(-longest // _COLUMNS) * _COLUMNS)
        keys, values = self._keys[:, :columns][slots], self._values[:, :columns][slots]
        theirs = self._positions[:, :columns][slots][:, None]
        q = q.unflatten(2, (keys.shape[2], -1))
        scores = torch.einsum("srkgd,spkd->skgrp", q, keys).float() * scale
        at = positions[:, :, None]
        visible = (theirs >= 0) & (theirs <= at) & (theirs > at - WINDOW)
        scores = scores.masked_fill(~visible[:, None, None], float("-inf"))
        # A row of padding sees nothing: its weights are not numbers, and its output is never read.
        weights = scores.softmax(-1).nan_to_num().to(values.dtype)
        return torch.einsum("skgrp,spkd->srkgd", weights, values).flatten(2)


class DraftHead(ABC):
    """A head on the base model's device, with a ring of keys and values for each of ``slots`` sequences."""

    def __init__(self, rings: Rings, slots: int, hidden_size: int, feature_layers: tuple[int, ...]) -> None:
        """Create a head; its features are made of the inputs of ``feature_layers``."""
        self.rings, self.slots = rings, slots
        self.hidden_size, self.feature_layers = hidden_size, feature_layers
        self.device, self.dtype = rings.device, rings.dtype

    @abstractmethod
    def fuse(self, states: torch.Tensor) -> torch.Tensor:
        """Return features ``[…, hidden]`` of the base model's hidden states ``[…, layers * hidden]``."""

    @abstractmethod
    def run(
        self,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        features: torch.Tensor,
        positions: torch.Tensor,
        longest: int = RING,
    ) -> torch.Tensor:
        """Run rows ``[slots, rows]`` and return their outputs ``[slots, rows, hidden]``, features of further rows.

        ``tokens`` are those after ``positions``. Rows of padding have position -1. Each slot is there once, with at
        most ``MAX_ROWS`` rows, in ascending order of positions. If no position of a ring is ``longest`` or more, its
        places from there on are not read.
        """

    @abstractmethod
    def likeliest(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the base model's tokens that are likeliest by outputs ``[…, hidden]``."""

    def clear(self, slot: int) -> None:
        """Empty the ring of a slot."""
        self.rings.clear(slot)

    def run_largest(self) -> None:
        """Run the largest passes, to measure the memory that they take, and leave the rings empty."""
        for slots, rows in ((self.slots, DECODE_ROWS), (1, MAX_ROWS)):
            zeros = torch.zeros(slots, rows, dtype=torch.int64, device=self.device)
            features = torch.zeros(slots, rows, self.hidden_size, device=self.device, dtype=self.dtype)
            positions = torch.arange(rows, device=self.device).expand(slots, -1)
            outputs = self.run(torch.arange(slots, device=self.device), zeros, features, positions)
            self.likeliest(outputs[:, -1])
        self.rings.clear()
