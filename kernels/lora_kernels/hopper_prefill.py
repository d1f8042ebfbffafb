"""Chunked causal prefill over the paged pool on Hopper GPUs: the fast form of `attention.paged_prefill`, in Gluon.

A warp copies pages of keys and values into shared memory with the copy engine (TMA). Warpgroups multiply, each 64 rows
of a tile. They do not wait for each other, so that one's softmax runs while another multiplies, as in FlashAttention-3
(arXiv 2407.08608). Triton's interpreter cannot run Gluon.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .pdl import is_hopper

# Rows of a tile, each a token and a query head of its key-value head: as many as registers allow, since each tile reads
# all keys again. A warpgroup has 64 of them.
TILE_ROWS = 3 * 64
# Keys in a block, and blocks of keys and values in shared memory: the fastest configuration measured on an H200.
_BLOCK_N, _STAGES = 128, 2
# Registers of a thread that multiplies, and of one that copies.
_REGISTERS, _COPY_REGISTERS = 160, 24
# Elements of 128 bytes, the width of the swizzle of shared memory that products read without bank conflicts.
_PANEL = 64
_HEAD_DIMS = (64, 128)
_PAGE_TOKENS = (8, 16, 32, 64, 128)


@gluon.constexpr_function
def _load_layout(head_dim):
    return gl.BlockedLayout([1, 8], [256 // head_dim, head_dim // 8], [4, 1], [1, 0])


@gluon.constexpr_function
def _product_layout(columns):
    return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, columns, 16])


@gluon.jit
def _blocks_of(length, first_position, split, splits, window, BLOCK_N: gl.constexpr, SPLIT_KEYS: gl.constexpr):
    """Return a tile's first key, its number of blocks, how many every row sees whole, and its first visible key."""
    stop = first_position + length
    visible = 0
    if window > 0:
        visible = gl.maximum(first_position - window + 1, 0)
    start = visible // BLOCK_N * BLOCK_N
    end = gl.where(length > 0, stop, 0)
    if SPLIT_KEYS:
        split_tokens = gl.cdiv(gl.cdiv(stop - start, gl.maximum(splits, 1)), BLOCK_N) * BLOCK_N
        start += split * split_tokens
        end = gl.minimum(start + split_tokens, end)
    blocks = gl.maximum(gl.cdiv(end - start, BLOCK_N), 0)
    whole = gl.minimum(gl.maximum((first_position + 1 - start) // BLOCK_N, 0), blocks)
    if window > 0:
        whole = 0
    return start, blocks, whole, visible


@gluon.jit
def _copy_pages(
    kv_descriptor, page_rows, shifts, column, chunks, first_chunk, full, empty, phase,
    PAGES: gl.constexpr, PANELS: gl.constexpr, BYTES: gl.constexpr,
):  # fmt: skip
    """Copy a block of keys or of values into its stage of shared memory, once that is ``empty``."""
    mbarrier.wait(empty, phase ^ 1)
    mbarrier.expect(full, BYTES)
    for page in gl.static_range(PAGES):
        for panel in gl.static_range(PANELS):
            tma.async_copy_global_to_shared(
                kv_descriptor,
                [page_rows[page], -shifts[page], column + panel * kv_descriptor.block_shape[2]],
                full,
                chunks.index(first_chunk + panel * PAGES + page),
            )


@gluon.jit
def _copy(
    kv_descriptor, pages_ptr, k_chunks, v_chunks, k_full, k_empty, v_full, v_empty, kv_head, start, blocks, visible,
    stop,
    HEAD_DIM: gl.constexpr, PAGE_TOKENS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Copy a tile's keys and values, a page at a time.

    What is no key of the sequence must not be read: it may hold another sequence's NaN, which a weight of zero would
    not remove. The copy engine writes zeros for rows outside of a page, so the last page is copied as if it began
    before its first token: its keys are the last rows of its place in the block. Pages that no row sees become zeros.
    """
    PAGES: gl.constexpr = BLOCK_N // PAGE_TOKENS
    PANELS: gl.constexpr = HEAD_DIM // kv_descriptor.block_shape[2]
    BYTES: gl.constexpr = BLOCK_N * HEAD_DIM * 2
    last_page = (stop - 1) // PAGE_TOKENS
    for block in range(blocks):
        stage = block % STAGES
        phase = block // STAGES & 1
        first_chunk = stage * (PAGES * PANELS)
        key_rows, value_rows, shifts = (), (), ()
        for offset in gl.static_range(PAGES):
            page = (start + block * BLOCK_N) // PAGE_TOKENS + offset
            rows = gl.load(pages_ptr + gl.minimum(page, last_page)) * 2
            shift = gl.minimum(gl.maximum((page + 1) * PAGE_TOKENS - stop, 0), PAGE_TOKENS)
            key_rows = key_rows + (rows,)  # type: ignore[assignment]  # noqa: RUF005
            value_rows = value_rows + (rows + 1,)  # type: ignore[assignment]  # noqa: RUF005
            shift = gl.where((page + 1) * PAGE_TOKENS <= visible, PAGE_TOKENS, shift)
            shifts = shifts + (shift,)  # type: ignore[assignment]  # noqa: RUF005
        _copy_pages(
            kv_descriptor, key_rows, shifts, kv_head * HEAD_DIM, k_chunks, first_chunk, k_full.index(stage),
            k_empty.index(stage), phase, PAGES, PANELS, BYTES,
        )  # fmt: skip
        _copy_pages(
            kv_descriptor, value_rows, shifts, kv_head * HEAD_DIM, v_chunks, first_chunk, v_full.index(stage),
            v_empty.index(stage), phase, PAGES, PANELS, BYTES,
        )  # fmt: skip


@gluon.jit
def _attend_block(
    q, acc, best, total, block, key_start, stop, positions, window, scale_log2e, k_tiles, v_tiles, k_full, k_empty,
    v_full, v_empty,
    BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, PAGE_TOKENS: gl.constexpr, STAGES: gl.constexpr,
    SOFTCAP: gl.constexpr, HAS_WINDOW: gl.constexpr, WHOLE: gl.constexpr,
):  # fmt: skip
    """Add one block of keys to the online softmax of 64 rows. ``WHOLE``: every row sees every key of the block."""
    SCORES: gl.constexpr = _product_layout(BLOCK_N)
    OUTPUT: gl.constexpr = _product_layout(HEAD_DIM)
    stage = block % STAGES
    phase = block // STAGES & 1
    mbarrier.wait(k_full.index(stage), phase)
    scores = gl.zeros([64, BLOCK_N], gl.float32, SCORES)
    scores = warpgroup_mma(q, k_tiles.index(stage).permute((1, 0)), scores, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(k_empty.index(stage), count=1)
    scale = scale_log2e
    if SOFTCAP > 0:  # as in `attention.attend_block`
        scores = (SOFTCAP - 2 * SOFTCAP / (1.0 + gl.exp2(scores * scale_log2e))) * 1.4426950408889634
        scale = 1.0
    if not WHOLE:  # positions of keys; those of the last page are shifted: see `_copy`
        keys = key_start + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, SCORES))
        last_page = stop // PAGE_TOKENS * PAGE_TOKENS
        shift = (PAGE_TOKENS - stop % PAGE_TOKENS) % PAGE_TOKENS
        exist = (keys < last_page) | (keys >= last_page + shift)
        last = positions + gl.where(positions >= last_page, shift, 0)
        visible = (keys[None, :] <= last[:, None]) & exist[None, :]
        if HAS_WINDOW:
            first = positions + 1 - window
            first += gl.where(first >= last_page, shift, 0)
            visible = visible & (keys[None, :] >= first[:, None])
        scores = gl.where(visible, scores, float("-inf"))
    new_best = gl.maximum(best, gl.max(scores, axis=1) * scale)
    # The best score of a row without a visible key so far is -inf: subtracting it would give NaN.
    anchor = new_best if WHOLE else gl.where(new_best == float("-inf"), 0.0, new_best)
    weights = gl.exp2(scores * scale - anchor[:, None])
    shrink = gl.exp2(best - anchor)
    total = total * shrink + gl.sum(weights, axis=1)
    weights = gl.convert_layout(weights.to(q.dtype), gl.DotOperandLayout(0, OUTPUT, 2))
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, OUTPUT))[:, None]
    mbarrier.wait(v_full.index(stage), phase)
    acc = warpgroup_mma(weights, v_tiles.index(stage), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(v_empty.index(stage), count=1)
    return acc, new_best, total


@gluon.jit
def _attend(
    WARPGROUP: gl.constexpr,
    q_ptr, out_ptr, sinks_ptr, partial_ptr, stats_ptr, q_tiles, k_tiles, v_tiles, k_full, k_empty, v_full, v_empty,
    q_stride, out_stride, window, scale_log2e, index, kv_head, first_row, length, first_position, split, splits, start,
    blocks, whole,
    HEADS: gl.constexpr, KV_HEADS: gl.constexpr, HEAD_DIM: gl.constexpr, PAGE_TOKENS: gl.constexpr,
    TILE_ROWS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, SOFTCAP: gl.constexpr,
    HAS_SINKS: gl.constexpr, HAS_WINDOW: gl.constexpr, SPLIT_KEYS: gl.constexpr,
):  # fmt: skip
    """Compute 64 rows of a tile."""
    GROUP: gl.constexpr = HEADS // KV_HEADS
    LOAD: gl.constexpr = _load_layout(HEAD_DIM)
    OUTPUT: gl.constexpr = _product_layout(HEAD_DIM)
    ROWS: gl.constexpr = gl.SliceLayout(1, _product_layout(BLOCK_N))
    q = q_tiles.index(WARPGROUP)
    rows = WARPGROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, LOAD))[:, None]
    dims = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, LOAD))[None, :]
    place = (first_row + rows // GROUP).to(gl.int64) * q_stride + (kv_head * GROUP + rows % GROUP) * HEAD_DIM
    q.store(gl.load(q_ptr + place + dims, mask=rows // GROUP < length, other=0.0))
    fence_async_shared()
    rows = WARPGROUP * 64 + gl.arange(0, 64, layout=ROWS)
    ok = rows // GROUP < length
    best = gl.full([64], float("-inf"), gl.float32, ROWS)
    total = gl.zeros([64], gl.float32, ROWS)
    if HAS_SINKS:  # as in `attention.begin_softmax`
        counts = ok & (split == 0)
        sinks = gl.load(sinks_ptr + kv_head * GROUP + rows % GROUP, mask=counts, other=float("-inf"))
        best = sinks.to(gl.float32) * 1.4426950408889634
        total = gl.where(counts, 1.0, 0.0)
    acc = gl.zeros([64, HEAD_DIM], gl.float32, OUTPUT)
    stop, positions = first_position + length, first_position + rows // GROUP
    for block in range(whole):
        acc, best, total = _attend_block(
            q, acc, best, total, block, start + block * BLOCK_N, stop, positions, window, scale_log2e, k_tiles, v_tiles,
            k_full, k_empty, v_full, v_empty, BLOCK_N, HEAD_DIM, PAGE_TOKENS, STAGES, SOFTCAP, HAS_WINDOW, True,
        )  # fmt: skip
    for block in range(whole, blocks):
        acc, best, total = _attend_block(
            q, acc, best, total, block, start + block * BLOCK_N, stop, positions, window, scale_log2e, k_tiles, v_tiles,
            k_full, k_empty, v_full, v_empty, BLOCK_N, HEAD_DIM, PAGE_TOKENS, STAGES, SOFTCAP, HAS_WINDOW, False,
        )  # fmt: skip
    out_rows = WARPGROUP * 64 + gl.arange(0, 64, layout=gl.SliceLayout(1, OUTPUT))[:, None]
    out_dims = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, OUTPUT))[None, :]
    out_ok = out_rows // GROUP < length
    if SPLIT_KEYS:
        if splits > 1:  # as in `attention.store_split`
            first_place = (index.to(gl.int64) * KV_HEADS + kv_head) * TILE_ROWS
            gl.store(partial_ptr + (first_place + out_rows) * HEAD_DIM + out_dims, acc, mask=out_ok)
            gl.store(stats_ptr + (first_place + rows) * 2, best, mask=ok)
            gl.store(stats_ptr + (first_place + rows) * 2 + 1, total, mask=ok)
        out_ok = out_ok & (splits <= 1)
    out = acc * gl.convert_layout(1.0 / gl.where(total == 0.0, 1.0, total), gl.SliceLayout(1, OUTPUT))[:, None]
    place = (first_row + out_rows // GROUP).to(gl.int64) * out_stride + (kv_head * GROUP + out_rows % GROUP) * HEAD_DIM
    gl.store(out_ptr + place + out_dims, out.to(out_ptr.dtype.element_ty), mask=out_ok)


@gluon.jit(do_not_specialize=["block_table_stride"])
def _hopper_prefill_kernel(
    q_ptr,
    kv_descriptor,
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
    HEADS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    PAGE_TOKENS: gl.constexpr,
    TILE_ROWS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    SOFTCAP: gl.constexpr,
    HAS_SINKS: gl.constexpr,
    HAS_WINDOW: gl.constexpr,
    FIELDS: gl.constexpr,
    SPLIT_KEYS: gl.constexpr,
    REGISTERS: gl.constexpr,
    COPY_REGISTERS: gl.constexpr,
):
    kv_head, index = gl.program_id(0), gl.program_id(1)
    tile = tiles_ptr + index * FIELDS
    first_row, length, first_position = gl.load(tile + 1), gl.load(tile + 2), gl.load(tile + 3)
    split, splits = gl.load(tile + 4), gl.load(tile + 5)
    start, blocks, whole, visible = _blocks_of(length, first_position, split, splits, window, BLOCK_N, SPLIT_KEYS)
    pages_ptr = block_table_ptr + gl.load(tile).to(gl.int64) * block_table_stride
    WARPGROUPS: gl.constexpr = TILE_ROWS // 64
    CHUNK: gl.constexpr = kv_descriptor.block_shape
    CHUNKS: gl.constexpr = STAGES * (BLOCK_N // PAGE_TOKENS) * (HEAD_DIM // CHUNK[2])
    DTYPE: gl.constexpr = q_ptr.dtype.element_ty
    TILE: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    q_tiles = gl.allocate_shared_memory(DTYPE, [WARPGROUPS, 64, HEAD_DIM], TILE)
    k_chunks = gl.allocate_shared_memory(DTYPE, [CHUNKS, 1, PAGE_TOKENS, CHUNK[2]], kv_descriptor.layout)
    v_chunks = gl.allocate_shared_memory(DTYPE, [CHUNKS, 1, PAGE_TOKENS, CHUNK[2]], kv_descriptor.layout)
    # Chunks of a block follow each other as its rows do: first the left panels of all its pages, then the right ones.
    k_tiles = k_chunks._reinterpret(DTYPE, [STAGES, BLOCK_N, HEAD_DIM], TILE)
    v_tiles = v_chunks._reinterpret(DTYPE, [STAGES, BLOCK_N, HEAD_DIM], TILE)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_full.index(stage), count=1)
        mbarrier.init(k_empty.index(stage), count=WARPGROUPS)
        mbarrier.init(v_full.index(stage), count=1)
        mbarrier.init(v_empty.index(stage), count=WARPGROUPS)
    fence_async_shared()
    gl.static_assert(WARPGROUPS == 3)  # a partition for each
    gl.warp_specialize(
        [
            (
                _attend,
                (
                    0, q_ptr, out_ptr, sinks_ptr, partial_ptr, stats_ptr, q_tiles, k_tiles, v_tiles, k_full, k_empty,
                    v_full, v_empty, q_stride, out_stride, window, scale_log2e, index, kv_head, first_row, length,
                    first_position, split, splits, start, blocks, whole, HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS,
                    TILE_ROWS, BLOCK_N, STAGES, SOFTCAP, HAS_SINKS, HAS_WINDOW, SPLIT_KEYS,
                ),
            ),
            (
                _attend,
                (
                    1, q_ptr, out_ptr, sinks_ptr, partial_ptr, stats_ptr, q_tiles, k_tiles, v_tiles, k_full, k_empty,
                    v_full, v_empty, q_stride, out_stride, window, scale_log2e, index, kv_head, first_row, length,
                    first_position, split, splits, start, blocks, whole, HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS,
                    TILE_ROWS, BLOCK_N, STAGES, SOFTCAP, HAS_SINKS, HAS_WINDOW, SPLIT_KEYS,
                ),
            ),
            (
                _attend,
                (
                    2, q_ptr, out_ptr, sinks_ptr, partial_ptr, stats_ptr, q_tiles, k_tiles, v_tiles, k_full, k_empty,
                    v_full, v_empty, q_stride, out_stride, window, scale_log2e, index, kv_head, first_row, length,
                    first_position, split, splits, start, blocks, whole, HEADS, KV_HEADS, HEAD_DIM, PAGE_TOKENS,
                    TILE_ROWS, BLOCK_N, STAGES, SOFTCAP, HAS_SINKS, HAS_WINDOW, SPLIT_KEYS,
                ),
            ),
            (
                _copy,
                (
                    kv_descriptor, pages_ptr, k_chunks, v_chunks, k_full, k_empty, v_full, v_empty, kv_head, start,
                    blocks, visible, first_position + length, HEAD_DIM, PAGE_TOKENS, BLOCK_N, STAGES,
                ),
            ),
        ],
        [4, 4, 1],
        [REGISTERS, REGISTERS, COPY_REGISTERS],
    )  # fmt: skip


def can_attend(
    heads: int, kv_heads: int, head_dim: int, page_tokens: int, dtype: torch.dtype, kv_dtype: torch.dtype,
    device: torch.device,
) -> bool:  # fmt: skip
    """Return whether this module's kernel computes attention of these shapes on a device."""
    return (
        is_hopper(device)
        and head_dim in _HEAD_DIMS
        and page_tokens in _PAGE_TOKENS
        and heads // kv_heads <= TILE_ROWS
        and dtype in (torch.bfloat16, torch.float16)
        and kv_dtype == dtype
    )


def launch_prefill(
    q: torch.Tensor,
    pool: torch.Tensor,
    block_table: torch.Tensor,
    tiles: torch.Tensor,
    out: torch.Tensor,
    sinks: torch.Tensor | None,
    partial: torch.Tensor | None,
    stats: torch.Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    page_tokens: int,
    window: int,
    scale_log2e: float,
    softcap: float,
    split_keys: bool,
) -> None:
    """Launch the kernel over checked arguments of ``attention.paged_prefill``, whose tiles have ``TILE_ROWS`` rows."""
    head_dim = q.shape[1] // heads
    kv_dim = kv_heads * head_dim
    descriptor = TensorDescriptor(
        pool,
        [pool.shape[0] * 2, page_tokens, kv_dim],
        [page_tokens * kv_dim, kv_dim, 1],
        [1, page_tokens, _PANEL],
        gl.NVMMASharedLayout(128, 16, rank=3),
    )
    _hopper_prefill_kernel[(kv_heads, tiles.shape[0])](
        q,
        descriptor,
        block_table,
        tiles,
        out,
        q if sinks is None else sinks,
        q if partial is None else partial,
        q if stats is None else stats,
        q.stride(0),
        block_table.stride(0),
        out.stride(0),
        window,
        scale_log2e,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        PAGE_TOKENS=page_tokens,
        TILE_ROWS=TILE_ROWS,
        BLOCK_N=_BLOCK_N,
        STAGES=_STAGES,
        SOFTCAP=softcap,
        HAS_SINKS=sinks is not None,
        HAS_WINDOW=window > 0,
        FIELDS=tiles.shape[1],
        SPLIT_KEYS=split_keys,
        REGISTERS=_REGISTERS,
        COPY_REGISTERS=_COPY_REGISTERS,
        num_warps=4,
    )
