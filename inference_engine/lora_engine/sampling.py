"""From logits to tokens, for a whole batch at once.

Randomness is a pure function of (seed, output position, token id): the same request draws
the same tokens whatever else is in its batch, after a pre-emption, and on another host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch

from .request import SamplingParams, TokenLogprob


@dataclass(slots=True)
class SamplingRow:
    """One row of the logits: whose it is and what its output so far means for the choice."""

    params: SamplingParams
    seed: int
    position: int  # tokens generated so far
    prompt_tokens: frozenset[int] = frozenset()  # only filled when a repetition penalty is set
    output_counts: Counter[int] = field(default_factory=Counter)  # only filled when a penalty is set

    @property
    def greedy(self) -> bool:
        return self.params.temperature == 0.0

    @property
    def penalised(self) -> bool:
        p = self.params
        return bool(p.presence_penalty or p.frequency_penalty or p.repetition_penalty != 1.0 or p.logit_bias)

    @property
    def truncated(self) -> bool:
        p = self.params
        return not self.greedy and (p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0)


@dataclass(slots=True)
class Samples:
    """A batch's chosen tokens, still on the device: reading them waits for the step that chose them.

    ``tokens [rows]`` int64. For the rows ``scored`` that asked for log-probabilities, ``chosen [scored]`` is
    their token's and ``top_values``, ``top_ids`` ``[scored, most asked for]`` the most likely tokens'.
    """

    tokens: torch.Tensor
    scored: list[int] = field(default_factory=list)
    chosen: torch.Tensor | None = None
    top_values: torch.Tensor | None = None
    top_ids: torch.Tensor | None = None

    def logprobs(self, tokens: Seq[int], rows: Seq[SamplingRow]) -> list[TokenLogprob | None]:
        """One entry per row; None for rows that did not ask."""
        out: list[TokenLogprob | None] = [None] * len(rows)
        if self.chosen is None or self.top_values is None or self.top_ids is None:
            return out
        entries = zip(self.scored, self.chosen.tolist(), self.top_ids.tolist(), self.top_values.tolist(), strict=True)
        for row, chosen, ids, values in entries:
            count = rows[row].params.top_logprobs
            out[row] = TokenLogprob(tokens[row], chosen, tuple(zip(ids[:count], values[:count], strict=True)))
        return out


def sample(logits: torch.Tensor, rows: Seq[SamplingRow]) -> Samples:
    """Choose one token per row of ``logits [rows, vocab]``, without waiting for the device."""
    if all(row.params.plain_greedy for row in rows):
        return Samples(logits.argmax(dim=-1))
    scores = logits.float()
    scored = [index for index, row in enumerate(rows) if row.params.logprobs]
    raw = torch.log_softmax(scores[scored], dim=-1) if scored else None
    if any(row.penalised for row in rows):
        scores = scores.clone()
        for index, row in enumerate(rows):
            if row.penalised:
                _penalise(scores[index], row)
    tokens = _choose(scores, rows)
    if raw is None:
        return Samples(tokens)
    chosen = raw.gather(1, tokens[scored][:, None])[:, 0]
    most = max(rows[index].params.top_logprobs for index in scored)
    return Samples(tokens, scored, chosen, *raw.topk(most, dim=-1))


def _choose(scores: torch.Tensor, rows: Seq[SamplingRow]) -> torch.Tensor:
    """Greedy rows take the maximum; the others add Gumbel noise to the truncated, tempered scores."""
    random = [index for index, row in enumerate(rows) if not row.greedy]
    tokens = scores.argmax(dim=-1)
    if random:
        chosen = [rows[index] for index in random]
        device = scores.device
        temperatures = torch.tensor([row.params.temperature for row in chosen], device=device)[:, None]
        tempered = scores[random] / temperatures.clamp(min=1e-5)
        if any(row.truncated for row in chosen):
            tempered = _truncate(tempered, chosen)
        noisy = tempered + gumbel(
            torch.tensor([row.seed for row in chosen], dtype=torch.int64, device=device),
            torch.tensor([row.position for row in chosen], dtype=torch.int64, device=device),
            scores.shape[1],
        )
        tokens[random] = noisy.argmax(dim=-1)
    return tokens


def _penalise(scores: torch.Tensor, row: SamplingRow) -> None:
    """Presence and frequency penalties as OpenAI defines them, over the output; the repetition
    penalty of CTRL (arXiv 1909.05858), over prompt and output; then the logit bias. In place."""
    p, device = row.params, scores.device
    if p.repetition_penalty != 1.0:
        seen = torch.tensor(sorted(row.prompt_tokens | row.output_counts.keys()), device=device)
        values = scores[seen]
        scores[seen] = torch.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
    if row.output_counts and (p.presence_penalty or p.frequency_penalty):
        ids = torch.tensor(list(row.output_counts), device=device)
        counts = torch.tensor(list(row.output_counts.values()), dtype=scores.dtype, device=device)
        scores[ids] -= p.presence_penalty + p.frequency_penalty * counts
    if p.logit_bias:
        ids = torch.tensor(list(p.logit_bias), device=device)
        scores[ids] += torch.tensor(list(p.logit_bias.values()), dtype=scores.dtype, device=device)


def _truncate(scores: torch.Tensor, rows: Seq[SamplingRow]) -> torch.Tensor:
    """Keep the ``top_k`` best, then the smallest set with probability ``top_p``, then what has at
    least ``min_p`` of the best token's probability; everything else becomes -inf."""
    device, vocab = scores.device, scores.shape[1]
    ordered, order = scores.sort(dim=-1, descending=True)
    top_k = torch.tensor([r.params.top_k or vocab for r in rows], device=device)[:, None]
    top_p = torch.tensor([r.params.top_p for r in rows], device=device)[:, None]
    min_p = torch.tensor([r.params.min_p for r in rows], device=device)[:, None]
    ordered = ordered.masked_fill(torch.arange(vocab, device=device) >= top_k, float("-inf"))
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    dropped = (before >= top_p) | (probabilities < min_p * probabilities[:, :1])
    dropped[:, 0] = False
    return torch.empty_like(scores).scatter_(1, order, ordered.masked_fill(dropped, float("-inf")))


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Standard Gumbel noise ``[rows, vocab]`` from the splitmix64 finaliser over (seed, position, token)."""
    ids = torch.arange(vocab, dtype=torch.int64, device=seeds.device)
    z = (_mix(_mix(seeds) + positions))[:, None] + ids * _signed(0x9E3779B97F4A7C15)
    uniform = ((_mix(z) >> 40) & 0xFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-24)
    return -torch.log(-torch.log(uniform))


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical right shift: torch's own is arithmetic."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
