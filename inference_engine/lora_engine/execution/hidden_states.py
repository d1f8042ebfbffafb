"""Hidden states of a step for a draft head: the inputs of some layers, of the sequences that draft."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from lora_engine.memory.pinned import to_device
from lora_engine.model.draft_head import MAX_ROWS
from lora_engine.scheduling.sequence import Chunk, Sequence


class HiddenRows(NamedTuple):
    """A sequence's rows of a step: ``rows`` rows from ``start`` in ``HiddenStates.values``, from ``position`` on.

    ``drafts`` of them are drafts, and ``samples`` says that the step samples after the others.
    """

    sequence: Sequence
    start: int
    position: int
    rows: int
    drafts: int
    samples: bool


class HiddenStates:
    """The hidden states ``values [rows, layers * hidden]`` of the rows of a step that a draft head reads."""

    def __init__(self, values: torch.Tensor, parts: list[HiddenRows]) -> None:
        self.values = values
        self.parts = parts

    @classmethod
    def of(
        cls, buffer: torch.Tensor, chunks: Iterable[Chunk], wanted: Callable[[Sequence], bool]
    ) -> HiddenStates | None:
        """Copy the rows of the wanted sequences from a step's ``buffer``, without waiting; None if there are none.

        The chunks are in the order of the step's rows, and not counted as computed yet.
        """
        parts, rows, first = list[HiddenRows](), list[int](), 0
        for chunk in chunks:
            sequence, computed = chunk.sequence, chunk.sequence.num_computed
            # Of a prompt, the head reads the last rows only: one pass, however long it is.
            skipped = max(0, min(sequence.num_prompt - MAX_ROWS - computed, chunk.tokens))
            count = min(chunk.tokens - skipped, MAX_ROWS)
            skipped = chunk.tokens - count
            if count and wanted(sequence):
                position = computed + skipped
                parts.append(HiddenRows(sequence, len(rows), position, count, len(chunk.drafts), chunk.samples))
                rows.extend(range(first + skipped, first + chunk.tokens))
            first += chunk.tokens
        if not parts:
            return None
        return cls(buffer.index_select(0, to_device(torch.tensor(rows), buffer.device)), parts)
