"""The inputs of a step as tensors: a ragged batch of tokens, decode rows first.

Tokens of all sequences lie in one dimension. Rows ``[0, num_decode)`` are sequences with one new token, which drafts
may follow as further rows; the others are prefill chunks, one span each. In both parts sequences with the same adapter
are adjacent, so that an adapter's tokens are slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.embedding_pages import AdapterEmbeddingLayer


@dataclass(frozen=True, slots=True)
class LoraSpan:
    """A range of token rows ``[start, stop)`` that use ``slot``.

    With ``sign`` -1 the adapter is merged into the base's weights, and the rows subtract it (delta correction).
    """

    slot: AdapterSlot
    start: int
    stop: int
    sign: int = 1


class EmbeddingLayerSpan(NamedTuple):
    """A range of rows ``[start, stop)`` with an adapter's embedding or head."""

    layer: AdapterEmbeddingLayer
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PrefillSpan:
    """A range of token rows ``[start, stop)`` that continue a sequence with ``context`` tokens in the pool.

    ``pages [n]`` int64 hold context and chunk, ``state_pages [m]`` int64 the sequence's recurrent state, if the model
    has any.
    """

    start: int
    stop: int
    context: int
    pages: torch.Tensor
    state_pages: torch.Tensor | None = None


@dataclass(slots=True)
class StepBatch:
    """The inputs of a forward pass; index tensors are int64 on the model's device."""

    token_ids: torch.Tensor  # [tokens]
    positions: torch.Tensor  # [tokens]
    slot_mapping: torch.Tensor  # [tokens] row of each token's key in PagePool.pool_rows
    num_decode: int
    block_table: torch.Tensor  # [num_decode, max pages], padded with page 0
    seq_lens: torch.Tensor  # [num_decode] tokens of each sequence, the new one included
    prefill: Sequence[PrefillSpan]
    lora: Sequence[LoraSpan]
    logit_rows: torch.Tensor  # rows that are sampled: sequences' last tokens, and drafts after them
    merged: bool = False  # run on the weights with an adapter merged in
    embeddings: Sequence[EmbeddingLayerSpan] = ()  # ordered spans of token rows
    heads: Sequence[EmbeddingLayerSpan] = ()  # ordered spans of ``logit_rows``
    # With several ranks: all rows sample greedily, so that ranks exchange only their likeliest tokens.
    greedy: bool = False
    # With several ranks: rows of prompts whose logits some request reads.
    scored_rows: torch.Tensor | None = None
    # [num_decode, state pages] of each row's sequence; None if the model has no recurrent layers.
    state_table: torch.Tensor | None = None
    # [4, num_decode] rows of sequences one after the other, see ``RunField``; None: each row is a sequence's only one.
    decode_runs: torch.Tensor | None = None
