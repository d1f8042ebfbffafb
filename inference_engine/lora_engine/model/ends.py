"""The embedding and the head of a batch in which some adapters have changes of them.

The base's product is made once for all rows; the rows of such adapters are then changed in place. A batch without them
launches nothing for it. Decode steps with them run outside of the captured graphs (`graph_runner.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F

from lora_engine.adapters.ends import AdapterEnd

from .batch import EndSpan

# The logit of a token that an adapter's model does not have: finite in every dtype, and never chosen.
ABSENT = -3e4


def embed(ids: torch.Tensor, matrix: torch.Tensor, spans: Sequence[EndSpan], *, singly: bool) -> torch.Tensor:
    """``[tokens, hidden]``. ``singly``: row by row, so that none depends on how many there are."""
    if not spans:
        return F.embedding(ids, matrix)
    embedded = F.embedding(ids.clamp(max=len(matrix) - 1), matrix)  # tokens that only an adapter's model has
    for end, start, stop in _parts(spans, singly):
        end.embed(ids[start:stop], embedded[start:stop])
    return embedded


def add_heads(logits: torch.Tensor, hidden: torch.Tensor, spans: Sequence[EndSpan], *, singly: bool) -> torch.Tensor:
    """The base's ``logits [rows, vocab]`` with the adapters' heads, as wide as the largest vocabulary."""
    width = max(span.end.vocab for span in spans)
    if width > logits.shape[1]:
        logits = F.pad(logits, (0, width - logits.shape[1]))
    for end, start, stop in _parts(spans, singly):
        end.add_to(logits[start:stop], hidden[start:stop])
    return logits


def hide_absent(logits: torch.Tensor, vocab: int, spans: Sequence[EndSpan]) -> None:
    """After scales and caps: no row's vocabulary, ``vocab`` for the base's, is wider than it is."""
    end = 0
    for span in spans:
        logits[end : span.start, vocab:] = ABSENT
        logits[span.start : span.stop, span.end.vocab :] = ABSENT
        end = span.stop
    logits[end:, vocab:] = ABSENT


def spans_of(ends: Iterable[tuple[AdapterEnd | None, int]]) -> list[EndSpan]:
    """Of rows in order, so many for each; neighbours of one adapter as one span."""
    spans: list[EndSpan] = []
    row = 0
    for end, count in ends:
        if end is not None and count:
            start = spans.pop().start if spans and spans[-1].end is end and spans[-1].stop == row else row
            spans.append(EndSpan(end, start, row + count))
        row += count
    return spans


def clipped(spans: Sequence[EndSpan], start: int, stop: int) -> list[EndSpan]:
    """Of rows ``[start, stop)`` alone, counted from ``start``."""
    cut = [EndSpan(s.end, max(s.start, start) - start, min(s.stop, stop) - start) for s in spans]
    return [span for span in cut if span.start < span.stop]


def _parts(spans: Sequence[EndSpan], singly: bool) -> list[EndSpan]:
    if not singly:
        return list(spans)
    return [EndSpan(span.end, row, row + 1) for span in spans for row in range(span.start, span.stop)]
