"""From a step's plan to sampled tokens: builds the batch on the host, runs the model, samples."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch

from .memory import PagePool
from .model.batch import LoraSpan, PrefillSpan, StepBatch
from .model.transformer import Transformer
from .request import TokenLogprob
from .sampling import sample
from .scheduling.scheduler import Chunk
from .scheduling.sequence import Sequence

Indices = npt.NDArray[np.int64]
Sampled = tuple[Sequence, int, TokenLogprob | None]


class Runner:
    """Executes plans on one device."""

    def __init__(self, model: Transformer, pool: PagePool) -> None:
        self.model = model
        self.pool = pool

    @torch.inference_mode()
    def run(self, chunks: Iterable[Chunk]) -> list[Sampled]:
        """Process every chunk; a token for each sequence whose chunk reached its end."""
        ordered = order_chunks(chunks)
        logits = self.model.forward(self._batch(ordered), self.pool)
        sampling = [chunk.sequence for chunk in ordered if chunk.samples]
        if not sampling:
            return []
        tokens, logprobs = sample(logits, [sequence.sampling_row() for sequence in sampling])
        return list(zip(sampling, tokens, logprobs, strict=True))

    def _batch(self, chunks: list[Chunk]) -> StepBatch:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks])
        decode = [chunk for chunk in chunks if chunk.tokens == 1]
        token_ids = [t for c in chunks for t in c.sequence.token_ids[_computed(c) : _computed(c) + c.tokens]]
        positions = np.concatenate([np.arange(_computed(c), _computed(c) + c.tokens) for c in chunks])
        ends = [int(starts[i + 1]) - 1 for i, chunk in enumerate(chunks) if chunk.samples]
        return StepBatch(
            token_ids=self._tensor(np.array(token_ids, dtype=np.int64)),
            positions=self._tensor(positions),
            key_cells=self._tensor(self._key_cells(chunks, positions, starts)),
            num_decode=len(decode),
            decode_pages=self._tensor(_padded_pages(decode)),
            decode_lengths=self._tensor(np.array([_computed(c) + 1 for c in decode], dtype=np.int64)),
            prefill=[
                PrefillSpan(
                    int(starts[i]),
                    int(starts[i + 1]),
                    _computed(chunk),
                    self._tensor(np.array(chunk.sequence.pages, dtype=np.int64)),
                )
                for i, chunk in enumerate(chunks)
                if chunk.tokens > 1
            ],
            lora=_lora_spans(chunks, starts),
            logit_rows=self._tensor(np.array(ends, dtype=np.int64)),
        )

    def _key_cells(self, chunks: list[Chunk], positions: Indices, starts: Indices) -> Indices:
        g = self.pool.geometry
        pages = np.concatenate(
            [
                np.array(chunk.sequence.pages, dtype=np.int64)[positions[starts[i] : starts[i + 1]] // g.page_tokens]
                for i, chunk in enumerate(chunks)
            ]
        )
        return pages * g.chunks_per_page + positions % g.page_tokens

    def _tensor(self, array: Indices) -> torch.Tensor:
        return torch.from_numpy(array).to(self.pool.data.device, non_blocking=True)


def _computed(chunk: Chunk) -> int:
    return chunk.sequence.num_computed


def _generation(chunk: Chunk) -> int:
    slot = chunk.sequence.slot
    return slot.generation if slot else 0


def order_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Decode rows first; in both parts, sequences of one adapter side by side."""
    return sorted(chunks, key=lambda chunk: (chunk.tokens > 1, _generation(chunk)))


def _lora_spans(chunks: list[Chunk], starts: Indices) -> list[LoraSpan]:
    spans = []
    for _, run in groupby(range(len(chunks)), key=lambda i: _generation(chunks[i])):
        indices = list(run)
        slot = chunks[indices[0]].sequence.slot
        if slot is not None:
            spans.append(LoraSpan(slot, int(starts[indices[0]]), int(starts[indices[-1] + 1])))
    return spans


def _padded_pages(chunks: list[Chunk]) -> Indices:
    """``[sequences, most pages]``; the padding is page 0, which holds zeros."""
    width = max((len(chunk.sequence.pages) for chunk in chunks), default=0)
    table = np.zeros((len(chunks), width), dtype=np.int64)
    for row, chunk in enumerate(chunks):
        table[row, : len(chunk.sequence.pages)] = chunk.sequence.pages
    return table
