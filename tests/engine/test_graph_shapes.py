"""Which decode steps are captured."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

import pytest

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.model.batch import LoraSpan
from lora_engine.model.graph_shapes import GraphShape, graph_shape, graph_sizes, tile_bounds
from lora_engine.model.triton_ops import covering
from lora_kernels.attention import FEW, decode_splits
from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.work_items import tiles_needed


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("max_running", [1, 24, 64, 256])
def test_a_batch_beside_prompts_needs_no_kernel_that_no_graph_has(kv_heads: int, max_running: int) -> None:
    """Attention is compiled for each number of splits and each launch; graphs are captured at start."""

    def kernel(sequences: int) -> tuple[int, bool]:
        splits = decode_splits(sequences, kv_heads)
        return splits, sequences * kv_heads * splits <= FEW

    captured = {kernel(size) for size in graph_sizes(max_running)}
    assert {kernel(sequences) for sequences in range(1, max_running + 1)} <= captured


def shape_for(runs: list[int], without: int, merged_at: int | None, padding: int) -> GraphShape:
    """The graph for adapters with so many rows each, after rows without one and before padding.

    The run with the number ``merged_at`` is the merged adapter's, which its rows have in the weights.
    """
    spans, row = [], without
    for number, rows in enumerate(runs, start=1):
        slot = cast(
            AdapterSlot,
            SimpleNamespace(rank=8 * number % 65, table_index=number, groups=frozenset({0}), has_epilogues=False),
        )
        if number - 1 != merged_at:
            spans.append(LoraSpan(slot, row, row + rows))
        row += rows
    size = row + padding
    shape = graph_shape(size, spans, merged_at is not None)
    if shape.lora:
        needed = tiles_needed(covering(spans, size), shape.lora.variant)
        assert needed <= shape.tiles <= size
        assert shape.tiles in tile_bounds(shape.lora.variant, size), "no such graph is captured at start"
    return shape


@pytest.mark.parametrize(
    "variant", [KernelVariant.GEMV_1, KernelVariant.GEMV_2, KernelVariant.GROUPED], ids=lambda f: f.name
)
def test_every_batch_has_a_graph_with_room_for_its_tiles(variant: KernelVariant) -> None:
    rnd, seen = random.Random(variant), 0
    while seen < 200:
        usual = rnd.choice(
            {KernelVariant.GEMV_1: (1, 2), KernelVariant.GEMV_2: (2, 3, 5), KernelVariant.GROUPED: (4, 5, 17, 64)}[
                variant
            ]
        )
        runs = [rnd.choice((1, 2, 3, usual, rnd.randint(1, 2 * usual))) for _ in range(rnd.randint(1, 100))]
        merged_at = rnd.choice((None, rnd.randrange(len(runs))))
        shape = shape_for(runs, rnd.randint(0, 5), merged_at, rnd.choice((0, 1, 2, rnd.randint(0, 31))))
        seen += shape.lora is not None and shape.lora.variant is variant


def test_the_room_for_pairs_of_rows_is_what_they_can_need() -> None:
    """As many adapters as GEMV_2 takes, with odd numbers of rows, and three single rows without one."""
    for threes in range(1, 30):
        ones = 3 * threes - 1
        shape = shape_for([*[1] * ones, 1, *[3] * threes], 1, merged_at=ones, padding=1)
        assert shape.lora and shape.lora.variant is KernelVariant.GEMV_2
        assert shape.tiles == 3 + ones + 2 * threes
