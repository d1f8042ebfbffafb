"""The inputs of a step as arrays on the host, from which every tensor-parallel rank builds the same batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.memory.pinned import to_device
from lora_engine.model.batch import LoraSpan, PrefillSpan, StepBatch
from lora_engine.scheduling.sequence import Chunk
from lora_engine.scheduling.sequence import Sequence as TokenSequence
from lora_kernels.state_pages import RunField

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefillInputs:
    """A ``PrefillSpan`` with its pages on the host."""

    start: int
    stop: int
    context: int
    pages: Indices
    state_pages: Indices | None = None


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A ``StepBatch`` on the host without LoRA spans; only rank 0 has the spans of heads."""

    token_ids: Indices  # [tokens]; 0 for tokens with a source
    starts: Indices  # [chunks + 1] each chunk's first row
    sources: Indices  # [tokens] row of the last step's tokens, or drafts, that holds the token; -1: it is in token_ids
    positions: Indices  # [tokens]
    slot_mapping: Indices  # [tokens]
    num_decode: int
    block_table: Indices  # [num_decode, most pages]
    prefill: tuple[PrefillInputs, ...]
    logit_rows: Indices  # [rows that are sampled]
    merged: bool
    embeddings: tuple[tuple[int, int, int], ...] = ()  # generation and rows of adapters with an embedding
    greedy: bool = False
    scored_rows: Indices | None = None
    state_table: Indices | None = None  # [num_decode, state pages], with recurrent layers
    decode_runs: Indices | None = None  # see ``StepBatch``

    @classmethod
    def of(
        cls,
        chunks: Sequence[Chunk],
        geometry: PoolGeometry,
        decodes: Callable[[Chunk], bool],
        last_row: Mapping[TokenSequence, int],
        *,
        merged: bool,
        greedy: bool = False,
        scored_rows: Indices | None = None,
        place_drafts: Callable[[Indices, Indices], None],
    ) -> StepInputs:
        """Build the inputs of ordered chunks, decode rows first; ``last_row``: rows of the last step's tokens.

        ``place_drafts`` replaces references among tokens by sources (``DeviceDrafts``).
        """
        tokens = np.array([chunk.tokens for chunk in chunks], dtype=np.int64)
        sampled = np.array([chunk.num_sampled for chunk in chunks], dtype=np.int64)
        starts = np.concatenate(([0], tokens.cumsum()))
        decode = [chunk for chunk in chunks if decodes(chunk)]
        positions = _ranges(np.array([chunk.sequence.num_computed for chunk in chunks], dtype=np.int64), tokens)
        pages, page_counts = _pages(chunks)
        token_ids = np.array([token for chunk in chunks for token in chunk.token_ids], dtype=np.int64)
        of_rows = _sources_of_rows(chunks, last_row, starts)
        place_drafts(token_ids, of_rows)
        return cls(
            token_ids=token_ids,
            starts=starts,
            sources=of_rows,
            positions=positions,
            slot_mapping=_slot_mapping(pages, page_counts, positions, tokens, geometry),
            num_decode=sum(chunk.tokens for chunk in decode),
            block_table=_block_table(pages, page_counts[: len(decode)], tokens[: len(decode)]),
            prefill=tuple(
                PrefillInputs(
                    int(starts[i]),
                    int(starts[i + 1]),
                    chunk.sequence.num_computed,
                    np.array(chunk.sequence.pages, dtype=np.int64),
                    np.array(chunk.sequence.state_pages, dtype=np.int64) if geometry.state_pages else None,
                )
                for i, chunk in enumerate(chunks[len(decode) :], start=len(decode))
            ),
            logit_rows=_ranges(starts[1:] - sampled, sampled),
            merged=merged,
            embeddings=tuple(
                (chunk.sequence.slot.generation, int(starts[i]), int(starts[i + 1]))
                for i, chunk in enumerate(chunks)
                if chunk.sequence.slot is not None and chunk.sequence.slot.embedding is not None
            ),
            greedy=greedy,
            scored_rows=scored_rows,
            state_table=_state_table(decode, geometry) if geometry.state_pages else None,
            decode_runs=_decode_runs(decode, starts) if geometry.state_pages else None,
        )

    def batch(self, lora: Sequence[LoraSpan], last_tokens: torch.Tensor) -> StepBatch:
        """Copy the batch to the device of ``last_tokens``, the tokens that the last step sampled."""
        device = last_tokens.device

        def tensor(array: Indices) -> torch.Tensor:
            return to_device(torch.from_numpy(array), device)

        token_ids = tensor(self.token_ids)
        if (self.sources >= 0).any():
            pending = np.flatnonzero(self.sources >= 0)
            token_ids[tensor(pending)] = last_tokens[tensor(self.sources[pending])]
        return StepBatch(
            token_ids=token_ids,
            positions=tensor(self.positions),
            slot_mapping=tensor(self.slot_mapping),
            num_decode=self.num_decode,
            block_table=tensor(self.block_table),
            seq_lens=tensor(self.positions[: self.num_decode] + 1),
            prefill=[
                PrefillSpan(
                    p.start,
                    p.stop,
                    p.context,
                    tensor(p.pages),
                    None if p.state_pages is None else tensor(p.state_pages),
                )
                for p in self.prefill
            ],
            lora=lora,
            logit_rows=tensor(self.logit_rows),
            merged=self.merged,
            greedy=self.greedy,
            scored_rows=None if self.scored_rows is None else tensor(self.scored_rows),
            state_table=None if self.state_table is None else tensor(self.state_table),
            decode_runs=None if self.decode_runs is None else tensor(self.decode_runs),
        )


def sources(chunks: Sequence[Chunk], last_row: Mapping[TokenSequence, int]) -> list[int]:
    """Return, for each chunk, the row of the last step's tokens with its token; -1 if the host has the token."""
    return [last_row[c.sequence] if c.sequence.pending else -1 for c in chunks]


def _sources_of_rows(chunks: Sequence[Chunk], last_row: Mapping[TokenSequence, int], starts: Indices) -> Indices:
    """Return the source of each row: that of its chunk for the first one, none for the others."""
    rows = np.full(starts[-1], -1, dtype=np.int64)
    rows[starts[:-1]] = sources(chunks, last_row)
    return rows


def _ranges(begins: Indices, counts: Indices) -> Indices:
    """Return ranges of ``counts`` numbers from ``begins`` on, one after the other."""
    return np.repeat(begins - counts.cumsum() + counts, counts) + np.arange(counts.sum())


def _pages(chunks: Sequence[Chunk]) -> tuple[Indices, Indices]:
    """Return the pages of all chunks in a line, and how many each has."""
    counts = np.array([len(chunk.sequence.pages) for chunk in chunks], dtype=np.int64)
    pages = chain.from_iterable(chunk.sequence.pages for chunk in chunks)
    return np.fromiter(pages, dtype=np.int64, count=counts.sum()), counts


def _slot_mapping(
    pages: Indices, page_counts: Indices, positions: Indices, tokens: Indices, geometry: PoolGeometry
) -> Indices:
    first = np.repeat(page_counts.cumsum() - page_counts, tokens)
    of_rows: Indices = pages[first + positions // geometry.page_tokens]
    return of_rows * geometry.kv_rows_per_page + positions % geometry.page_tokens


def _state_table(chunks: Sequence[Chunk], geometry: PoolGeometry) -> Indices:
    """Return the state pages of each row of the chunks, ``[rows, state pages]``."""
    tables = [chunk.sequence.state_pages for chunk in chunks for _ in range(chunk.tokens)]
    return np.array(tables, dtype=np.int64).reshape(-1, geometry.state_pages)


def _decode_runs(chunks: Sequence[Chunk], starts: Indices) -> Indices | None:
    """Return the table of the chunks' runs; None if each is one row, without accepted drafts before it."""
    if all(chunk.tokens == 1 and not chunk.sequence.replays for chunk in chunks):
        return None
    runs = np.zeros((len(RunField), int(starts[len(chunks)])), dtype=np.int64)
    for chunk, start in zip(chunks, starts[: len(chunks)], strict=True):
        sequence = chunk.sequence
        runs[:, start] = chunk.tokens, len(chunk.drafts), sequence.replays, sequence.draft_slot or 0
    return runs


def _block_table(pages: Indices, page_counts: Indices, tokens: Indices) -> Indices:
    """Return the pages of the first chunks as ``[rows, most pages]``, padded with page 0."""
    width = int(page_counts.max(initial=0))
    table = np.zeros((len(page_counts), width), dtype=np.int64)
    table[np.arange(width) < page_counts[:, None]] = pages[: page_counts.sum()]
    return table if (tokens == 1).all() else table.repeat(tokens, axis=0)
