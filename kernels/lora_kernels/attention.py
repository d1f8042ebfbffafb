"""Attention over the paged pool: split-KV decode and chunked causal prefill.

Both pack the query heads that share a key-value head into one matrix operand. A page of the pool is ``[2, page_tokens,
kv_heads, head_dim]``: keys, then values. The online softmax follows FlashAttention-2 (arXiv 2307.08691), the split over
keys Flash-Decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from .hopper_prefill import TILE_ROWS, launch_prefill
from .pdl import grid_dependency_wait, launch_dependents, pdl_options

# Keys in a block, warps, and stages of the pipeline: the fastest decode configurations measured on an H200.
FEW_DECODES, MANY_DECODES = (64, 4, 3), (32, 1, 2)
# The same of heads that are wider than 128, whatever the number of programs: one warp would keep registers in memory.
WIDE_HEAD_DECODES = (32, 4, 2)
# Programs up to which a decode takes `FEW_DECODES`: four on each of an H200's 132 multiprocessors.
FEW = 4 * 132
# Keys in a block, warps, and stages of the pipeline: the fastest prefill configurations measured on an H200.
SHORT_CONTEXT, LONG_CONTEXT = (32, 4, 2), (64, 4, 2)
# Tokens of the longest sequence from which on a prefill takes `LONG_CONTEXT`.
LONG = 1024
# Programs up to which the keys of prefill tiles are split: two on each of an H200's 132 multiprocessors, or one of the
# kernel for Hopper, which fills a multiprocessor.
PREFILL_PROGRAMS = 2 * 132
HOPPER_PREFILL_PROGRAMS = 132
# Keys in the smallest split of a prefill tile.
LEAST_SPLIT = 512
# Keys from which on a prefill tile is split: reading fewer takes less time than merging their splits.
LEAST_SPLIT_KEYS = 1536
# Fields of a tile of ``prefill_tiles``.
PREFILL_TILE_FIELDS = 6
# Rows of a program that merges splits, and splits whose loads it issues together.
_MERGED_ROWS, _SPLITS_PER_LOAD = 8, 8
# Rows of a prefill tile, each a token and a query head of its key-value head.
BLOCK_M = 64


@triton.jit
def attend_block(
    q,
    acc,
    best,
    total,
    key_start,
    key_first,
    key_stop,
    positions,
    window,
    scale_log2e,
    pool_ptr,
    block_table_ptr,
    head_offset,
    PAGE_TOKENS: tl.constexpr,
    KV_DIM: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WHOLE: tl.constexpr,
    SOFTCAP: tl.constexpr,
):
    """Add one block of keys to the online softmax of ``q [rows, HEAD_PAD]`` at ``positions [rows]``.

    No key outside ``key_first`` to ``key_stop`` is read: it may hold another sequence's NaN, which a weight of zero
    would not remove. ``WHOLE``: every row sees every key of the block.
    """
    keys = key_start + tl.arange(0, BLOCK_N)
    keys_ok = tl.full((BLOCK_N,), True, tl.int1) if WHOLE else (keys >= key_first) & (keys < key_stop)
    page = tl.load(block_table_ptr + keys // PAGE_TOKENS, mask=keys_ok, other=0).to(tl.int64)
    pool_rows = page * (2 * PAGE_TOKENS * KV_DIM) + (keys % PAGE_TOKENS) * KV_DIM + head_offset
    dims = tl.arange(0, HEAD_PAD)
    dims_ok = dims < HEAD_DIM
    k = tl.load(pool_ptr + pool_rows[None, :] + dims[:, None], mask=keys_ok[None, :] & dims_ok[:, None], other=0.0)
    k = k.to(q.dtype)
    scores = tl.dot(q, k, input_precision="ieee") * scale_log2e
    if SOFTCAP > 0:  # scale_log2e then makes exp2(scores) = e^2a, since cap * tanh(a) = cap - 2 cap / (1 + e^2a)
        scores = (SOFTCAP - 2 * SOFTCAP / (1.0 + tl.exp2(scores))) * 1.4426950408889634
    if not WHOLE:
        visible = keys_ok[None, :] & (keys[None, :] <= positions[:, None])
        if window > 0:
            visible = visible & (keys[None, :] > positions[:, None] - window)
        scores = tl.where(visible, scores, float("-inf"))
    new_best = tl.maximum(best, tl.max(scores, axis=1))
    # The best score of a row without a visible key so far is -inf: subtracting it would give NaN.
    anchor = new_best if WHOLE else tl.where(new_best == float("-inf"), 0.0, new_best)
    weights = tl.exp2(scores - anchor[:, None])
    shrink = tl.exp2(best - anchor)
    v = tl.load(
        pool_ptr + pool_rows[:, None] + PAGE_TOKENS * KV_DIM + dims[None, :],
        mask=keys_ok[:, None] & dims_ok[None, :],
        other=0.0,
    )
    acc = tl.dot(weights.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision="ieee")
    return acc, new_best, total * shrink + tl.sum(weights, axis=1)


@triton.jit
def begin_softmax(sinks_ptr, heads, ok, first, BLOCK_M: tl.constexpr, HAS_SINKS: tl.constexpr):
    """Return the best score and the sum of weights of an online softmax before its first key, for rows of ``heads``.

    A sink is a score without a value: it is in the sum from the beginning, but only in the ``first`` split of the keys.
    """
    best = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    if HAS_SINKS:
        counts = ok & first
        sinks = tl.load(sinks_ptr + heads, mask=counts, other=float("-inf"))
        best = sinks.to(tl.float32) * 1.4426950408889634
        total = tl.where(counts, 1.0, 0.0)
    return best, total


@triton.jit
def load_decode_query(
    q_ptr, q_stride, sequence, kv_head, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Load the query heads of a key-value head, ``[BLOCK_M, HEAD_PAD]``; also return their numbers, and which exist."""
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_PAD)
    heads = kv_head * GROUP + rows
    heads_ok = rows < GROUP
    ok = heads_ok[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + sequence * q_stride + heads[:, None] * HEAD_DIM + dims[None, :], mask=ok, other=0.0)
    return q, heads, dims, heads_ok, ok


@triton.jit
def attend_split(
    q, best, total, start, stop, visible, positions, window, scale_log2e, pool_ptr, block_table_ptr, head_offset,
    PAGE_TOKENS: tl.constexpr, KV_DIM: tl.constexpr, HEAD_DIM: tl.constexpr, HEAD_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Return the online softmax of a decoding sequence's query over keys ``start`` to ``stop``, not normalised.

    ``best`` and ``total`` are those of ``begin_softmax``.
    """
    acc = tl.zeros((BLOCK_M, HEAD_PAD), dtype=tl.float32)
    for key_start in range(start, stop, BLOCK_N):
        acc, best, total = attend_block(
            q, acc, best, total, key_start, visible, stop, positions, window, scale_log2e, pool_ptr, block_table_ptr,
            head_offset, PAGE_TOKENS, KV_DIM, HEAD_DIM, HEAD_PAD, BLOCK_N, False, SOFTCAP,
        )  # fmt: skip
    return acc, best, total


@triton.jit
def store_split(partial_ptr, stats_ptr, place, dims, acc, best, total, ok, heads_ok, HEAD_DIM: tl.constexpr):
    """Store a split's result for the kernel that combines the splits."""
    tl.store(partial_ptr + place[:, None] * HEAD_DIM + dims[None, :], acc, mask=ok)
    tl.store(stats_ptr + place * 2, best, mask=heads_ok)
    tl.store(stats_ptr + place * 2 + 1, total, mask=heads_ok)


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
    SPLITS: tl.constexpr,
    SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    KV_DIM: tl.constexpr = KV_HEADS * HEAD_DIM
    length = tl.load(seq_lens_ptr + sequence)
    grid_dependency_wait(PDL)
    sequence = sequence.to(tl.int64)
    q, heads, dims, heads_ok, ok = load_decode_query(
        q_ptr, q_stride, sequence, kv_head, GROUP, HEAD_DIM, HEAD_PAD, BLOCK_M
    )
    positions = tl.zeros((BLOCK_M,), dtype=tl.int32) + length - 1
    visible = 0
    if window > 0:
        visible = tl.maximum(length - window, 0)
    first = visible // BLOCK_N * BLOCK_N
    split_tokens = tl.cdiv(tl.cdiv(length - first, SPLITS), BLOCK_N) * BLOCK_N
    start = first + split * split_tokens
    stop = tl.minimum(start + split_tokens, length)
    best, total = begin_softmax(sinks_ptr, heads, heads_ok, split == 0, BLOCK_M, HAS_SINKS)
    acc, best, total = attend_split(
        q, best, total, start, stop, visible, positions, window, scale_log2e, pool_ptr,
        block_table_ptr + sequence * block_table_stride, kv_head * HEAD_DIM, PAGE_TOKENS, KV_DIM, HEAD_DIM, HEAD_PAD,
        BLOCK_M, BLOCK_N, SOFTCAP,
    )  # fmt: skip
    if SPLITS == 1:
        out = acc / tl.where(total == 0.0, 1.0, total)[:, None]
        place = out_ptr + sequence * out_stride + heads[:, None] * HEAD_DIM + dims[None, :]
        tl.store(place, out.to(out_ptr.dtype.element_ty), mask=ok)
    else:
        place = (sequence * HEADS + heads) * SPLITS + split
        store_split(partial_ptr, stats_ptr, place, dims, acc, best, total, ok, heads_ok, HEAD_DIM)


@triton.jit
def _merge_kernel(
    partial_ptr,
    stats_ptr,
    out_ptr,
    out_stride,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Combine the splits of one head: a mean weighted by the softmax's weights."""
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    sequence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    splits = tl.arange(0, SPLITS)
    dims = tl.arange(0, HEAD_PAD)
    place = (sequence * HEADS + head) * SPLITS + splits
    best = tl.load(stats_ptr + place * 2)
    total = tl.load(stats_ptr + place * 2 + 1)
    weight = tl.exp2(best - tl.max(best, axis=0))
    ok = (splits < SPLITS)[:, None] & (dims < HEAD_DIM)[None, :]
    partial = tl.load(partial_ptr + place[:, None] * HEAD_DIM + dims[None, :], mask=ok, other=0.0)
    out = tl.sum(partial * weight[:, None], axis=0) / tl.sum(total * weight, axis=0)
    tl.store(
        out_ptr + sequence * out_stride + head * HEAD_DIM + dims, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM
    )


@triton.jit(do_not_specialize=["block_table_stride"])
def _prefill_kernel(
    q_ptr,
    pool_ptr,
    block_table_ptr,
    tiles_ptr,
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
    SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    INVARIANT: tl.constexpr,
    FIELDS: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
):
    tile = tiles_ptr + tl.program_id(0) * FIELDS
    length = tl.load(tile + 2)
    if length == 0:
        return
    kv_head = tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    KV_DIM: tl.constexpr = KV_HEADS * HEAD_DIM
    sequence = tl.load(tile)
    first_position = tl.load(tile + 3)
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_PAD)
    token = rows // GROUP
    places = (tl.load(tile + 1) + token).to(tl.int64)
    head = kv_head * GROUP + rows % GROUP
    ok = (token < length)[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(q_ptr + places[:, None] * q_stride + head[:, None] * HEAD_DIM + dims[None, :], mask=ok, other=0.0)
    acc = tl.zeros((BLOCK_M, HEAD_PAD), dtype=tl.float32)
    split = tl.load(tile + 4)
    best, total = begin_softmax(sinks_ptr, head, token < length, split == 0, BLOCK_M, HAS_SINKS)
    positions = first_position + token
    stop = first_position + length
    block_table_ptr += sequence.to(tl.int64) * block_table_stride
    visible = 0
    whole = (first_position + 1) // BLOCK_N * BLOCK_N  # up to here every query sees every key
    if window > 0:
        visible = tl.maximum(first_position - window + 1, 0)
        whole = visible // BLOCK_N * BLOCK_N
    start = visible // BLOCK_N * BLOCK_N
    if INVARIANT:  # whole blocks may be rounded differently from masked ones, and the tile determines which are whole
        whole = start
    end = stop
    if SPLIT_KEYS:
        splits = tl.load(tile + 5)
        split_tokens = tl.cdiv(tl.cdiv(stop - start, splits), BLOCK_N) * BLOCK_N
        start += split * split_tokens
        end = tl.minimum(start + split_tokens, stop)
        whole = tl.minimum(tl.maximum(whole, start), end)
    for key_start in range(start, whole, BLOCK_N):
        acc, best, total = attend_block(
            q, acc, best, total, key_start, visible, stop, positions, window, scale_log2e, pool_ptr, block_table_ptr,
            kv_head * HEAD_DIM, PAGE_TOKENS, KV_DIM, HEAD_DIM, HEAD_PAD, BLOCK_N, True, SOFTCAP,
        )  # fmt: skip
    for key_start in range(whole, end, BLOCK_N):
        acc, best, total = attend_block(
            q, acc, best, total, key_start, visible, stop, positions, window, scale_log2e, pool_ptr, block_table_ptr,
            kv_head * HEAD_DIM, PAGE_TOKENS, KV_DIM, HEAD_DIM, HEAD_PAD, BLOCK_N, False, SOFTCAP,
        )  # fmt: skip
    if SPLIT_KEYS:
        if splits == 1:
            _store_mean(acc, total, out_ptr, out_stride, places, head, dims, ok, HEAD_DIM)
        else:
            place = (tl.program_id(0).to(tl.int64) * KV_HEADS + kv_head) * BLOCK_M + rows
            store_split(partial_ptr, stats_ptr, place, dims, acc, best, total, ok, token < length, HEAD_DIM)
    else:
        _store_mean(acc, total, out_ptr, out_stride, places, head, dims, ok, HEAD_DIM)


@triton.jit
def _store_mean(acc, total, out_ptr, out_stride, places, head, dims, ok, HEAD_DIM: tl.constexpr):
    out = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out_ptr + places[:, None] * out_stride + head[:, None] * HEAD_DIM + dims[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=ok,
    )


@triton.jit
def _merge_splits_kernel(
    partial_ptr,
    stats_ptr,
    tiles_ptr,
    out_ptr,
    out_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    ROWS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    SPLITS_PER_LOAD: tl.constexpr,
    FIELDS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Combine the splits of ``ROWS`` rows of a tile; the tile's splits follow its first in ``tiles``.

    Each thread sums over the splits and issues the loads of ``SPLITS_PER_LOAD`` splits together.
    """
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    tile = tiles_ptr + tl.program_id(0) * FIELDS
    length, split, splits = tl.load(tile + 2), tl.load(tile + 4), tl.load(tile + 5)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    first_row = tl.program_id(2) * ROWS
    if splits < 2 or split > 0 or first_row >= length * GROUP:
        return
    kv_head = tl.program_id(1)
    rows = first_row + tl.arange(0, ROWS)
    rows_ok = rows < length * GROUP
    dims = tl.arange(0, HEAD_PAD)
    dims_ok = dims < HEAD_DIM
    first_place = (tl.program_id(0) * KV_HEADS + kv_head) * TILE_ROWS + rows
    SPLIT_STRIDE: tl.constexpr = KV_HEADS * TILE_ROWS
    every_split = tl.arange(0, MAX_SPLITS)
    stats = stats_ptr + (first_place[:, None] + every_split[None, :] * SPLIT_STRIDE) * 2
    ok = rows_ok[:, None] & (every_split < splits)[None, :]
    split_best = tl.load(stats, mask=ok, other=float("-inf"))
    best = tl.max(split_best, axis=1)
    best = tl.where(best == float("-inf"), 0.0, best)  # padding rows
    total = tl.sum(tl.load(stats + 1, mask=ok, other=0.0) * tl.exp2(split_best - best[:, None]), axis=1)
    acc = tl.zeros((ROWS, HEAD_PAD), dtype=tl.float32)
    for first_split in range(0, splits, SPLITS_PER_LOAD):
        for offset in tl.static_range(SPLITS_PER_LOAD):
            there = rows_ok & (first_split + offset < splits)
            place = first_place + (first_split + offset) * SPLIT_STRIDE
            weight = tl.exp2(tl.load(stats_ptr + place * 2, mask=there, other=float("-inf")) - best)
            partial = tl.load(
                partial_ptr + place[:, None] * HEAD_DIM + dims[None, :],
                mask=there[:, None] & dims_ok[None, :],
                other=0.0,
            )
            acc += partial * weight[:, None]
    places = (tl.load(tile + 1) + rows // GROUP).to(tl.int64)
    head = kv_head * GROUP + rows % GROUP
    out = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(
        out_ptr + places[:, None] * out_stride + head[:, None] * HEAD_DIM + dims[None, :],
        out.to(out_ptr.dtype.element_ty),
        mask=rows_ok[:, None] & dims_ok[None, :],
    )


class DecodeWorkspace:
    """The scratch buffers of split-KV decode; their size is fixed, so that a captured graph can keep using them."""

    def __init__(
        self, max_sequences: int, heads: int, head_dim: int, max_splits: int, device: torch.device | str
    ) -> None:
        self.partial = torch.empty(max_sequences, heads, max_splits, head_dim, dtype=torch.float32, device=device)
        self.stats = torch.empty(max_sequences, heads, max_splits, 2, dtype=torch.float32, device=device)


def decode_splits(sequences: int, kv_heads: int) -> int:
    """Return the number of splits of the keys, a power of two that keeps all multiprocessors reading.

    It depends on the batch's size alone, so that batches of about the same size use the same kernel.
    """
    splits = 1
    while splits < 32 and sequences * kv_heads * splits * 2 <= FEW:
        splits *= 2
    return splits


def paged_decode(
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
    splits: int,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> None:
    """Compute decode attention, one query per sequence: ``q``, ``out`` ``[sequences, heads * head_dim]``.

    Rows of ``q`` and ``out`` may be strided. ``pool [num_pages, page_elems]`` of this layer has ``q``'s dtype (float32,
    bfloat16 or float16) or E4M3. ``block_table [sequences, max pages]`` int32; ``seq_lens [sequences]`` int32 include
    the new token, whose key and value are in the pool already. A length of 0 writes zeros with one split, and must not
    have more. ``splits`` comes from ``decode_splits``, at most ``workspace``'s. ``window``: number of tokens that a
    query sees, 0 for all. ``scale`` of the scores is ``head_dim ** -0.5`` by default; a ``softcap`` above 0 bounds
    them. ``sinks [heads]``: a score of each head that every query has beside those of its keys, without a value. Raises
    ``ValueError`` for shapes that do not fit.
    """
    head_dim = q.shape[1] // heads
    check_decode(q, pool, block_table, seq_lens, page_tokens, kv_heads, head_dim)
    check_sinks(sinks, heads)
    if splits > workspace.partial.shape[2]:
        raise ValueError(f"{splits} splits, but the workspace was made for {workspace.partial.shape[2]}")
    head_pad = triton.next_power_of_2(head_dim)
    if head_pad > 128:
        keys, warps, stages = WIDE_HEAD_DECODES
    else:
        keys, warps, stages = FEW_DECODES if q.shape[0] * kv_heads * splits <= FEW else MANY_DECODES
    _decode_kernel[(q.shape[0], kv_heads, splits)](
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
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        HEAD_PAD=head_pad,
        PAGE_TOKENS=page_tokens,
        BLOCK_M=max(16, triton.next_power_of_2(heads // kv_heads)),
        BLOCK_N=keys,
        SPLITS=splits,
        SOFTCAP=softcap,
        HAS_SINKS=sinks is not None,
        num_warps=warps,
        num_stages=stages,
        **pdl_options(q),
    )
    if splits > 1:
        _merge_kernel[(q.shape[0], heads)](
            workspace.partial,
            workspace.stats,
            out,
            out.stride(0),
            HEADS=heads,
            HEAD_DIM=head_dim,
            HEAD_PAD=head_pad,
            SPLITS=splits,
            num_warps=2,
            **pdl_options(q),
        )


class PrefillWorkspace:
    """The partial results of programs that each read one split of a prefill tile's keys; their size is fixed."""

    def __init__(self, kv_heads: int, head_dim: int, device: torch.device | str, block_m: int = BLOCK_M) -> None:
        splits = most_key_splits(kv_heads, block_m)
        self.partial = torch.empty(splits, kv_heads, block_m, head_dim, dtype=torch.float32, device=device)
        self.stats = torch.empty(splits, kv_heads, block_m, 2, dtype=torch.float32, device=device)


def most_key_splits(kv_heads: int, block_m: int = BLOCK_M) -> int:
    """Return the maximum number of splits of all tiles whose keys are split, together."""
    return (HOPPER_PREFILL_PROGRAMS if block_m == TILE_ROWS else PREFILL_PROGRAMS) // kv_heads


def key_splits(keys: Sequence[int], kv_heads: int, block_m: int = BLOCK_M) -> list[int]:
    """Return the number of splits of each tile's keys.

    It is above one where too few tiles would leave multiprocessors idle, or where a tile has far more keys than others.
    """
    most = most_key_splits(kv_heads, block_m)
    each = max(LEAST_SPLIT, -(-sum(keys) // most)) if most else sum(keys)
    return [max(1, count // each) if count >= LEAST_SPLIT_KEYS else 1 for count in keys]


def prefill_tiles(
    spans: Sequence[tuple[int, int, int, int]],
    heads: int,
    kv_heads: int,
    block_m: int = BLOCK_M,
    split_keys: bool = False,
) -> torch.Tensor:
    """Cut spans ``(sequence, first row, tokens, first position)`` into query tiles for ``paged_prefill``, on the host.

    The tiles are ``[tiles, 6]`` int32 ``(sequence, first row, tokens, first position, split, splits)``. ``sequence`` is
    a row of the block table, ``first row`` a row of ``q``. A tile has at most ``block_m`` rows of the matrix product,
    one for each token and query head of a key-value head. ``split_keys``: a tile may occur several times, each for one
    split of its keys (``key_splits``); such tiles come first. The others are in order of their keys, most first, so
    that the last programs to start are short.
    """
    step = tokens_a_tile(heads, kv_heads, block_m)
    tiles = [
        (sequence, row + offset, min(step, tokens - offset), position + offset)
        for sequence, row, tokens, position in spans
        for offset in range(0, tokens, step)
    ]
    keys = [tile[2] + tile[3] for tile in tiles]
    splits = key_splits(keys, kv_heads, block_m) if split_keys else [1] * len(tiles)
    in_order = sorted(zip(tiles, splits, keys, strict=True), key=lambda tile: (tile[1] == 1, -tile[2]))
    items = [(*tile, split, count) for tile, count, _ in in_order for split in range(count)]
    return torch.tensor(items, dtype=torch.int32).view(-1, PREFILL_TILE_FIELDS)


def tokens_a_tile(heads: int, kv_heads: int, block_m: int = BLOCK_M) -> int:
    """Return the maximum number of tokens in a tile of ``prefill_tiles``."""
    return max(1, block_m // (heads // kv_heads))


def paged_prefill(
    q: torch.Tensor,
    pool: torch.Tensor,
    block_table: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    page_tokens: int,
    window: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    block_m: int = BLOCK_M,
    invariant: bool = False,
    workspace: PrefillWorkspace | None = None,
    split_keys: bool = False,
    hopper: bool = False,
) -> None:
    """Compute causal attention of prefill chunks: ``q``, ``out`` ``[tokens, heads * head_dim]``.

    Keys and values of the chunks are already in the pool. ``tiles`` come from ``prefill_tiles`` with the same
    ``block_m``; only their rows are written. ``block_table [sequences, max pages]`` int32; the other arguments are
    those of ``paged_decode``. ``invariant``: a row is bitwise the same however its prompt is cut into chunks, in any
    batch. ``split_keys``: the tiles were made with it; it needs a ``workspace`` of the same sizes. ``hopper``: use the
    kernel of `hopper_prefill`, if its ``can_attend`` allows; ``block_m`` is then its ``TILE_ROWS``. Raises
    ``ValueError`` for shapes that do not fit.
    """
    head_dim = q.shape[1] // heads
    _check_pool(pool, page_tokens, kv_heads, head_dim)
    check_sinks(sinks, heads)
    group = heads // kv_heads
    if hopper and (block_m != TILE_ROWS or invariant):
        raise ValueError(f"hopper needs tiles of {TILE_ROWS} rows, not of {block_m}, and excludes invariant")
    if block_m < max(16, group):
        raise ValueError(
            f"block_m is {block_m}, but must be at least 16 and hold the {group} query heads of a key-value head"
        )
    if split_keys and (invariant or not workspace):
        raise ValueError(
            "split_keys needs a workspace and excludes invariant: a tile's splits depend on the batch's other tiles"
        )
    if workspace and workspace.partial.shape[1:] != (kv_heads, block_m, head_dim):
        raise ValueError(
            f"the workspace was made for {tuple(workspace.partial.shape[1:])}, not for {(kv_heads, block_m, head_dim)}"
        )
    if hopper:
        launch_prefill(
            q, pool, block_table, tiles, out, sinks, workspace.partial if workspace else None,
            workspace.stats if workspace else None, heads=heads, kv_heads=kv_heads, page_tokens=page_tokens,
            window=window, scale_log2e=scale_log2e(scale, head_dim, softcap), softcap=softcap, split_keys=split_keys,
        )  # fmt: skip
    else:
        long = invariant or block_table.shape[1] * page_tokens >= LONG
        keys, warps, stages = LONG_CONTEXT if long else SHORT_CONTEXT
        _prefill_kernel[(tiles.shape[0], kv_heads)](
            q,
            pool,
            block_table,
            tiles,
            out,
            q if sinks is None else sinks,
            workspace.partial if workspace else q,
            workspace.stats if workspace else q,
            q.stride(0),
            block_table.stride(0),
            out.stride(0),
            window,
            scale_log2e(scale, head_dim, softcap),
            HEADS=heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=head_dim,
            HEAD_PAD=triton.next_power_of_2(head_dim),
            PAGE_TOKENS=page_tokens,
            BLOCK_M=block_m,
            BLOCK_N=keys,
            SOFTCAP=softcap,
            HAS_SINKS=sinks is not None,
            INVARIANT=invariant,
            FIELDS=PREFILL_TILE_FIELDS,
            SPLIT_KEYS=split_keys,
            num_warps=warps,
            num_stages=stages,
        )
    if split_keys and workspace:
        rows = min(_MERGED_ROWS, block_m)
        most = len(workspace.partial)
        _merge_splits_kernel[(min(len(tiles), most), kv_heads, block_m // rows)](
            workspace.partial,
            workspace.stats,
            tiles,
            out,
            out.stride(0),
            HEADS=heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=head_dim,
            HEAD_PAD=triton.next_power_of_2(head_dim),
            TILE_ROWS=block_m,
            ROWS=rows,
            MAX_SPLITS=triton.next_power_of_2(most),
            SPLITS_PER_LOAD=_SPLITS_PER_LOAD,
            FIELDS=PREFILL_TILE_FIELDS,
            num_warps=4,
            **pdl_options(q),
        )


def scale_log2e(scale: float | None, head_dim: int, softcap: float) -> float:
    """Return the factor of scores before an exponential to the base 2; see ``SOFTCAP`` in the kernel."""
    scale = head_dim**-0.5 if scale is None else scale
    return 1.4426950408889634 * (2 * scale / softcap if softcap else scale)


def check_decode(
    q: torch.Tensor,
    pool: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    page_tokens: int,
    kv_heads: int,
    head_dim: int,
) -> None:
    """Raise ``ValueError`` for shapes that do not fit."""
    _check_pool(pool, page_tokens, kv_heads, head_dim)
    if block_table.shape[0] < q.shape[0] or seq_lens.shape[0] < q.shape[0]:
        raise ValueError(
            f"{q.shape[0]} queries, but {block_table.shape[0]} rows of block_table and {seq_lens.shape[0]} seq_lens"
        )


def check_sinks(sinks: torch.Tensor | None, heads: int) -> None:
    """Raise ``ValueError`` unless there is a contiguous sink of each head, or none."""
    if sinks is not None and (sinks.shape != (heads,) or not sinks.is_contiguous()):
        raise ValueError(f"sinks are {tuple(sinks.shape)}, but there are {heads} heads")


def _check_pool(pool: torch.Tensor, page_tokens: int, kv_heads: int, head_dim: int) -> None:
    if pool.shape[1] != 2 * page_tokens * kv_heads * head_dim or not pool.is_contiguous():
        raise ValueError(
            f"pages of {pool.shape[1]} elements are not 2 x {page_tokens} tokens x {kv_heads} heads x {head_dim}"
        )
