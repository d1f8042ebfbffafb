"""Log-probabilities and embeddings of prompts, read from the hidden states of the steps that process the prompts.

The logits of all prompt tokens would take gigabytes (a chunk of 8,192 tokens times a vocabulary of 262,144), so they
are computed and consumed in slices, and only the requested log-probabilities are copied from the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from lora_engine.memory.pinned import to_device
from lora_engine.model.batch import EmbeddingLayerSpan
from lora_engine.model.embedding_spans import clipped, spans_of
from lora_engine.model.transformer import Transformer
from lora_engine.request import Embedding, PromptLogprobs
from lora_engine.scheduling.sequence import Chunk, Sequence

# Maximum number of logits computed at a time: 64 MiB in float32.
_MAX_LOGITS = 1 << 24


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a prompt: tokens ``[start, stop)`` of ``sequence``, with hidden states in rows from ``at`` on."""

    sequence: Sequence
    start: int
    stop: int
    at: int

    @property
    def ends(self) -> bool:
        return self.stop == self.sequence.read_until


class PromptReads:
    """The hidden states of prompts that a step's requests read.

    ``rows`` are the token rows that are read; ``take`` consumes their hidden states on the device, and ``collect``
    returns the results after the step.
    """

    def __init__(self, chunks: list[Chunk], starts: list[int], device: torch.device) -> None:
        """Plan the reads of ``chunks``, whose first token rows are ``starts``."""
        self._scored: list[_Part] = []
        self._pooled: list[_Part] = []
        scored_rows: list[int] = []
        pooled_rows: list[int] = []
        for chunk, row in zip(chunks, starts, strict=True):
            sequence, computed = chunk.sequence, chunk.sequence.num_computed
            start = max(computed, sequence.read_from)
            stop = min(computed + chunk.tokens, sequence.read_until)
            if start < stop:
                pools = sequence.request.pooling is not None
                parts, rows = (self._pooled, pooled_rows) if pools else (self._scored, scored_rows)
                parts.append(_Part(sequence, start, stop, len(rows)))
                rows += range(row + start - computed, row + stop - computed)
        self._device, self._num_scored = device, len(scored_rows)
        self.scored_rows = np.array(scored_rows, dtype=np.int64)
        self.rows = self._tensor(scored_rows + pooled_rows)
        self._scores: _Scores | None = None
        self._vectors: torch.Tensor | None = None

    def take(self, hidden: torch.Tensor, model: Transformer) -> None:
        """Consume ``hidden [len(rows), hidden]``, after the last norm, without waiting for the device."""
        if self._scored:
            targets = self._tensor([target for part in self._scored for target in _targets(part)])
            most = max(part.sequence.request.prompt_logprobs or 0 for part in self._scored)
            heads = spans_of((p.sequence.head, p.stop - p.start) for p in self._scored)
            self._scores = _score(model, hidden[: self._num_scored], targets, most, heads).to_host()
        if self._pooled:
            lengths = self._tensor([part.stop - part.start for part in self._pooled])
            self._vectors = self._pool(hidden[self._num_scored :], lengths)

    def _pool(self, hidden: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the sums of hidden states of prompts that end in this step; sums of others are kept until then."""
        sums = torch.segment_reduce(hidden.float(), "sum", lengths=lengths, axis=0)
        for row, part in enumerate(self._pooled):
            if isinstance(before := part.sequence.pooled, torch.Tensor):
                sums[row] += before
            part.sequence.pooled = None if part.ends else sums[row].clone()
        return _to_host(sums)

    def collect(self) -> list[tuple[Sequence, PromptLogprobs | Embedding]]:
        """Return each sequence's log-probabilities of prompt tokens, or its vector if the prompt ended.

        The step must have finished.
        """
        results: list[tuple[Sequence, PromptLogprobs | Embedding]] = []
        if self._scores is not None:
            results += [(part.sequence, self._scores.of(part)) for part in self._scored]
        if self._vectors is not None:
            ended = [(row, part) for row, part in enumerate(self._pooled) if part.ends]
            results += [(part.sequence, _embedding(self._vectors[row], part.sequence)) for row, part in ended]
        return results

    def _tensor(self, values: list[int]) -> torch.Tensor:
        return to_device(torch.from_numpy(np.array(values, dtype=np.int64)), self._device)


def is_finite(read: PromptLogprobs | Embedding) -> bool:
    if isinstance(read, Embedding):
        return bool(np.isfinite(np.frombuffer(read.values, dtype="<f4")).all())
    return all(map(math.isfinite, read.logprobs))


def _embedding(total: torch.Tensor, sequence: Sequence) -> Embedding:
    """Normalise a sum of hidden states to length 1, independently of the numbers of tokens and dimensions."""
    pooling = sequence.request.pooling
    assert pooling is not None
    vector = total[: pooling.dimensions or None].double().numpy()
    return Embedding((vector / max(float(np.linalg.norm(vector)), 1e-30)).astype("<f4").tobytes())


def _targets(part: _Part) -> list[int]:
    """Return the next token of each token of a part; the prompt's last token has none, and its row is not used."""
    prompt = part.sequence.request.prompt_token_ids
    return [*prompt[part.start + 1 : part.stop + 1], 0][: part.stop - part.start]


@dataclass(frozen=True, slots=True)
class _Scores:
    """The scores of rows: log-probability and rank of each row's target, and its most likely tokens."""

    logprobs: torch.Tensor
    ranks: torch.Tensor
    top_logprobs: torch.Tensor
    top_ids: torch.Tensor

    def to_host(self) -> _Scores:
        """Start copying the scores to the host."""
        return _Scores(*map(_to_host, (self.logprobs, self.ranks, self.top_logprobs, self.top_ids)))

    def of(self, part: _Part) -> PromptLogprobs:
        prompt, top = part.sequence.request.prompt_token_ids, part.sequence.request.prompt_logprobs or 0
        length = min(part.stop, len(prompt) - 1) - part.start
        rows = slice(part.at, part.at + length)
        first = part.start == 0
        return PromptLogprobs(
            token_ids=prompt[part.start + (not first) : part.start + 1 + length],
            logprobs=[0.0] * first + self.logprobs[rows].tolist(),
            ranks=[0] * first + self.ranks[rows].tolist(),
            top_ids=[[]] * first + self.top_ids[rows, :top].tolist(),
            top_logprobs=[[]] * first + self.top_logprobs[rows, :top].tolist(),
        )


def _score(
    model: Transformer, hidden: torch.Tensor, targets: torch.Tensor, most: int, heads: list[EmbeddingLayerSpan]
) -> _Scores:
    parts = []
    for part in _slices(len(hidden), model):
        logits = model.logits(hidden[part], None, clipped(heads, part.start, part.stop))
        parts.append(_score_slice(logits, targets[part], most))
    return _Scores(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def follow_scores(model: Transformer, hidden: torch.Tensor) -> None:
    """Take part in rank 0's scores of rows, with the same hidden states on a follower."""
    for part in _slices(len(hidden), model):
        model.logits(hidden[part])


def _slices(rows: int, model: Transformer) -> Iterator[slice]:
    at_once = max(1, _MAX_LOGITS // model.config.vocab_size)
    return (slice(first, min(first + at_once, rows)) for first in range(0, rows, at_once))


def _score_slice(logits: torch.Tensor, targets: torch.Tensor, most: int) -> tuple[torch.Tensor, ...]:
    logits = logits.float()
    total = logits.logsumexp(dim=-1, keepdim=True)
    target = logits.gather(1, targets[:, None])
    ranks = (logits > target).sum(dim=-1) + 1
    top_logits, top_ids = logits.topk(most, dim=-1)
    return (target - total)[:, 0], ranks, top_logits - total, top_ids


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cuda:
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
