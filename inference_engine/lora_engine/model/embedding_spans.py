"""The embedding and the head of a batch in which some adapters change them.

The base's product is computed once for all rows; the rows of such adapters are then changed in place. A batch without
them launches nothing more. Decode steps with them run outside of captured graphs (`graph_runner.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F

from lora_engine.adapters.embedding_pages import AdapterEmbeddingLayer

from .batch import EmbeddingLayerSpan
from .vocabulary import Vocabulary

# Logit of a token that an adapter's model does not have: finite in every dtype, and never sampled.
ABSENT = -3e4


def embed(
    token_ids: torch.Tensor,
    matrix: torch.Tensor,
    vocabulary: Vocabulary,
    spans: Sequence[EmbeddingLayerSpan],
    *,
    singly: bool,
) -> torch.Tensor:
    """Compute embeddings ``[tokens, hidden]``, with this rank's rows of the base's ``matrix``.

    ``singly``: adapters' products are computed row by row, so that no row depends on the number of rows.
    """
    if not spans:
        return vocabulary.embed(token_ids, matrix)
    # Ids of tokens that only an adapter's model has are clamped; the adapter replaces their rows.
    embedded = vocabulary.embed(token_ids.clamp(max=vocabulary.size - 1), matrix)
    for layer, start, stop in _parts(spans, singly):
        layer.embed(token_ids[start:stop], embedded[start:stop])
    return embedded


def add_heads(
    logits: torch.Tensor, hidden: torch.Tensor, spans: Sequence[EmbeddingLayerSpan], *, singly: bool
) -> torch.Tensor:
    """Apply the adapters' heads to the base's ``logits [rows, vocab]``; returns as many columns as the widest needs."""
    width = max(span.layer.vocab for span in spans)
    if width > logits.shape[1]:
        logits = F.pad(logits, (0, width - logits.shape[1]))
    for layer, start, stop in _parts(spans, singly):
        layer.add_to(logits[start:stop], hidden[start:stop])
    return logits


def hide_absent(logits: torch.Tensor, vocab: int, spans: Sequence[EmbeddingLayerSpan]) -> None:
    """Set logits beyond each row's vocabulary (``vocab`` for the base's) to ``ABSENT``; call it after scale and cap."""
    end = 0
    for span in spans:
        logits[end : span.start, vocab:] = ABSENT
        logits[span.start : span.stop, span.layer.vocab :] = ABSENT
        end = span.stop
    logits[end:, vocab:] = ABSENT


def spans_of(layers: Iterable[tuple[AdapterEmbeddingLayer | None, int]]) -> list[EmbeddingLayerSpan]:
    """Return the spans of ordered ``(layer, number of rows)`` pairs; adjacent rows of one adapter form one span."""
    spans: list[EmbeddingLayerSpan] = []
    row = 0
    for layer, count in layers:
        if layer is not None and count:
            start = spans.pop().start if spans and spans[-1].layer is layer and spans[-1].stop == row else row
            spans.append(EmbeddingLayerSpan(layer, start, row + count))
        row += count
    return spans


def clipped(spans: Sequence[EmbeddingLayerSpan], start: int, stop: int) -> list[EmbeddingLayerSpan]:
    """Return the parts of spans inside rows ``[start, stop)``, counted from ``start``."""
    cut = [EmbeddingLayerSpan(s.layer, max(s.start, start) - start, min(s.stop, stop) - start) for s in spans]
    return [span for span in cut if span.start < span.stop]


def _parts(spans: Sequence[EmbeddingLayerSpan], singly: bool) -> list[EmbeddingLayerSpan]:
    if not singly:
        return list(spans)
    return [EmbeddingLayerSpan(span.layer, row, row + 1) for span in spans for row in range(span.start, span.stop)]
