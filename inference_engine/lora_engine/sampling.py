"""Sampling of tokens from logits, for a whole batch at once.

Randomness is a pure function of (seed, output position, token id): a request samples the same tokens in any batch,
after a pre-emption, and on another host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.memory.pinned import to_device
from lora_kernels.sampling_parameters import OVERFLOWED, TokenMaskRows, column, row_parameters, token_mask_rows

from .request import SamplingParams, TokenLogprob

# Subtracted from the logits of tokens to avoid; finite, so that they can be sampled where a mask allows no others.
_SUPPRESSION = 1e4


@dataclass(slots=True)
class SamplingRow:
    """The sampling state of one row of the logits: its parameters, and its output so far."""

    sampling: SamplingParams
    seed: int
    position: int  # tokens generated so far
    prompt_tokens: frozenset[int] = frozenset()  # only filled when a repetition penalty is set
    output_counts: Counter[int] = field(default_factory=Counter)  # only filled when a penalty is set
    mask: npt.NDArray[np.int32] | None = None  # one bit for each allowed token; None: all are allowed
    suppressed: Collection[int] = ()  # tokens that are sampled only if no others are allowed

    @property
    def plain_greedy(self) -> bool:
        return self.mask is None and self.sampling.plain_greedy

    @property
    def greedy(self) -> bool:
        return self.sampling.temperature == 0.0

    @property
    def penalised(self) -> bool:
        p = self.sampling
        return bool(
            p.presence_penalty or p.frequency_penalty or p.repetition_penalty != 1.0 or p.logit_bias or self.suppressed
        )

    @property
    def truncated(self) -> bool:
        p = self.sampling
        return not self.greedy and (p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0)


@dataclass(slots=True)
class Samples:
    """The sampled tokens of a batch on the device: reading them waits for the step.

    ``tokens [rows]`` int64, ``OVERFLOWED`` where a row's logits are not all finite. For the rows ``scored``, which
    request log-probabilities, ``chosen [scored]`` is the sampled token's, and ``top_values``, ``top_ids``
    ``[scored, most requested]`` are the most likely tokens'.
    """

    tokens: torch.Tensor
    scored: list[int] = field(default_factory=list)
    chosen: torch.Tensor | None = None
    top_values: torch.Tensor | None = None
    top_ids: torch.Tensor | None = None

    def logprobs(self, tokens: Seq[int], rows: Seq[SamplingRow]) -> list[TokenLogprob | None]:
        """Return one entry per row; None for rows that do not request log-probabilities."""
        out: list[TokenLogprob | None] = [None] * len(rows)
        if self.chosen is None or self.top_values is None or self.top_ids is None:
            return out
        entries = zip(self.scored, self.chosen.tolist(), self.top_ids.tolist(), self.top_values.tolist(), strict=True)
        for row, chosen, ids, values in entries:
            count = rows[row].sampling.top_logprobs
            out[row] = TokenLogprob(tokens[row], chosen, tuple(zip(ids[:count], values[:count], strict=True)))
        return out


def sample(logits: torch.Tensor, rows: Seq[SamplingRow]) -> Samples:
    """Sample one token per row of ``logits [rows, vocab]``, without waiting for the device."""
    if all(row.plain_greedy for row in rows):
        return Samples(greedy_tokens(logits))
    adjusted = logits
    if any(row.penalised for row in rows):
        adjusted = logits.to(torch.float32, copy=True)
        _penalise(adjusted, rows)
    tokens = _sample_rows(adjusted, rows)
    scored = [index for index, row in enumerate(rows) if row.sampling.logprobs]
    if not scored:
        return Samples(tokens)
    index = to_device(torch.tensor(scored), logits.device)
    raw = torch.log_softmax(logits[index].float(), dim=-1)
    chosen = raw.gather(1, tokens[index].clamp(min=0)[:, None])[:, 0]
    most = max(rows[index].sampling.top_logprobs for index in scored)
    return Samples(tokens, scored, chosen, *raw.topk(most, dim=-1))


def greedy_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Return the best token of each row of ``logits [rows, vocab]``: ``[rows]`` int64."""
    return _on_gpu(logits) if logits.device.type != "cpu" else _unless_overflowed(logits.argmax(dim=-1), logits)


def _sample_rows(logits: torch.Tensor, rows: Seq[SamplingRow]) -> torch.Tensor:
    """Sample each row: greedy ones take the maximum, others add Gumbel noise to the truncated, tempered logits."""
    if logits.device.type != "cpu":
        device = logits.device
        masks = masks_of(rows, pinned=device.type == "cuda")
        on_device = None if masks is None else masks.to(lambda tensor: to_device(tensor, device))
        if all(row.greedy for row in rows):  # the kernel needs no parameters for greedy rows
            return _on_gpu(logits, None, on_device)
        truncated = any(row.truncated for row in rows)
        return _on_gpu(logits, to_device(parameters_of(rows), device), on_device, truncated=truncated)
    truncated = any(row.truncated for row in rows)
    return sample_with_torch(logits, parameters_of(rows), masks_of(rows), truncated=truncated)


def parameters_of(rows: Seq[SamplingRow]) -> torch.Tensor:
    """Pack the sampling parameters of all rows on the host (``row_parameters``)."""
    sampling = [row.sampling for row in rows]
    return row_parameters(
        seeds=[row.seed for row in rows],
        positions=[row.position for row in rows],
        temperatures=[p.temperature for p in sampling],
        top_ps=[p.top_p for p in sampling],
        min_ps=[p.min_p for p in sampling],
        top_ks=[p.top_k for p in sampling],
    )


def masks_of(rows: Seq[SamplingRow], *, pinned: bool = False) -> TokenMaskRows | None:
    """Pack the rows' token masks on the host (``pinned`` for a GPU); None if all rows may sample any token."""
    masks = [row.mask for row in rows]
    return None if all(mask is None for mask in masks) else token_mask_rows(masks, pinned=pinned)


def _on_gpu(
    logits: torch.Tensor,
    parameters: torch.Tensor | None = None,
    masks: TokenMaskRows | None = None,
    *,
    truncated: bool = False,
) -> torch.Tensor:
    from lora_kernels.sampling import sample_tokens  # needs Triton, which CPU hosts may lack

    return sample_tokens(logits, parameters, masks, truncated=truncated)


def sample_with_torch(
    logits: torch.Tensor, parameters: torch.Tensor, masks: TokenMaskRows | None = None, *, truncated: bool
) -> torch.Tensor:
    """Sample tokens in plain torch; the reference of ``lora_kernels.sampling.sample_tokens``."""
    temperatures, raw = column(parameters, "temperature")[:, None], logits.float()
    logits = raw if masks is None else raw.masked_fill(~masks.allowed(raw.shape[1]), float("-inf"))
    if not bool((temperatures > 0).any()):
        return _unless_overflowed(logits.argmax(dim=-1), raw)
    tempered = logits / temperatures.clamp(min=1e-5)
    if truncated:
        top_p, min_p, top_k = (column(parameters, field)[:, None] for field in ("top_p", "min_p", "top_k"))
        tempered = _truncate(tempered, top_p, min_p, top_k.long())
    noisy = tempered + gumbel(column(parameters, "seed"), column(parameters, "position"), logits.shape[1])
    return _unless_overflowed(torch.where(temperatures > 0, noisy, logits).argmax(dim=-1), raw)


def _unless_overflowed(tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    finite = logits.amax(dim=-1).isfinite() & logits.amin(dim=-1).isfinite()  # both are NaN if any logit is
    return torch.where(finite, tokens, OVERFLOWED)


def _penalise(logits: torch.Tensor, rows: Seq[SamplingRow]) -> None:
    """Apply penalties, logit biases and ``suppressed`` to the logits, in place.

    Presence and frequency penalties follow OpenAI's definition, over the output; the repetition penalty follows CTRL
    (arXiv 1909.05858), over prompt and output.
    """
    repeated, counted, biased, suppressions = _Entries(), _Entries(), _Entries(), _Entries()
    for index, row in enumerate(rows):
        p = row.sampling
        if p.repetition_penalty != 1.0:
            repeated.add(index, row.prompt_tokens | row.output_counts.keys(), p.repetition_penalty)
        if row.output_counts and (p.presence_penalty or p.frequency_penalty):
            counts = np.fromiter(row.output_counts.values(), dtype=np.float32, count=len(row.output_counts))
            counted.add(index, row.output_counts, p.presence_penalty + p.frequency_penalty * counts)
        if p.logit_bias:
            biased.add(index, p.logit_bias, np.fromiter(p.logit_bias.values(), dtype=np.float32))
        if row.suppressed:
            suppressions.add(index, row.suppressed, _SUPPRESSION)
    if repeated:
        where, penalty = repeated.to(logits.device)
        values = logits[where]
        logits[where] = torch.where(values > 0, values / penalty, values * penalty)
    for entries, sign in ((counted, -1), (biased, 1), (suppressions, -1)):
        if entries:
            where, change = entries.to(logits.device)
            logits[where] = logits[where] + sign * change


class _Entries:
    """A list of entries of a batch's logits, each with a number."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.float32]]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, row: int, tokens: Collection[int], numbers: float | npt.NDArray[np.float32]) -> None:
        """Add distinct ``tokens`` of ``row``, with a number each or one for all."""
        ids = np.fromiter(tokens, dtype=np.int64, count=len(tokens))
        self._entries.append((row, ids, np.broadcast_to(np.float32(numbers), ids.shape)))

    def to(self, device: torch.device) -> tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]:
        """Return (rows, tokens), which index the logits, and the numbers, on ``device``."""
        rows = np.repeat([row for row, _, _ in self._entries], [len(ids) for _, ids, _ in self._entries])
        tokens = np.concatenate([ids for _, ids, _ in self._entries])
        numbers = np.concatenate([numbers for _, _, numbers in self._entries])
        both = to_device(torch.from_numpy(np.stack((rows, tokens))), device)
        return (both[0], both[1]), to_device(torch.from_numpy(numbers), device)


def _truncate(logits: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Set logits to -inf outside of top-k, top-p and min-p.

    Kept are the ``top_k`` best tokens, of these the smallest set with probability ``top_p``, of these the ones with at
    least ``min_p`` of the best token's probability. Tokens with the same logit are kept or dropped together. Parameters
    are ``[rows, 1]``; top-k 0 keeps all.
    """
    vocab = logits.shape[1]
    ordered = logits.sort(dim=-1, descending=True).values
    last = torch.where(top_k > 0, top_k, vocab).clamp(max=vocab) - 1
    beyond = ordered < ordered.gather(1, last)
    probabilities = ordered.masked_fill(beyond, float("-inf")).softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    dropped = beyond | ((before >= top_p) & (top_p < 1)) | (probabilities < min_p * probabilities[:, :1])
    dropped[:, 0] = False
    least = ordered.masked_fill(dropped, float("inf")).amin(dim=-1, keepdim=True)
    return logits.masked_fill(logits < least, float("-inf"))


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, vocab: int) -> torch.Tensor:
    """Return standard Gumbel noise ``[rows, vocab]`` from the splitmix64 finaliser over (seed, position, token).

    The noise is finite, and has a fine resolution where it is large: over a large vocabulary the smallest exponential
    variables decide, which are computed from 32 bits without the cancellation of ``1 - uniform``.
    """
    ids = torch.arange(vocab, dtype=torch.int64, device=seeds.device)
    z = (_mix(_mix(seeds) + positions))[:, None] + ids * _signed(0x9E3779B97F4A7C15)
    uniform = _shift(_mix(z), 32).to(torch.float32).add_(0.5).mul_(2.0**-32).clamp_(max=1 - 2.0**-24)
    return -torch.log(-torch.log1p(-uniform))


def _mix(z: torch.Tensor) -> torch.Tensor:
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shift(z, 31)


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift right logically: torch's operator shifts arithmetically."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
