"""Matrices in MXFP4 (OCP Microscaling Formats 1.0): values of E2M1, and a scale of E8M0 for each 32 of a row.

Checkpoints have the values in order, two in a byte. In memory, 32 words of 16 bits have the values of four scales,
each four bits of a word's at ``PLACES``: a kernel converts two values at a time, by few instructions, and without an
exchange between threads. The words of all rows for the same four scales are adjacent, as are those scales, so that a
program reads what follows each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

# Values that share a scale.
MXFP4_BLOCK = 32
# Scales whose values share words.
MXFP4_PARTS = 4
# Bits of a word at which each part has its exponent and mantissa, and its sign. Those of bfloat16 are at 6 and 15: the
# values of the first two parts need one mask, which is the least number of shifts and masks that any places need
# (searched).
PLACES = ((6, 15), (3, 12), (0, 14), (9, 13))
# The largest scale by which values are multiplied at once: times 2^126, the next one is no bfloat16.
MXFP4_NARROW = 128
# Values of the codes 0 to 7; the codes 8 to 15 are their negatives.
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True, slots=True)
class Mxfp4Stack:
    """The matrices of a layer's experts, ``[experts, rows, columns]``.

    ``data`` is ``[experts, columns / 128, rows, 32]`` int16, and ``scale [experts, columns / 128, rows, 4]`` uint8.
    Columns are padded with zeros to a multiple of 128 in both. ``wide``: scales may be above ``MXFP4_NARROW``, which
    costs kernels another multiplication.
    """

    data: torch.Tensor
    scale: torch.Tensor
    columns: int
    wide: bool = False

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.data.shape[0], self.data.shape[2], self.columns))

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
        pad = MXFP4_PARTS * self.scale.shape[1] - scales.shape[1]
        codes = F.pad(torch.stack((blocks & 15, blocks >> 4), dim=-1).flatten(-2), (0, 0, 0, pad))
        parts = codes.int().unflatten(1, (-1, MXFP4_PARTS)).unbind(2)
        words = sum((part & 7) << low | (part >> 3) << sign for part, (low, sign) in zip(parts, PLACES, strict=True))
        self.data[expert, :, at].copy_(words.short().transpose(0, 1))
        self.scale[expert, :, at].copy_(F.pad(scales, (0, pad)).unflatten(1, (-1, MXFP4_PARTS)).transpose(0, 1))

    def dequantised(self, expert: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the matrices of an expert ``[rows, columns]`` in ``dtype``."""
        words = self.data[expert].int().transpose(0, 1)
        codes = torch.stack([(words >> low) & 7 | ((words >> sign) & 1) << 3 for low, sign in PLACES], dim=2)
        scales = self.scale[expert].transpose(0, 1).flatten(1)
        return _values(codes.flatten(1, 2), scales, dtype)[:, : self.columns]

    @classmethod
    def empty(cls, experts: int, rows: int, columns: int, device: torch.device, wide: bool = False) -> Mxfp4Stack:
        """Allocate the matrices of ``experts``; the caller fills all of them."""
        blocks = -(-columns // (MXFP4_PARTS * MXFP4_BLOCK))
        return cls(
            torch.empty(experts, blocks, rows, MXFP4_BLOCK, dtype=torch.int16, device=device),
            torch.empty(experts, blocks, rows, MXFP4_PARTS, dtype=torch.uint8, device=device),
            columns,
            wide,
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


def ptx_of_part(part: int, *, wide: bool) -> str:
    """Return PTX for two values of a part of words (``$1``) times factors (``$2``), all in bfloat16.

    The bits of E2M1 in bfloat16's places are a number that is smaller by 2^126. Factors are scales times that power,
    or, if ``wide``, scales: 2^126 is multiplied before.
    """
    low, sign = PLACES[part]
    if 6 - low == 15 - sign:
        bits = f"shl.b32 a, $1, {6 - low}; and.b32 a, a, 0x81C081C0;"
    else:
        shift = f"shl.b32 a, $1, {6 - low};" if low <= 6 else f"shr.u32 a, $1, {low - 6};"
        signs = f"shl.b32 b, $1, {15 - sign}; and.b32 b, b, 0x80008000;"
        bits = f"{shift} and.b32 a, a, 0x01C001C0; {signs} or.b32 a, a, b;"
    if wide:
        bits += " mov.b32 b, 0x7E807E80; mul.bf16x2 a, a, b;"
    return f"{{ .reg .b32 a, b; {bits} mul.bf16x2 $0, a, $2; }}"


def _values(codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values ``[…, blocks * 32]`` of ``codes […, blocks, 32]``, computed in float32."""
    values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=codes.device)
    return (values[codes.int()] * factors(scales)[..., None]).to(dtype).flatten(-2)
