"""LoRA factors in FP8 (E4M3): half the bytes of bfloat16 in every tier, and in every step.

Each row of A is divided by a power of two and the same row of B by another, whose product is the same for all rows of a
module and becomes part of the module's scale: kernels read no scales by row. A power of two loses nothing, because the
relative precision of E4M3 (3 bits of mantissa) is the same at every exponent, and an element that falls below its range
is less than 2^-17 of the largest one of its row. The product of a module changes by 3.7 % of its norm, whatever the
sizes of its elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lora_kernels.fp8_tensors import FP8, LARGEST


def quantise_factors(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return A ``[rank, in]`` and B ``[rank, out]`` rounded to E4M3 (in float32), and the scale of their product.

    ``scale * B^T A`` of the result is that of the arguments, but for rounding. Rows whose product is zero become zero.
    """
    rounded_a, (rounded_b,), scale = quantise_experts(a[None], [b[None]])
    return rounded_a[0], rounded_b[0], scale


def quantise_experts(
    a: torch.Tensor, outputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor], float]:
    """Return the same for the factors of all experts: A ``[experts, rank, in]`` and each B ``[experts, rank, out]``.

    A factor that all experts share has one expert; then a row of the other factor has the same power for all of them.
    Several B have the same A, and one scale.
    """
    wide_a, wide_b = a.double(), [b.double() for b in outputs]
    largest_a, largest_b = wide_a.abs().amax(2), torch.stack([b.abs().amax(2) for b in wide_b]).amax(0)
    if len(largest_a) != len(largest_b):
        largest_a, largest_b = largest_a.amax(0, keepdim=True), largest_b.amax(0, keepdim=True)
    products = largest_a * largest_b
    if not products.any():
        return (
            torch.zeros_like(a, dtype=torch.float32),
            [torch.zeros_like(b, dtype=torch.float32) for b in outputs],
            1.0,
        )
    # Of each row, A and B take equal parts of its range. One power of two more than fits, as exponents are rounded.
    exponent = torch.log2(products.amax() / LARGEST**2).ceil() + 1
    balance = torch.where(products > 0, largest_a / largest_b, 1.0)
    of_a = ((exponent + torch.log2(balance)) / 2).round()
    factor_a = torch.where(products > 0, torch.exp2(-of_a), 0.0)[:, :, None]
    factor_b = torch.where(products > 0, torch.exp2(of_a - exponent), 0.0)[:, :, None]
    return _rounded(wide_a * factor_a), [_rounded(b * factor_b) for b in wide_b], float(torch.exp2(exponent))


def _rounded(rows: torch.Tensor) -> torch.Tensor:
    return rows.float().to(FP8).float()
