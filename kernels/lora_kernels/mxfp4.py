"""Matrices in MXFP4 (OCP Microscaling Formats 1.0): values of E2M1, and a scale of E8M0 for each 32 of a row.

Checkpoints have the values in order, two in a byte. In memory, 32 words of 16 bits have the values of four scales,
those of the first one in the lowest four bits of each word: a kernel converts two values at a time, without an exchange
between threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

# Values that share a scale.
MXFP4_BLOCK = 32
# Scales whose values share words.
MXFP4_PARTS = 4
# Of codes 0 to 7; 8 more are negative.
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Mxfp4Stack:
    """The matrices of a layer's experts, ``[experts, rows, columns]``.

    ``data`` is ``[experts, rows, columns / 4]`` int16, and ``scale [experts, rows, columns / 32]`` uint8. Columns are
    padded with zeros to a multiple of 128 in both.
    """

    data: torch.Tensor
    scale: torch.Tensor
    columns: int

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.data.shape[:2], self.columns))

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes

    def __len__(self) -> int:
        return len(self.data)

    def place(self, expert: int, part: int, blocks: torch.Tensor, scales: torch.Tensor) -> None:
        """Copy a matrix of a checkpoint, ``blocks [rows, columns / 32, 16]`` and ``scales [rows, columns / 32]``, to
        rows of its own.
        """
        at = slice(part * len(scales), (part + 1) * len(scales))
        pad = self.scale.shape[2] - scales.shape[1]
        codes = F.pad(torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2), (0, 0, 0, pad))
        parts = codes.int().unflatten(1, (-1, MXFP4_PARTS)).unbind(2)
        words = sum(part << 4 * index for index, part in enumerate(parts))
        self.data[expert, at].copy_(words.short().flatten(1))
        self.scale[expert, at].copy_(F.pad(scales, (0, pad)))

    def dequantised(self, expert: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the matrices of an expert ``[rows, columns]`` in ``dtype``."""
        words = self.data[expert].int().unflatten(1, (-1, MXFP4_BLOCK))
        codes = torch.stack([(words >> 4 * part) & 15 for part in range(MXFP4_PARTS)], dim=2).flatten(1, 2)
        return _values(codes, self.scale[expert], dtype)[:, : self.columns]

    @classmethod
    def empty(cls, experts: int, rows: int, columns: int, device: torch.device) -> Mxfp4Stack:
        """Allocate the matrices of ``experts``; the caller fills all of them."""
        blocks = -(-columns // (MXFP4_PARTS * MXFP4_BLOCK))
        return cls(
            torch.empty(experts, rows, blocks * MXFP4_BLOCK, dtype=torch.int16, device=device),
            torch.empty(experts, rows, MXFP4_PARTS * blocks, dtype=torch.uint8, device=device),
            columns,
        )


def dequantised(blocks: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrices ``[…, columns]`` of ``blocks […, columns / 32, 16]`` and ``scales […, columns / 32]``.

    Both are uint8. A byte has two values, the first one in its low bits. Raises ``ValueError`` for shapes that do not
    fit.
    """
    if blocks.shape != (*scales.shape, MXFP4_BLOCK // 2):
        raise ValueError(f"blocks are {tuple(blocks.shape)}, but scales are {tuple(scales.shape)}")
    return _values(torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2), scales, dtype)


def factors(scales: torch.Tensor) -> torch.Tensor:
    """Return what scales (uint8) mean, in float32: the largest one is no number in MXFP4, and infinity here."""
    # A scale is the exponent of a float32: only the smallest one is not normal.
    return (scales.int() << 23).masked_fill_(scales == 0, 1 << 22).view(torch.float32)


def _values(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values ``[…, blocks * 32]`` of ``codes […, blocks, 32]``, computed in float32."""
    values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=codes.device)
    return (values[codes.int()] * factors(scales)[..., None]).to(dtype).flatten(-2)
