"""Sampling parameters of each row, in one tensor."""

from __future__ import annotations

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
