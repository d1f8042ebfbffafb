"""The batch-invariant runner in plain torch (``--deterministic`` without Triton): logits do not depend on the batch.

The rounding of a product's row depends on the number of rows and on the row's index. So every token has a separate
forward pass, whose shapes depend on its position alone. On a CPU that is as fast for a single request; for several
requests it loses the gain of batching.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.execution.prompt_reads import PromptReads, follow_scores
from lora_engine.execution.runner import Logits, Runner
from lora_engine.model.batch import StepBatch
from lora_engine.model.embedding_spans import ABSENT, clipped
from lora_engine.sampling import Samples, SamplingRow
from lora_engine.scheduling.sequence import Chunk


class RowRunner(Runner):
    """A runner that processes the tokens of a step one after another."""

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None, prompts: PromptReads | None) -> Logits:
        batch = self._batch(chunks, merged, prompts)
        hidden = self._hidden(batch)
        if prompts is not None:
            prompts.take(torch.cat(hidden)[prompts.rows], self.model)
        return Logits(self._logits(hidden, batch))

    def _follow(self, batch: StepBatch) -> None:
        hidden = self._hidden(batch)
        if batch.scored_rows is not None:
            follow_scores(self.model, torch.cat(hidden)[batch.scored_rows])
        self._logits(hidden, batch)

    def _hidden(self, batch: StepBatch) -> list[torch.Tensor]:
        """Compute each row's hidden state ``[1, hidden]``, in order: rows read the keys of earlier ones."""
        plan = self.model.ops.plan
        return [
            self.model.hidden(row.token_ids, None, plan(row, self.pool), None, row.embeddings)
            for row in single_rows(batch, self.pool.geometry.page_tokens)
        ]

    def _logits(self, hidden: list[torch.Tensor], batch: StepBatch) -> torch.Tensor:
        vocab, rows = self.model.config.vocab_size, batch.logit_rows.tolist()
        if not rows:
            return torch.empty(0, vocab, dtype=self.model.dtype, device=self.pool.data.device)
        logits = [self.model.logits(hidden[row], None, clipped(batch.heads, i, i + 1)) for i, row in enumerate(rows)]
        width = max(one.shape[1] for one in logits)
        return torch.cat([F.pad(one, (0, width - one.shape[1]), value=ABSENT) for one in logits])

    def _sample_rows(self, logits: Logits, rows: list[SamplingRow]) -> Samples:
        """Sample row by row too: the rounding of noise depends on its position in memory."""
        if len(rows) <= 1:
            return super()._sample_rows(logits, rows)
        samples = [
            super(RowRunner, self)._sample_rows(Logits(logits.values[i : i + 1]), [r]) for i, r in enumerate(rows)
        ]
        scored = [i for i, one in enumerate(samples) if one.scored]
        if not scored:
            return Samples(torch.cat([one.tokens for one in samples]))
        most = max(row.params.top_logprobs for row in rows)
        return Samples(
            torch.cat([one.tokens for one in samples]),
            scored,
            torch.cat([_padded(samples[i].chosen, 1) for i in scored]).flatten(),
            torch.cat([_padded(samples[i].top_values, most) for i in scored]),
            torch.cat([_padded(samples[i].top_ids, most) for i in scored]),
        )


def _padded(values: torch.Tensor | None, columns: int) -> torch.Tensor:
    """Pad a row with zeros to ``columns``."""
    assert values is not None
    return F.pad(values.view(1, -1), (0, columns - values.numel()))


def single_rows(batch: StepBatch, page_tokens: int) -> Iterator[StepBatch]:
    """Yield every row of a batch as a separate batch: one token that attends to its sequence so far."""
    tables = [batch.block_table[row] for row in range(batch.num_decode)]
    states = [] if batch.state_table is None else [*batch.state_table]
    for span in batch.prefill:
        tables += [span.pages] * (span.stop - span.start)
        states += [span.state_pages] * (span.stop - span.start) if span.state_pages is not None else []
    positions = batch.positions.tolist()
    for row, (position, table) in enumerate(zip(positions, tables, strict=True)):
        one = slice(row, row + 1)
        yield StepBatch(
            token_ids=batch.token_ids[one],
            positions=batch.positions[one],
            slot_mapping=batch.slot_mapping[one],
            num_decode=1,
            block_table=table[None, : position // page_tokens + 1],
            seq_lens=batch.positions[one] + 1,
            prefill=[],
            lora=[replace(span, start=0, stop=1) for span in batch.lora if span.start <= row < span.stop],
            embeddings=clipped(batch.embeddings, row, row + 1),
            logit_rows=torch.zeros(1, dtype=torch.int64, device=batch.positions.device),
            state_table=states[row][None] if states else None,
        )
