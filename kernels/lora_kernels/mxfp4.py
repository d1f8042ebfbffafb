"""Matrices in MXFP4 (OCP Microscaling Formats 1.0): values of E2M1, and a scale of E8M0 for each 32 of a row."""

from __future__ import annotations

import torch

# Values that share a scale.
MXFP4_BLOCK = 32
# Of codes 0 to 7; 8 more are negative.
_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantised(blocks: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrices ``[…, columns]`` of ``blocks […, columns / 32, 16]`` and ``scales […, columns / 32]``.

    Both are uint8. A byte has two values, the first one in its low bits. Raises ``ValueError`` for shapes that do not
    fit.
    """
    if blocks.shape != (*scales.shape, MXFP4_BLOCK // 2):
        raise ValueError(f"blocks are {tuple(blocks.shape)}, but scales are {tuple(scales.shape)}")
    values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], device=blocks.device)
    pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=1)  # by byte
    # A scale is the exponent of a float32: only the smallest one is not normal, and the largest one is no number.
    exponents = (scales.int() << 23).masked_fill_(scales == 0, 1 << 22)
    factors = exponents.view(torch.float32)
    return (pairs[blocks.int()].flatten(-2) * factors[..., None]).to(dtype).flatten(-2)
