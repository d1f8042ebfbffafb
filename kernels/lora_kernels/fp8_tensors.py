"""Matrices and activations in FP8 (E4M3) with their scales; this module does not need Triton."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

FP8 = torch.float8_e4m3fn
# The largest number of E4M3.
LARGEST = 448.0
# Lower bound of a scale, for a row of zeros.
SMALLEST_SCALE = 1e-10 / LARGEST
# Rows and columns that share a scale in block-quantised checkpoints; activations then share it over as many columns.
BLOCK = 128
# Both dimensions of a matrix must be multiples of this: FP8 products require it.
MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class Fp8Matrix:
    """A weight matrix ``[out, in]``: ``data`` in E4M3 times ``scale``, float32.

    ``scale`` is ``[out]``, or ``[out / 128, in / 128]`` (rounded up) for blocks. ``input_scale`` ``[1]`` float32 is the
    scale of all activations, if the checkpoint has one; otherwise each token (and block of columns) has its own.
    """

    data: torch.Tensor
    scale: torch.Tensor
    input_scale: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes

    @property
    def in_blocks(self) -> bool:
        return self.scale.dim() == 2

    @property
    def group(self) -> int:
        """Number of columns of an activation that share a scale."""
        return BLOCK if self.in_blocks else self.shape[1]

    def dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the matrix ``[out, in]`` in ``dtype``, computed in float32."""
        scale = self.scale[:, None]
        if self.in_blocks:
            rows, columns = self.shape
            scale = self.scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
        return self.data.float().mul_(scale).to(dtype)

    def to(self, device: torch.device) -> Fp8Matrix:
        static = None if self.input_scale is None else self.input_scale.to(device)
        return Fp8Matrix(self.data.to(device).contiguous(), self.scale.to(device).contiguous(), static)


@dataclass(frozen=True, slots=True)
class Fp8Stack:
    """The matrices of a layer's experts: ``data [experts, parts * out, in]`` in E4M3 times ``scale``, float32.

    ``scale`` is ``[experts, parts * out]``, or ``[experts, parts, out / 128, in / 128]`` (rounded up) for blocks: each
    of the ``parts`` matrices of an expert has blocks of its own.
    """

    data: torch.Tensor
    scale: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.scale.nbytes

    @property
    def in_blocks(self) -> bool:
        return self.scale.dim() == 4

    @property
    def first(self) -> Fp8Matrix:
        """The matrices of the first expert: activations are quantised for any expert as for these."""
        return Fp8Matrix(self.data[0], self.scale[0, 0] if self.in_blocks else self.scale[0])

    def __len__(self) -> int:
        return len(self.data)

    def place(self, expert: int, part: int, matrix: Fp8Matrix) -> None:
        """Copy a matrix ``[out, in]`` to its place. Its scales must be those of this stack's form."""
        rows = matrix.shape[0]
        at = slice(part * rows, (part + 1) * rows)
        # torch cannot copy FP8 between all devices, but it can copy bytes.
        self.data.view(torch.uint8)[expert, at].copy_(matrix.data.view(torch.uint8))
        self.scale[expert, part if self.in_blocks else at].copy_(matrix.scale)

    def dequantised(self, expert: int, dtype: torch.dtype) -> torch.Tensor:
        """Return the matrices of an expert ``[parts * out, in]`` in ``dtype``, computed in float32."""
        if not self.in_blocks:
            return Fp8Matrix(self.data[expert], self.scale[expert]).dequantised(dtype)
        parts = self.data[expert].chunk(self.scale.shape[1])
        scales = self.scale[expert]
        return torch.cat([Fp8Matrix(part, scale).dequantised(dtype) for part, scale in zip(parts, scales, strict=True)])

    @classmethod
    def empty(
        cls, experts: int, parts: int, rows: int, columns: int, in_blocks: bool, device: torch.device
    ) -> Fp8Stack:
        """Allocate the matrices of ``experts``, each with ``parts`` of ``[rows, columns]``; the caller fills them."""
        blocks = (parts, -(-rows // BLOCK), -(-columns // BLOCK))
        return cls(
            torch.empty(experts, parts * rows, columns, dtype=FP8, device=device),
            torch.empty(experts, *(blocks if in_blocks else (parts * rows,)), dtype=torch.float32, device=device),
        )


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """A batch of activations ``[tokens, in]``: ``data`` in E4M3 times ``scale [tokens, groups]`` float32.

    A group has ``group`` columns. ``full`` holds the unquantised activations, if they are read too (by adapters).
    ``static`` is the matrix's ``input_scale`` that was used, if it has one.
    """

    data: torch.Tensor
    scale: torch.Tensor
    group: int
    full: torch.Tensor | None = None
    static: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    def __getitem__(self, rows: slice) -> Fp8Rows:
        full = None if self.full is None else self.full[rows]
        return Fp8Rows(self.data[rows], self.scale[rows], self.group, full, self.static)

    def made_for(self, matrix: Fp8Matrix) -> bool:
        """Return whether a product with ``matrix`` accepts these rows."""
        return self.group == matrix.group and self.static is matrix.input_scale

    @classmethod
    def empty(cls, tokens: int, matrix: Fp8Matrix, full: torch.Tensor | None) -> Fp8Rows:
        """Allocate rows for a product with ``matrix``; the caller fills them."""
        columns, device = matrix.shape[1], matrix.data.device
        groups = -(-columns // matrix.group)
        return cls(
            torch.empty(tokens, columns, dtype=FP8, device=device),
            torch.empty(tokens, groups, dtype=torch.float32, device=device),
            matrix.group,
            full,
            matrix.input_scale,
        )


def fits(matrix: torch.Tensor | Fp8Matrix) -> bool:
    """Return whether FP8 products accept a matrix of this shape."""
    return matrix.shape[0] % MULTIPLE == 0 and matrix.shape[1] % MULTIPLE == 0


def quantise(weight: torch.Tensor) -> Fp8Matrix:
    """Quantise a matrix with a scale for each output channel that maps its largest element to E4M3's largest number."""
    wide = weight.to(torch.float32, copy=True)
    scale = wide.abs().amax(dim=1).div_(LARGEST).clamp_(min=SMALLEST_SCALE)
    return Fp8Matrix(wide.div_(scale[:, None]).to(FP8), scale)


def concatenated(parts: Sequence[Fp8Matrix]) -> Fp8Matrix | None:
    """Concatenate the rows of all parts; None if their scales do not allow it."""
    if len(parts) == 1:
        return parts[0]
    blocks = parts[0].in_blocks
    if any(part.in_blocks != blocks for part in parts) or (
        blocks and any(part.shape[0] % BLOCK for part in parts[:-1])
    ):
        return None
    statics = [part.input_scale for part in parts if part.input_scale is not None]
    static = torch.stack(statics).amax(dim=0) if len(statics) == len(parts) else None
    # torch cannot concatenate FP8 on every device, but it can concatenate bytes.
    data = torch.cat([part.data.view(torch.uint8) for part in parts]).view(FP8)
    return Fp8Matrix(data, torch.cat([part.scale for part in parts]), static)


def rows_of(matrix: Fp8Matrix, start: int, stop: int) -> Fp8Matrix | None:
    """Return output channels ``[start, stop)``; None if that would cut a block of scales."""
    if not matrix.in_blocks:
        return Fp8Matrix(matrix.data[start:stop], matrix.scale[start:stop], matrix.input_scale)
    if start % BLOCK or (stop % BLOCK and stop != matrix.shape[0]):
        return None
    return Fp8Matrix(matrix.data[start:stop], matrix.scale[start // BLOCK : -(-stop // BLOCK)], matrix.input_scale)


def columns_of(matrix: Fp8Matrix, start: int, stop: int) -> Fp8Matrix | None:
    """Return input features ``[start, stop)``; None if that would cut a block of scales."""
    if not matrix.in_blocks:
        return Fp8Matrix(matrix.data[:, start:stop], matrix.scale, matrix.input_scale)
    if start % BLOCK or (stop % BLOCK and stop != matrix.shape[1]):
        return None
    scale = matrix.scale[:, start // BLOCK : -(-stop // BLOCK)]
    return Fp8Matrix(matrix.data[:, start:stop], scale, matrix.input_scale)
