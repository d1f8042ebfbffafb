"""Which decode steps are captured."""

from __future__ import annotations

import pytest

from lora_engine.graph_runner import graph_sizes
from lora_kernels.attention import FEW, decode_splits


@pytest.mark.parametrize("kv_heads", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("max_running", [1, 24, 64, 256])
def test_a_batch_beside_prompts_needs_no_kernel_that_no_graph_has(kv_heads: int, max_running: int) -> None:
    """Attention is compiled for each number of splits and each launch; graphs are captured at start."""

    def kernel(sequences: int) -> tuple[int, bool]:
        splits = decode_splits(sequences, kv_heads)
        return splits, sequences * kv_heads * splits <= FEW

    captured = {kernel(size) for size in graph_sizes(max_running)}
    assert {kernel(sequences) for sequences in range(1, max_running + 1)} <= captured
