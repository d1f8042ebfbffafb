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

from lora_engine.execution.runner import Logits, Runner
from lora_engine.model.batch import StepBatch
from lora_engine.model.embedding_spans import ABSENT, clipped
from lora_engine.sampling import Samples, SamplingRow


class RowRunner(Runner):
    """A runner that processes the tokens of a step one after another."""

    def _hidden(self, batch: StepBatch, rows: torch.Tensor) -> torch.Tensor:
        """Compute the hidden states of all rows in order: rows read the keys of earlier ones."""
        plan = self.model.ops.plan
        hidden = [
            self.model.hidden(row.token_ids, None, plan(row, self.pool), None, row.embeddings)
            for row in single_rows(batch, self.pool.geometry.page_tokens)
        ]
        return torch.cat(hidden)[rows]

    def _head(self, hidden: torch.Tensor, batch: StepBatch) -> Logits:
        if not len(hidden):
            return Logits(hidden.new_empty(0, self.model.config.vocab_size))
        # A copy of each row: the rounding of a product may also depend on its place in memory.
        logits = [
            self.model.logits(hidden[row : row + 1].clone(), None, clipped(batch.heads, row, row + 1))
            for row in range(len(hidden))
        ]
        width = max(one.shape[1] for one in logits)
        return Logits(torch.cat([F.pad(one, (0, width - one.shape[1]), value=ABSENT) for one in logits]))

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
        most = max(row.sampling.top_logprobs for row in rows)
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
    runs: list[torch.Tensor | None] = [] if batch.decode_runs is None else _single_runs(batch.decode_runs)
    runs += [None] * (len(batch.positions) - len(runs))
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
            decode_runs=runs[row],
        )


def _single_runs(table: torch.Tensor) -> list[torch.Tensor | None]:
    """Return a run for each row of runs: drafts are kept one after the other, and each reads those before it."""
    single: list[torch.Tensor | None] = []
    for rows, drafts, replays, slot in table.t().tolist():
        certain = rows - drafts
        for row in range(rows):
            before = row - certain + (0 if certain else replays) if row >= certain else replays if row == 0 else 0
            single.append(torch.tensor([[1], [int(row >= certain)], [before], [slot]]))
    return single
