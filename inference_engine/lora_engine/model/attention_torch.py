"""Attention over the paged pool in plain torch operations: gather pages, then scaled-dot-product attention.

It runs on any device and is the reference of the paged kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from lora_engine.memory.page_pool import PagePool
from lora_kernels.fp8_tensors import FP8, LARGEST

from .batch import PrefillSpan, StepBatch


@dataclass(slots=True)
class AttentionPlan:
    """The indices and masks that all layers of a step share."""

    slot_mapping: torch.Tensor  # [tokens] rows of PagePool.pool_rows that keys are written to
    value_slots: torch.Tensor  # [tokens] rows of PagePool.pool_rows that values are written to
    key_rows: torch.Tensor  # [num_decode * max pages] rows of PagePool.half_pages
    value_rows: torch.Tensor
    scale: float  # factor of the scores
    softcap: float  # bound of the scores; 0: none
    # By window: the additive mask ``[num_decode, 1, 1, max tokens]``, and the gathered positions that it hides.
    masks: dict[int, tuple[torch.Tensor, torch.Tensor]]


def plan_attention(
    batch: StepBatch, pool: PagePool, windows: tuple[int, ...], scale: float, softcap: float, dtype: torch.dtype
) -> AttentionPlan:
    """Build the plan of a step; ``windows`` are the model's distinct sliding windows, 0 is full attention."""
    key_rows = (batch.block_table * 2).flatten()
    tokens = batch.block_table.shape[1] * pool.geometry.page_tokens
    key_positions = torch.arange(tokens, device=batch.block_table.device)
    lengths = batch.seq_lens[:, None]
    masks = {}
    for window in windows:
        hidden = key_positions >= lengths
        if window:
            hidden = hidden | (key_positions < lengths - window)
        mask = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))
        masks[window] = mask[:, None, None, :], hidden.flatten().nonzero()[:, 0]
    value_slots = batch.slot_mapping + pool.geometry.page_tokens
    return AttentionPlan(batch.slot_mapping, value_slots, key_rows, key_rows + 1, scale, softcap, masks)


def write_kv(pool: PagePool, layer: int, plan: AttentionPlan, k: torch.Tensor, v: torch.Tensor) -> None:
    """Write ``k`` and ``v`` ``[tokens, kv_dim]`` to their slots."""
    pool_rows = pool.pool_rows(layer)
    if pool_rows.dtype is FP8:  # as bytes, which can be copied on any device
        pool_rows, k, v = pool_rows.view(torch.uint8), _in_fp8(k), _in_fp8(v)
    pool_rows.index_copy_(0, plan.slot_mapping, k)
    pool_rows.index_copy_(0, plan.value_slots, v)


def _in_fp8(x: torch.Tensor) -> torch.Tensor:
    """Convert to the bytes of E4M3: large numbers saturate, values that are not finite become NaN."""
    return x.clamp(-LARGEST, LARGEST).masked_fill_(~x.isfinite(), torch.nan).to(FP8).view(torch.uint8)


def _half_pages(pool: PagePool, layer: int, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Gather half pages ``[rows, page_tokens * kv_dim]`` in ``dtype``."""
    halves = pool.half_pages(layer)
    if halves.dtype is FP8:
        return halves.view(torch.uint8).index_select(0, rows).view(FP8).to(dtype)
    return halves.index_select(0, rows)


def attend(
    q: torch.Tensor,
    pool: PagePool,
    layer: int,
    batch: StepBatch,
    plan: AttentionPlan,
    window: int,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute attention of ``q [tokens, heads, head_dim]`` over the pages of each token's sequence, written before.

    ``sinks [heads]``: a score of each head that every query has beside those of its keys, without a value.
    """
    if not batch.prefill:
        return _decode(q, pool, layer, plan, window, sinks)
    out = torch.empty_like(q)
    if batch.num_decode:
        out[: batch.num_decode] = _decode(q[: batch.num_decode], pool, layer, plan, window, sinks)
    for span in batch.prefill:
        out[span.start : span.stop] = _prefill(q[span.start : span.stop], pool, layer, span, plan, window, sinks)
    return out


def _decode(
    q: torch.Tensor, pool: PagePool, layer: int, plan: AttentionPlan, window: int, sinks: torch.Tensor | None
) -> torch.Tensor:
    g, (mask, hidden) = pool.geometry, plan.masks[window]
    k, v = (_gather(pool, layer, rows, hidden, q) for rows in (plan.key_rows, plan.value_rows))
    # The query heads that share a key head take the dimension of a prefill's tokens: each key is read once.
    grouped = q.reshape(q.shape[0], g.kv_heads, -1, g.head_dim)
    of_groups = None if sinks is None else sinks.view(1, g.kv_heads, -1, 1)
    return _attention(grouped, k, v, mask, plan, of_groups).reshape(q.shape)


def _gather(pool: PagePool, layer: int, rows: torch.Tensor, hidden: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Gather ``[queries, kv_heads, tokens, head_dim]`` from pages, with zeros in hidden positions.

    Hidden positions may hold another sequence's NaN, which the mask's multiplication by zero would not remove.
    """
    g = pool.geometry
    gathered = _half_pages(pool, layer, rows, q.dtype).view(-1, g.kv_dim).index_fill_(0, hidden, 0)
    return gathered.view(q.shape[0], -1, g.kv_heads, g.head_dim).transpose(1, 2)


def _prefill(
    q: torch.Tensor,
    pool: PagePool,
    layer: int,
    span: PrefillSpan,
    plan: AttentionPlan,
    window: int,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    g = pool.geometry
    chunk = span.stop - span.start
    total = span.context + chunk
    k, v = (
        _half_pages(pool, layer, span.pages * 2 + half, q.dtype)
        .view(-1, g.kv_heads, g.head_dim)[:total]
        .transpose(0, 1)[None]
        for half in (0, 1)
    )
    queries = q.transpose(0, 1)[None]
    plain = not plan.softcap and sinks is None
    if span.context == 0 and (not window or chunk <= window) and plain:
        attended = F.scaled_dot_product_attention(queries, k, v, is_causal=True, enable_gqa=True, scale=plan.scale)
    else:
        of_heads = None if sinks is None else sinks.view(1, -1, 1, 1)
        attended = _attention(queries, k, v, _causal_mask(chunk, total, window, q.device), plan, of_heads)
    return attended[0].transpose(0, 1)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    plan: AttentionPlan,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attend over ``[sequences, heads, tokens, head_dim]``; ``mask`` is additive, or True for visible positions.

    ``sinks`` are ``[1, heads, 1 or tokens, 1]``.
    """
    if not plan.softcap and sinks is None:
        grouped = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped, scale=plan.scale)
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = (scores * (plan.scale / plan.softcap)).tanh() * plan.softcap if plan.softcap else scores * plan.scale
    scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else scores + mask
    if sinks is not None:
        column = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
        scores = torch.cat((scores, column), dim=-1)
    weights = scores.softmax(-1, dtype=torch.float32).to(v.dtype)
    return torch.matmul(weights if sinks is None else weights[..., :-1], v)


def _causal_mask(chunk: int, total: int, window: int, device: torch.device) -> torch.Tensor:
    """Return the causal mask ``[chunk, total]`` bool, True for visible positions."""
    queries = torch.arange(total - chunk, total, device=device)[:, None]
    keys = torch.arange(total, device=device)[None]
    visible = keys <= queries
    return visible & (keys > queries - window) if window else visible
