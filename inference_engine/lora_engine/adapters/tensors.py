"""Conversions of an adapter's tensors to torch, and of rows of any length to rows of the pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.peft_format import SafetensorsFile
from lora_kernels.fp8_tensors import FP8


def as_torch(array: npt.NDArray[Any]) -> torch.Tensor:
    """Convert an array of ``SafetensorsFile``: float32, float16, or bfloat16, which numpy carries as uint16."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array).view(torch.bfloat16)
    return torch.from_numpy(array)


def read_tensor(weights: SafetensorsFile, name: str) -> torch.Tensor:
    return as_torch(weights.tensor(name))


def pool_rows_per_row(features: int, kv_dim: int) -> int:
    """Return the pool rows that one adapter row of ``features`` elements takes."""
    return -(-features // kv_dim)


def module_rows(pool_rows: torch.Tensor, pool_row: int, count: int, features: int) -> torch.Tensor:
    """Return a ``[count, features]`` view of rows from ``pool_row`` on. ``pool_rows`` is ``[pool rows, kv_dim]``."""
    per_row = pool_rows_per_row(features, pool_rows.shape[1])
    return pool_rows[pool_row : pool_row + count * per_row].view(count, per_row * pool_rows.shape[1])[:, :features]


def factor_rows(pages: torch.Tensor, kv_dim: int, *, fp8: bool) -> torch.Tensor:
    """Return pages of an adapter as pool rows of its factors, ``[rows, kv_dim]``; with ``fp8`` of FP8 elements."""
    return (pages.view(FP8) if fp8 else pages).view(-1, kv_dim)
