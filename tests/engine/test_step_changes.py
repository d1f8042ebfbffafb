"""What rank 0 tells the others of captured steps comes out as it went in, and is small where little changes."""

from __future__ import annotations

import pickle
import random

import numpy as np

from lora_engine.tensor_parallel.step_changes import Changes, LastContents


def test_contents_arrive_as_they_were_told() -> None:
    """Of graphs that take turns, of other sizes, that change nothing, a little, or everything."""
    rnd, there, here = random.Random(3), LastContents(), LastContents()
    buffers = {size: np.zeros(size, dtype=np.int32) for size in (1, 40, 400)}
    whole = 0
    for step in range(300):
        size = rnd.choice((1, 40, 400, 400, 400))
        contents = buffers[size]  # the same memory again and again, as pinned buffers are
        for _ in range(rnd.choice((0, 1, size // 20, size))):
            contents[rnd.randrange(size)] = step
        changes = pickle.loads(pickle.dumps(there.changes((size, rnd.random() < 0.05), contents)))
        assert isinstance(changes, Changes)
        whole += changes.places is None
        assert np.array_equal(here.contents(changes), contents), step
    assert 60 < whole < 240, "both ways were tried"


def test_a_decode_step_after_another_is_a_few_values_a_row() -> None:
    rows, pages = 256, 256  # of 4,096 tokens each
    contents = np.arange(rows * (13 + pages), dtype=np.int32)
    last = LastContents()
    first = len(pickle.dumps(last.changes("graph", contents)))
    contents[: 4 * rows] += 1
    second = len(pickle.dumps(last.changes("graph", contents)))
    assert first > 270_000 and second < 4 * rows * 8 + 500
