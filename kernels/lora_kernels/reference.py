"""Reference implementations of the kernels in plain torch, for tests: correct, not fast."""

from __future__ import annotations

import torch

from .fp8_tensors import FP8
from .tables import FP8_ROWS, Group, SlotTables


def adapter_rows(
    pool: torch.Tensor, pages: torch.Tensor, kv_dim: int, pool_row: int, count: int, features: int
) -> torch.Tensor:
    """Return rows ``[count, features]`` from ``pool_row`` of an adapter's ``pages`` on.

    ``pool [num_pages, page_elems]`` is one layer's.
    """
    pool_rows = pool[pages.long()].view(-1, kv_dim)
    per_row = -(-features // kv_dim)
    return pool_rows[pool_row : pool_row + count * per_row].reshape(count, per_row * kv_dim)[:, :features]


def lora_delta(
    x: torch.Tensor,
    pool: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    slot_of_token: torch.Tensor,
    kv_dim: int,
) -> torch.Tensor:
    """Compute ``scale * B (A x)`` of each token's adapter: ``[tokens, sum(out_features)]`` float64."""
    out = torch.zeros(x.shape[0], sum(group.out_features), dtype=torch.float64, device=x.device)
    for token, slot in enumerate(slot_of_token.tolist()):
        start = 0
        for index, features in enumerate(group.out_features):
            target = group.first_target + index
            a_row, b_row, rank = tables.modules[slot, layer, target, :3].tolist()
            if rank:
                pages, rows = tables.pages[slot], pool
                if a_row >= FP8_ROWS:
                    a_row, b_row, rows = a_row - FP8_ROWS, b_row - FP8_ROWS, pool.view(FP8)
                a = adapter_rows(rows, pages, kv_dim, a_row, rank, group.in_features).double()
                b = adapter_rows(rows, pages, kv_dim, b_row, rank, features).double()
                scale = float(tables.scales[slot, layer, target])
                out[token, start : start + features] = scale * ((a @ x[token].double()) @ b)
            start += features
    return out


def epilogue(
    y: torch.Tensor,
    pool: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    slot_of_token: torch.Tensor,
    kv_dim: int,
) -> torch.Tensor:
    """Compute ``y + factor * y + offset`` in float64, with the vectors of each token's adapter."""
    out = y.double().clone()
    for token, slot in enumerate(slot_of_token.tolist()):
        start = 0
        for index, features in enumerate(group.out_features):
            rows = tables.modules[slot, layer, group.first_target + index, 3:].tolist()
            factor, offset = (
                adapter_rows(pool, tables.pages[slot], kv_dim, row - 1, 1, features)[0].double() if row else 0.0
                for row in rows
            )
            part = out[token, start : start + features]
            out[token, start : start + features] = part + factor * part + offset
            start += features
    return out


def paged_attention(
    q: torch.Tensor,
    pool: torch.Tensor,
    pages: torch.Tensor,
    query_start: int,
    page_tokens: int,
    kv_heads: int,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute causal attention of one sequence in float64 over its ``pages``.

    ``q [queries, heads, head_dim]`` stands at positions ``query_start, query_start + 1, …``. ``sinks [heads]``: a score
    of each head beside those of its keys, without a value.
    """
    queries, heads, head_dim = q.shape
    total = query_start + queries
    kv = pool[pages.long()].view(-1, 2, page_tokens, kv_heads, head_dim).double()
    k, v = (kv[:, half].reshape(-1, kv_heads, head_dim)[:total] for half in (0, 1))
    k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * (head_dim**-0.5 if scale is None else scale)
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    positions = torch.arange(query_start, total, device=q.device)[:, None]
    keys = torch.arange(total, device=q.device)[None]
    hidden = keys > positions
    if window:
        hidden = hidden | (keys <= positions - window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.double()[:, None, None].expand(-1, queries, 1)), dim=-1)
    weights = scores.softmax(-1)[..., :total]
    return torch.einsum("hqk,khd->qhd", weights, v)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Compute ``x / rms(x) * weight`` over the last dimension in float32; the result has ``x``'s dtype."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply the rotary embedding to ``x [tokens, heads, head_dim]``.

    The tables are ``[tokens, head_dim]``, with the first half of the sine negated.
    """
    half = x.shape[-1] // 2
    return x * cos[:, None] + x.roll(half, -1) * sin[:, None]


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Compute ``silu(gate) * up`` of ``gate_up [tokens, 2 * inner]``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
