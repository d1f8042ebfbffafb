"""LoRA deltas in plain torch operations, grouped by adapter: the CPU backend, and the reference of the kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lora_engine.adapters.targets import REPLICATED_GROUPS

from .batch import LoraSpan
from .lora_exchange import LoraExchange


def add_lora(
    group: int,
    layer: int,
    x: torch.Tensor,
    out: torch.Tensor,
    spans: Sequence[LoraSpan],
    exchange: LoraExchange | None = None,
) -> None:
    """Compute ``out[rows] += sign * scale * (x[rows] A^T) B^T`` in place, for each span and each target of the group.

    ``x`` is ``[tokens, in]``; ``out`` ``[tokens, sum of the group's out]``. A base-only batch has no spans and costs
    nothing. ``exchange`` is set where both factors are split over ranks.
    """
    if exchange is not None and group not in REPLICATED_GROUPS:
        for sign in (1, -1):  # a row may use one adapter and subtract another
            _add_split_lora(group, layer, x, out, [span for span in spans if span.sign == sign], exchange)
        return
    for span in spans:
        weights = span.slot.group(layer, group)
        if weights is None:
            continue
        shrunk = torch.mm(x[span.start : span.stop], weights.a_t)
        rows = out[span.start : span.stop]
        for target in weights.targets:
            rows[:, target.out_start : target.out_stop].addmm_(
                shrunk[:, target.rank_start : target.rank_stop], target.b, alpha=span.sign * target.scale
            )


def _add_split_lora(
    group: int, layer: int, x: torch.Tensor, out: torch.Tensor, spans: Sequence[LoraSpan], exchange: LoraExchange
) -> None:
    used = [(span, weights) for span in spans if (weights := span.slot.group(layer, group)) is not None]
    if not used:
        return
    local = x.new_zeros(x.shape[0], max(weights.a_t.shape[1] for _, weights in used))
    for span, weights in used:
        local[span.start : span.stop, : weights.a_t.shape[1]] = torch.mm(x[span.start : span.stop], weights.a_t)
    shrunk, part = exchange.shrunk(group, local), exchange.columns(group, out)
    for span, weights in used:
        rows = part[span.start : span.stop]
        for target in weights.targets:
            of_all = shrunk[:, span.start : span.stop, target.rank_start : target.rank_stop]
            rows[:, target.out_start : target.out_stop].addmm_(
                of_all.transpose(0, 1).flatten(1), target.b, alpha=span.sign * target.scale
            )


def apply_epilogues(group: int, layer: int, out: torch.Tensor, spans: Sequence[LoraSpan]) -> None:
    """Compute ``out[rows] += factor * out[rows] + offset`` in place, for spans whose adapters have such vectors."""
    for span in spans:
        if not span.slot.has_epilogues or span.sign < 0:
            continue
        for weights in span.slot.epilogues(layer, group):
            part = out[span.start : span.stop, weights.out_start : weights.out_stop]
            if weights.factor is not None:
                part.addcmul_(part, weights.factor)
            if weights.offset is not None:
                part.add_(weights.offset)
