"""How spans are cut into tiles, and what the tiles count; by hand."""

from __future__ import annotations

import numpy as np
import pytest

from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.work_items import TILE_FIELDS, Span, token_tiles, write_tiles


def test_tiles_count_the_work_items_up_to_them() -> None:
    """Of four rows in GEMV_1 and GEMV_2, of sixteen in GROUPED."""
    spans = [Span(3, 5, 8, 17), Span(0, 0, 3, 0), Span(1, 3, 5, 4)]
    assert token_tiles(spans, KernelVariant.GEMV_1, 10).tolist() == [
        [3, 5, 1, 5], [3, 6, 1, 10], [3, 7, 1, 15], [0, 0, 1, 15], [0, 1, 1, 15], [0, 2, 1, 15], [1, 3, 1, 16],
        [1, 4, 1, 17], [0, 0, 0, 17], [0, 0, 0, 17],
    ]  # fmt: skip
    assert token_tiles(spans, KernelVariant.GEMV_2).tolist() == [
        [3, 5, 2, 5], [3, 7, 1, 10], [0, 0, 2, 10], [0, 2, 1, 10], [1, 3, 2, 11],
    ]  # fmt: skip
    assert token_tiles(spans, KernelVariant.GROUPED, 4).tolist() == [
        [3, 5, 3, 2],
        [0, 0, 3, 2],
        [1, 3, 2, 3],
        [0, 0, 0, 3],
    ]
    assert token_tiles([Span(1, 2, 40, 256)], KernelVariant.GROUPED).tolist() == [
        [1, 2, 16, 16],
        [1, 18, 16, 32],
        [1, 34, 6, 48],
    ]
    assert token_tiles([], KernelVariant.GEMV_1, 2).tolist() == [[0, 0, 0, 0]] * 2


def test_tiles_that_do_not_fit_are_refused() -> None:
    out = np.full((2, TILE_FIELDS), -1, dtype=np.int32)
    with pytest.raises(ValueError, match="3 token tiles do not fit into 2"):
        write_tiles([Span(1, 0, 33, 8)], KernelVariant.GROUPED, out)
    assert (out == -1).all()
