"""One step's work as tensors: a ragged batch of tokens, decode rows first.

Tokens of all sequences lie in one dimension. Rows ``[0, num_decode)`` are sequences with
one new token; the rest are prefill chunks, one span each. Within each of the two, sequences with
the same adapter are neighbours, so that an adapter's tokens are slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.embedding_layers import AdapterEmbeddingLayer


@dataclass(frozen=True, slots=True)
class LoraSpan:
    """Token rows ``[start, stop)`` use ``slot``.

    With ``sign`` -1 it is merged into the base's weights, and they subtract it (delta correction).
    """

    slot: AdapterSlot
    start: int
    stop: int
    sign: int = 1


class EmbeddingLayerSpan(NamedTuple):
    """Rows ``[start, stop)`` have an adapter's own embedding or head."""

    layer: AdapterEmbeddingLayer
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """Token rows ``[start, stop)`` continue a sequence that has ``context`` tokens in the pool.

    ``pages`` ``[n]`` int64 covers context and chunk.
    """

    start: int
    stop: int
    context: int
    pages: torch.Tensor


@dataclass(slots=True)
class StepBatch:
    """Inputs of one forward pass; index tensors are int64 on the model's device."""

    token_ids: torch.Tensor  # [tokens]
    positions: torch.Tensor  # [tokens]
    slot_mapping: torch.Tensor  # [tokens] row of each token's key in PagePool.pool_rows
    num_decode: int
    block_table: torch.Tensor  # [num_decode, max pages], padded with page 0
    seq_lens: torch.Tensor  # [num_decode] tokens to attend to, the new one included
    prefill: Sequence[PrefillSpan]
    lora: Sequence[LoraSpan]
    logit_rows: torch.Tensor  # [sequences that sample] rows of their last token
    merged: bool = False  # run on the weights with an adapter merged in
    embeddings: Sequence[EmbeddingLayerSpan] = ()  # rows are tokens; in order
    heads: Sequence[EmbeddingLayerSpan] = ()  # rows are those of ``logit_rows``; in order
    greedy: bool = False  # of several ranks: nobody needs more of the logits than the likeliest tokens
    scored_rows: torch.Tensor | None = None  # of several ranks: rows of prompts whose logits are asked for
