"""Batch-invariant decode attention: the number of a token's keys alone determines how they are split.

The number of programs that share a sequence's splits does not affect the result: every program sums up a split in the
same way, and the splits are combined in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .attention import (
    FEW_DECODES,
    MANY_DECODES,
    DecodeWorkspace,
    attend_split,
    begin_softmax,
    check_decode,
    check_sinks,
    decode_splits,
    load_decode_query,
    scale_log2e,
    store_split,
)
from .pdl import grid_dependency_wait, launch_dependents, pdl_options

# Rows up to which each sequence and key-value head gets at least `FEW_ROWS_PROGRAMS` programs.
FEW_ROWS, FEW_ROWS_PROGRAMS = 64, 8
# Keys in the smallest split: with fewer, writing the partial sums takes longer than the parallel reads save.
LEAST_SPLIT = 256


@triton.jit
def _splits_of(length, window, MAX_SPLITS: tl.constexpr, LEAST: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the first visible key, the start of its block, the keys of a split, and the number of splits."""
    visible = 0
    if window > 0:
        visible = tl.maximum(length - window, 0)
    first = visible // BLOCK_N * BLOCK_N
    split_tokens = tl.cdiv(tl.cdiv(length - first, MAX_SPLITS), BLOCK_N) * BLOCK_N
    split_tokens = tl.maximum(split_tokens, LEAST)
    return visible, first, split_tokens, tl.cdiv(length - first, split_tokens)


@triton.jit(do_not_specialize=["block_table_stride"])
def _decode_kernel(
    q_ptr,
    pool_ptr,
    block_table_ptr,
    seq_lens_ptr,
    out_ptr,
    sinks_ptr,
    partial_ptr,
    stats_ptr,
    q_stride,
    block_table_stride,
    out_stride,
    window,
    scale_log2e,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    LEAST: tl.constexpr,
    SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    sequence, kv_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    KV_DIM: tl.constexpr = KV_HEADS * HEAD_DIM
    length = tl.load(seq_lens_ptr + sequence)
    visible, first, split_tokens, splits = _splits_of(length, window, MAX_SPLITS, LEAST, BLOCK_N)
    grid_dependency_wait(PDL)
    q, heads, dims, heads_ok, ok = load_decode_query(
        q_ptr, q_stride, sequence, kv_head, GROUP, HEAD_DIM, HEAD_PAD, BLOCK_M
    )
    positions = tl.zeros((BLOCK_M,), dtype=tl.int32) + length - 1
    for split in range(tl.program_id(2), splits, tl.num_programs(2)):
        start = first + split * split_tokens
        stop = tl.minimum(start + split_tokens, length)
        best, total = begin_softmax(sinks_ptr, heads, heads_ok, split == 0, BLOCK_M, HAS_SINKS)
        acc, best, total = attend_split(
            q, best, total, start, stop, visible, positions, window, scale_log2e, pool_ptr,
            block_table_ptr + sequence * block_table_stride, kv_head * HEAD_DIM, PAGE_TOKENS, KV_DIM, HEAD_DIM,
            HEAD_PAD, BLOCK_M, BLOCK_N, SOFTCAP,
        )  # fmt: skip
        if splits == 1:
            out = (acc / tl.where(total == 0.0, 1.0, total)[:, None]).to(out_ptr.dtype.element_ty)
            tl.store(out_ptr + sequence * out_stride + heads[:, None] * HEAD_DIM + dims[None, :], out, mask=ok)
        else:
            place = (sequence * HEADS + heads) * MAX_SPLITS + split
            store_split(partial_ptr, stats_ptr, place, dims, acc, best, total, ok, heads_ok, HEAD_DIM)


@triton.jit
def _combine_kernel(
    partial_ptr,
    stats_ptr,
    seq_lens_ptr,
    out_ptr,
    out_stride,
    window,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    LEAST: tl.constexpr,
    PDL: tl.constexpr,
):
    """Combine the splits of one head, if there are several: a mean weighted by the softmax's weights."""
    launch_dependents(PDL)
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    _visible, _first, _tokens, used = _splits_of(tl.load(seq_lens_ptr + sequence), window, MAX_SPLITS, LEAST, BLOCK_N)
    grid_dependency_wait(PDL)
    if used > 1:
        splits = tl.arange(0, MAX_SPLITS)
        dims = tl.arange(0, HEAD_PAD)
        place = (sequence * HEADS + head) * MAX_SPLITS + splits
        best = tl.load(stats_ptr + place * 2, mask=splits < used, other=float("-inf"))
        total = tl.load(stats_ptr + place * 2 + 1, mask=splits < used, other=0.0)
        weight = tl.exp2(best - tl.max(best, axis=0))
        ok = (splits < used)[:, None] & (dims < HEAD_DIM)[None, :]
        partial = tl.load(partial_ptr + place[:, None] * HEAD_DIM + dims[None, :], mask=ok, other=0.0)
        out = tl.sum(partial * weight[:, None], axis=0) / tl.sum(total * weight, axis=0)
        out_place = out_ptr + sequence * out_stride + head * HEAD_DIM + dims
        tl.store(out_place, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)


def invariant_decode(
    q: torch.Tensor,
    pool: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
    workspace: DecodeWorkspace,
    *,
    heads: int,
    kv_heads: int,
    page_tokens: int,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> None:
    """Compute decode attention as ``paged_decode``, with each row bitwise the same in every batch.

    Keys are split into at most as many parts as ``workspace`` has room for. A length of 0 writes nothing.
    """
    head_dim = q.shape[1] // heads
    check_decode(q, pool, block_table, seq_lens, page_tokens, kv_heads, head_dim)
    check_sinks(sinks, heads)
    if q.shape[0] > workspace.partial.shape[0]:
        raise ValueError(f"{q.shape[0]} queries, but the workspace was made for {workspace.partial.shape[0]}")
    head_pad, max_splits = triton.next_power_of_2(head_dim), workspace.partial.shape[2]
    # With wide elements the pipeline's stages would exceed a multiprocessor's shared memory.
    keys, warps, stages = FEW_DECODES if head_pad * q.element_size() <= 512 else MANY_DECODES
    # A few rows may be a graph's padding beside a single long sequence.
    least = FEW_ROWS_PROGRAMS if q.shape[0] <= FEW_ROWS else 1
    programs = min(max(decode_splits(q.shape[0], kv_heads), least), max_splits)
    common = dict(
        HEADS=heads,
        HEAD_DIM=head_dim,
        HEAD_PAD=head_pad,
        BLOCK_N=keys,
        MAX_SPLITS=max_splits,
        LEAST=LEAST_SPLIT,
        **pdl_options(q),
    )
    _decode_kernel[(q.shape[0], kv_heads, programs)](
        q,
        pool,
        block_table,
        seq_lens,
        out,
        q if sinks is None else sinks,
        workspace.partial,
        workspace.stats,
        q.stride(0),
        block_table.stride(0),
        out.stride(0),
        window,
        scale_log2e(scale, head_dim, softcap),
        KV_HEADS=kv_heads,
        PAGE_TOKENS=page_tokens,
        BLOCK_M=max(16, triton.next_power_of_2(heads // kv_heads)),
        SOFTCAP=softcap,
        HAS_SINKS=sinks is not None,
        num_warps=warps,
        num_stages=stages,
        **common,
    )
    _combine_kernel[(q.shape[0], heads)](
        workspace.partial, workspace.stats, seq_lens, out, out.stride(0), window, num_warps=2, **common
    )
