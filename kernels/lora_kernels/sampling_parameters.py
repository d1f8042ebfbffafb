"""Sampling parameters of each row, in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

OVERFLOWED = -1  # in a token's place: the row's logits are not all finite
ROW = np.dtype(
    [
        ("seed", np.int64),
        ("position", np.int64),
        ("temperature", np.float32),
        ("top_p", np.float32),
        ("min_p", np.float32),
        ("top_k", np.int32),
    ]
)
ROW_WORDS = ROW.itemsize // 8  # rows travel as 64-bit words


def place(field: str) -> int:
    """Where a field lies in a row, in elements of the field's own size."""
    dtype, offset = ROW.fields[field][:2]  # type: ignore[index]
    return offset // dtype.itemsize


def column(rows: torch.Tensor, field: str) -> torch.Tensor:
    """A field of ``row_parameters``' rows: a view ``[rows]`` of the field's own type."""
    dtype = torch.from_numpy(np.empty(0, ROW[field])).dtype
    return rows.view(dtype)[:, place(field)]


@dataclass(frozen=True, slots=True)
class TokenMaskRows:
    """Which tokens each row may choose.

    ``packed`` int32: for each of ``rows`` the index of its mask, or -1 for any token; then the masks, ``words`` words
    each, with one bit for each token, the first in the lowest. Tokens beyond a mask are not allowed.
    """

    packed: torch.Tensor
    rows: int
    words: int

    def to(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> TokenMaskRows:
        """The same on another device."""
        return TokenMaskRows(copy(self.packed), self.rows, self.words)

    @property
    def index(self) -> torch.Tensor:
        """``[rows]`` int32."""
        return self.packed[: self.rows]

    @property
    def masks(self) -> torch.Tensor:
        """``[masks, words]`` int32."""
        return self.packed[self.rows :].view(-1, self.words)

    def allowed(self, vocab: int) -> torch.Tensor:
        """``[rows, vocab]`` bool."""
        bits = (self.masks[:, :, None] >> torch.arange(32, dtype=torch.int32, device=self.packed.device)) & 1
        of_masks = bits.flatten(1).bool()[:, :vocab]
        every = torch.ones(self.rows, vocab, dtype=torch.bool, device=self.packed.device)
        masked = self.index >= 0
        every[masked] = False
        every[masked, : of_masks.shape[1]] = of_masks[self.index[masked].long()]
        return every


def token_mask_rows(masks: Sequence[npt.NDArray[np.int32] | None], *, pinned: bool = False) -> TokenMaskRows:
    """One mask for each row, None for any token; at least one is not None. On the host, ``pinned`` for a GPU."""
    given = [mask for mask in masks if mask is not None]
    words, rows = len(given[0]), len(masks)
    tensor = torch.empty(rows + len(given) * words, dtype=torch.int32, pin_memory=pinned)
    packed = tensor.numpy()
    masked = np.array([mask is not None for mask in masks])
    packed[:rows] = np.where(masked, np.cumsum(masked) - 1, -1)
    np.concatenate(given, out=packed[rows:])
    return TokenMaskRows(tensor, rows, words)


def row_parameters(
    seeds: npt.ArrayLike,
    positions: npt.ArrayLike,
    temperatures: npt.ArrayLike,
    top_ps: npt.ArrayLike,
    min_ps: npt.ArrayLike,
    top_ks: npt.ArrayLike,
) -> torch.Tensor:
    """The parameters of ``sample_tokens``: ``[rows, ROW_WORDS]`` int64 on the host, one ``ROW`` per row of the logits.

    Temperature 0 is greedy; top-p 1, min-p 0 and top-k 0 keep everything.
    """
    seeds = np.asarray(seeds, dtype=np.int64)
    rows = np.zeros(len(seeds), dtype=ROW)
    rows["seed"], rows["position"] = seeds, positions
    rows["temperature"], rows["top_p"], rows["min_p"], rows["top_k"] = temperatures, top_ps, min_ps, top_ks
    return torch.from_numpy(rows.view(np.int64).reshape(len(rows), ROW_WORDS))
