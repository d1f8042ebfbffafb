"""Matrices and activations in FP8 (E4M3) with their scales. Needs no Triton."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # of E4M3
SMALLEST_SCALE = 1e-10 / LARGEST  # of a row of zeros
BLOCK = 128  # rows and columns that share a scale in checkpoints of blocks; columns of an activation then, too
MULTIPLE = 16  # of both sizes of a matrix that FP8 products take


@dataclass(frozen=True, slots=True)
class Fp8Matrix:
    """Weights ``[out, in]``: ``data`` in E4M3 times ``scale``, float32.

    ``scale`` is ``[out]``, or ``[out / 128, in / 128]`` (rounded up) of blocks. ``input_scale`` ``[1]`` float32 is the
    scale of all activations, where the checkpoint has one; else each token (and block of columns) has its own.
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
        """How many columns of an activation share a scale."""
        return BLOCK if self.in_blocks else self.shape[1]

    def dequantised(self, dtype: torch.dtype) -> torch.Tensor:
        """``[out, in]``, computed in float32."""
        scale = self.scale[:, None]
        if self.in_blocks:
            rows, columns = self.shape
            scale = self.scale.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :columns]
        return self.data.float().mul_(scale).to(dtype)

    def to(self, device: torch.device) -> Fp8Matrix:
        static = None if self.input_scale is None else self.input_scale.to(device)
        return Fp8Matrix(self.data.to(device).contiguous(), self.scale.to(device).contiguous(), static)


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """Activations ``[tokens, in]``: ``data`` in E4M3 times ``scale [tokens, groups]`` float32.

    A group has ``group`` columns. ``full`` is what they were before, where somebody reads that too (adapters do).
    """

    data: torch.Tensor
    scale: torch.Tensor
    group: int
    full: torch.Tensor | None = None
    static: torch.Tensor | None = None  # the one scale that was given

    @property
    def shape(self) -> torch.Size:
        return self.data.shape

    def made_for(self, matrix: Fp8Matrix) -> bool:
        """Whether a product with ``matrix`` takes these."""
        return self.group == matrix.group and self.static is matrix.input_scale

    @classmethod
    def empty(cls, tokens: int, matrix: Fp8Matrix, full: torch.Tensor | None) -> Fp8Rows:
        """To be filled, for a product with ``matrix``."""
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
    """Whether FP8 products take a matrix of these sizes."""
    return matrix.shape[0] % MULTIPLE == 0 and matrix.shape[1] % MULTIPLE == 0


def quantise(weight: torch.Tensor) -> Fp8Matrix:
    """A matrix with a scale for each output channel, chosen so that its largest element is E4M3's largest number."""
    wide = weight.to(torch.float32, copy=True)
    scale = wide.abs().amax(dim=1).div_(LARGEST).clamp_(min=SMALLEST_SCALE)
    return Fp8Matrix(wide.div_(scale[:, None]).to(FP8), scale)


def concatenated(parts: Sequence[Fp8Matrix]) -> Fp8Matrix | None:
    """The parts' rows one after the other; None if their scales do not allow it."""
    if len(parts) == 1:
        return parts[0]
    blocks = parts[0].in_blocks
    if any(part.in_blocks != blocks for part in parts) or (
        blocks and any(part.shape[0] % BLOCK for part in parts[:-1])
    ):
        return None
    statics = [part.input_scale for part in parts if part.input_scale is not None]
    static = torch.stack(statics).amax(dim=0) if len(statics) == len(parts) else None
    # torch cannot concatenate FP8 on every device; bytes it can.
    data = torch.cat([part.data.view(torch.uint8) for part in parts]).view(FP8)
    return Fp8Matrix(data, torch.cat([part.scale for part in parts]), static)


def rows_of(matrix: Fp8Matrix, start: int, stop: int) -> Fp8Matrix | None:
    """Some output channels; None if a block of scales would be cut."""
    if not matrix.in_blocks:
        return Fp8Matrix(matrix.data[start:stop], matrix.scale[start:stop], matrix.input_scale)
    if start % BLOCK or (stop % BLOCK and stop != matrix.shape[0]):
        return None
    return Fp8Matrix(matrix.data[start:stop], matrix.scale[start // BLOCK : -(-stop // BLOCK)], matrix.input_scale)


def columns_of(matrix: Fp8Matrix, start: int, stop: int) -> Fp8Matrix | None:
    """Some input features; None if a block of scales would be cut."""
    if not matrix.in_blocks:
        return Fp8Matrix(matrix.data[:, start:stop], matrix.scale, matrix.input_scale)
    if start % BLOCK or (stop % BLOCK and stop != matrix.shape[1]):
        return None
    scale = matrix.scale[:, start // BLOCK : -(-stop // BLOCK)]
    return Fp8Matrix(matrix.data[:, start:stop], scale, matrix.input_scale)
