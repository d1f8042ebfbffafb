"""The sampling parameters and token masks of a batch's rows, packed into tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

# Sampled instead of a token id if the row's logits are not all finite.
OVERFLOWED = -1
# Layout of one row's parameters, shared by host and kernels.
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
# 64-bit words in a row: rows are copied to the device as int64.
ROW_WORDS = ROW.itemsize // 8


def place(field: str) -> int:
    """Return a field's offset in a row, in elements of the field's size."""
    dtype, offset = ROW.fields[field][:2]  # type: ignore[index]
    return offset // dtype.itemsize


def column(rows: torch.Tensor, field: str) -> torch.Tensor:
    """Return a field of all rows of ``row_parameters``: a view ``[rows]`` of the field's dtype."""
    dtype = torch.from_numpy(np.empty(0, ROW[field])).dtype
    return rows.view(dtype)[:, place(field)]


@dataclass(frozen=True, slots=True)
class TokenMaskRows:
    """The masks of the tokens that each row may sample.

    ``packed`` int32 holds, for each of ``rows``, the index of its mask (-1: any token), then the masks of ``words``
    words each. A mask has one bit for each token, the first in the lowest bit. Tokens beyond a mask are not allowed.
    """

    packed: torch.Tensor
    rows: int
    words: int

    def to(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> TokenMaskRows:
        """Return a copy of the parameters on another device, made by ``copy``."""
        return TokenMaskRows(copy(self.packed), self.rows, self.words)

    @property
    def index(self) -> torch.Tensor:
        """Index of each row's mask, ``[rows]`` int32; -1 for any token."""
        return self.packed[: self.rows]

    @property
    def masks(self) -> torch.Tensor:
        """Masks as a view ``[masks, words]`` int32."""
        return self.packed[self.rows :].view(-1, self.words)

    def allowed(self, vocab: int) -> torch.Tensor:
        """Return the allowed tokens as ``[rows, vocab]`` bool."""
        bits = (self.masks[:, :, None] >> torch.arange(32, dtype=torch.int32, device=self.packed.device)) & 1
        of_masks = bits.flatten(1).bool()[:, :vocab]
        every = torch.ones(self.rows, vocab, dtype=torch.bool, device=self.packed.device)
        masked = self.index >= 0
        every[masked] = False
        every[masked, : of_masks.shape[1]] = of_masks[self.index[masked].long()]
        return every


def token_mask_rows(masks: Sequence[npt.NDArray[np.int32] | None], *, pinned: bool = False) -> TokenMaskRows:
    """Pack one mask for each row (None: any token) on the host; ``pinned``: in page-locked memory, for a GPU.

    At least one mask must not be None.
    """
    present = [mask for mask in masks if mask is not None]
    words, rows = len(present[0]), len(masks)
    tensor = torch.empty(rows + len(present) * words, dtype=torch.int32, pin_memory=pinned)
    packed = tensor.numpy()
    masked = np.array([mask is not None for mask in masks])
    packed[:rows] = np.where(masked, np.cumsum(masked) - 1, -1)
    np.concatenate(present, out=packed[rows:])
    return TokenMaskRows(tensor, rows, words)


def row_parameters(
    seeds: npt.ArrayLike,
    positions: npt.ArrayLike,
    temperatures: npt.ArrayLike,
    top_ps: npt.ArrayLike,
    min_ps: npt.ArrayLike,
    top_ks: npt.ArrayLike,
) -> torch.Tensor:
    """Pack the parameters of ``sample_tokens``, one ``ROW`` per row of logits: ``[rows, ROW_WORDS]`` int64 on the host.

    Temperature 0 is greedy; top-p 1, min-p 0 and top-k 0 keep every token.
    """
    seeds = np.asarray(seeds, dtype=np.int64)
    rows = np.zeros(len(seeds), dtype=ROW)
    rows["seed"], rows["position"] = seeds, positions
    rows["temperature"], rows["top_p"], rows["min_p"], rows["top_k"] = temperatures, top_ps, min_ps, top_ks
    return torch.from_numpy(rows.view(np.int64).reshape(len(rows), ROW_WORDS))
