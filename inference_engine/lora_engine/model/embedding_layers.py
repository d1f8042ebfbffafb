"""The embedding and the head of a batch in which some adapters have changes of them.

The base's product is made once for all rows; the rows of such adapters are then changed in place. A batch without them
launches nothing for it. Decode steps with them run outside of the captured graphs (`graph_runner.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F

from lora_engine.adapters.embedding_layers import AdapterEmbeddingLayer

from .batch import EmbeddingLayerSpan
from .vocabulary import Vocabulary

# The logit of a token that an adapter's model does not have: finite in every dtype, and never chosen.
ABSENT = -3e4


def embed(
    ids: torch.Tensor,
    matrix: torch.Tensor,
    vocabulary: Vocabulary,
    spans: Sequence[EmbeddingLayerSpan],
    *,
    singly: bool,
) -> torch.Tensor:
    """``[tokens, hidden]``, with this rank's rows of the base's ``matrix``.

    ``singly``: row by row, so that none depends on how many there are.
    """
    if not spans:
        return vocabulary.embed(ids, matrix)
    # Tokens that only an adapter's model has are clamped.
    embedded = vocabulary.embed(ids.clamp(max=vocabulary.size - 1), matrix)
    for layer, start, stop in _parts(spans, singly):
        layer.embed(ids[start:stop], embedded[start:stop])
    return embedded


def add_heads(
    logits: torch.Tensor, hidden: torch.Tensor, spans: Sequence[EmbeddingLayerSpan], *, singly: bool
) -> torch.Tensor:
    """The base's ``logits [rows, vocab]`` with the adapters' heads, as wide as the largest vocabulary."""
    width = max(span.layer.vocab for span in spans)
    if width > logits.shape[1]:
        logits = F.pad(logits, (0, width - logits.shape[1]))
    for layer, start, stop in _parts(spans, singly):
        layer.add_to(logits[start:stop], hidden[start:stop])
    return logits


def hide_absent(logits: torch.Tensor, vocab: int, spans: Sequence[EmbeddingLayerSpan]) -> None:
    """After scales and caps: no row's vocabulary, ``vocab`` for the base's, is wider than it is."""
    end = 0
    for span in spans:
        logits[end : span.start, vocab:] = ABSENT
        logits[span.start : span.stop, span.layer.vocab :] = ABSENT
        end = span.stop
    logits[end:, vocab:] = ABSENT


def spans_of(layers: Iterable[tuple[AdapterEmbeddingLayer | None, int]]) -> list[EmbeddingLayerSpan]:
    """Of rows in order, so many for each; neighbours of one adapter as one span."""
    spans: list[EmbeddingLayerSpan] = []
    row = 0
    for layer, count in layers:
        if layer is not None and count:
            start = spans.pop().start if spans and spans[-1].layer is layer and spans[-1].stop == row else row
            spans.append(EmbeddingLayerSpan(layer, start, row + count))
        row += count
    return spans


def clipped(spans: Sequence[EmbeddingLayerSpan], start: int, stop: int) -> list[EmbeddingLayerSpan]:
    """Of rows ``[start, stop)`` alone, counted from ``start``."""
    cut = [EmbeddingLayerSpan(s.layer, max(s.start, start) - start, min(s.stop, stop) - start) for s in spans]
    return [span for span in cut if span.start < span.stop]


def _parts(spans: Sequence[EmbeddingLayerSpan], singly: bool) -> list[EmbeddingLayerSpan]:
    if not singly:
        return list(spans)
    return [EmbeddingLayerSpan(span.layer, row, row + 1) for span in spans for row in range(span.start, span.stop)]
