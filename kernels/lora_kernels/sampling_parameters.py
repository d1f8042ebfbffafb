"""Sampling parameters of each row, in one tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

OVERFLOWED = -1  # in a token's place: the row's logits are not all finite
ROW_FIELDS = 4  # 64-bit words: seed; position; temperature and top-p (floats); min-p (float) and top-k (int)


def row_parameters(
    seeds: npt.ArrayLike,
    positions: npt.ArrayLike,
    temperatures: npt.ArrayLike,
    top_ps: npt.ArrayLike,
    min_ps: npt.ArrayLike,
    top_ks: npt.ArrayLike,
) -> torch.Tensor:
    """What ``sample_tokens`` knows of each row, ``[rows, 4]`` int64 on the host, to be copied at once.

    Temperature 0 is greedy; top-p 1, min-p 0 and top-k 0 keep everything.
    """
    seeds = np.asarray(seeds, dtype=np.int64)
    words = np.zeros((len(seeds), ROW_FIELDS), dtype=np.int64)
    floats = words.view(np.float32)
    words[:, 0] = seeds
    words[:, 1] = positions
    floats[:, 4] = temperatures
    floats[:, 5] = top_ps
    floats[:, 6] = min_ps
    words.view(np.int32)[:, 7] = top_ks
    return torch.from_numpy(words)
