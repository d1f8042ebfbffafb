"""LoRA shrink and expand over pool pages, for any mix of adapters and ranks in one launch.

One launch serves all targets that share an input (q,k,v; gate,up). A launch covers token
tiles x blocks of rank rows (shrink) or of output columns (expand); a block beyond an
adapter's rank ends at once, so a rank-8 adapter beside a rank-64 one reads only its own
rows. There are no atomics and no zero-fill: every output element is written by one program,
in one order. Rows lie in chunks of ``kv_dim`` elements, ``page_elems / kv_dim`` to a page;
a block of columns never crosses a chunk, so one page lookup serves a row of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
import triton
import triton.language as tl

from .early_start import early_start, let_next_start, wait_for_input
from .tables import MODULE_FIELDS, TARGETS, Group, SlotTables

SMALL_TILE = 16  # tokens of the smallest matrix product
LARGE_TILE = 64


class Form(IntEnum):
    """How a launch treats its tiles; the value is the most tokens a tile may have."""

    ONE = 1  # bound by bandwidth: no matrix units, every weight in flight at once
    TWO = 2  # the same for two tokens over one reading of the weights
    SOME = 16  # one small matrix product per tile: several decode tokens share an adapter
    MANY = 64  # prompt chunks; tiles of up to 16 tokens (decode rows beside them) take the small product


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched: a block of ``rows`` (of rank) and ``columns`` of a weight in flight, warps, stages of
    the loop's pipeline."""

    rows: int
    columns: int
    warps: int
    stages: int


# The quickest of those tried on an H200; `benchmarks/kernel_table.py` times them.
SHRINK = {
    Form.ONE: Launch(4, 2048, 2, 1),
    Form.TWO: Launch(4, 2048, 2, 1),
    Form.SOME: Launch(16, 128, 4, 1),  # the columns of one warp
    Form.MANY: Launch(32, 256, 4, 2),
}
EXPAND = {
    Form.ONE: Launch(32, 128, 1, 1),
    Form.TWO: Launch(32, 128, 1, 1),
    Form.SOME: Launch(16, 256, 4, 1),
    Form.MANY: Launch(16, 128, 4, 1),
}
# Input elements that one program of a shrink reads; in the form for several down to ``LEAST_SHARE``, as long as no more
# than ``FULL`` programs result: fewer leave multiprocessors idle, more add sums without reading any faster.
SHARE = {Form.ONE: 2048, Form.TWO: 2048, Form.SOME: 4096, Form.MANY: 2048}
LEAST_SHARE = 1024
FULL = 1700


@triton.jit
def _target_of(
    block,
    BLOCK_N: tl.constexpr,
    OUT_0: tl.constexpr,
    OUT_1: tl.constexpr,
    OUT_2: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
):
    """Which target a block of output columns is in: its index, the block inside it, its width, its first column."""
    BLOCKS_0: tl.constexpr = (OUT_0 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_1: tl.constexpr = (OUT_1 + BLOCK_N - 1) // BLOCK_N
    target = 0
    out_features = OUT_0
    out_start = 0
    if NUM_TARGETS > 1:
        if block >= BLOCKS_0:
            block -= BLOCKS_0
            target = 1
            out_features = OUT_1
            out_start = OUT_0
            if NUM_TARGETS > 2:
                if block >= BLOCKS_1:
                    block -= BLOCKS_1
                    target = 2
                    out_features = OUT_2
                    out_start = OUT_0 + OUT_1
    return target, block, out_features, out_start


@triton.jit(do_not_specialize=["layer"])
def _shrink_one_kernel(
    x_ptr,
    pool_ptr,
    h_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    layer,
    x_stride,
    h_stride,
    split_stride,
    pages_stride,
    slot_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TOKENS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Up to ``TOKENS`` per tile: the rows' whole share of the input is in flight at once, no loop over it."""
    row_block, split = tl.program_id(0), tl.program_id(2)
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    first = tl.load(tile + 1).to(tl.int64)
    length = tl.load(tile + 2)
    if length == 0:
        wait_for_input(PDL)
        return
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    if row_block * BLOCK_R >= num_rows:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    rows = row_block * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    column = (split * BLOCKS + tl.arange(0, BLOCKS)) * BLOCK_K
    chunk = tl.load(meta) + rows[:, None] * ROW_CHUNKS + (column // KV_DIM)[None, :]
    page = tl.load(
        pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=rows_ok[:, None] & (column < IN)[None, :], other=0
    )
    place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + (column % KV_DIM)[None, :]
    inner = tl.arange(0, BLOCK_K)
    columns = column[:, None] + inner[None, :]
    columns_ok = columns < IN
    a = tl.load(
        pool_ptr + place[:, :, None] + inner[None, None, :],
        mask=rows_ok[:, None, None] & columns_ok[None, :, :],
        other=0.0,
    )
    wait_for_input(PDL)
    for offset in tl.static_range(TOKENS):
        token = first + offset
        x = tl.load(x_ptr + token * x_stride + columns, mask=columns_ok & (offset < length), other=0.0)
        products = a.to(tl.float32) * x.to(tl.float32)[None, :, :]
        shrunk = tl.sum(tl.sum(products, axis=2), axis=1)
        tl.store(h_ptr + split * split_stride + token * h_stride + rows, shrunk, mask=rows_ok & (offset < length))


@triton.jit(do_not_specialize=["layer"])
def _expand_one_kernel(
    h_ptr,
    pool_ptr,
    out_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    scales_ptr,
    onto_ptr,
    layer,
    h_stride,
    split_stride,
    out_stride,
    onto_stride,
    pages_stride,
    slot_stride,
    scale_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_ALL_TARGETS: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    OUT_0: tl.constexpr,
    OUT_1: tl.constexpr,
    OUT_2: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TOKENS: tl.constexpr,
    ONTO: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PDL: tl.constexpr,
):
    """One or two tokens per tile; the shrink's partial sums are added up here, in a fixed order."""
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    token = tl.load(tile + 1).to(tl.int64)
    length = tl.load(tile + 2)
    if length == 0:
        wait_for_input(PDL)
        return
    target, block, out_features, out_start = _target_of(tl.program_id(0), BLOCK_N, OUT_0, OUT_1, OUT_2, NUM_TARGETS)
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    rank = tl.load(meta + target * FIELDS + 2)
    if IN_PLACE and rank == 0:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    shrunk_start = 0
    for other in tl.static_range(NUM_TARGETS):
        if other < target:
            shrunk_start += tl.load(meta + other * FIELDS + 2)
    scale = tl.load(scales_ptr + slot * scale_stride + layer * NUM_ALL_TARGETS + FIRST + target)
    column = block * BLOCK_N
    columns = tl.arange(0, BLOCK_N)
    columns_ok = column + columns < out_features
    row_chunks = (out_features + KV_DIM - 1) // KV_DIM
    first_chunk = tl.load(meta + target * FIELDS + 1) + column // KV_DIM
    splits = tl.arange(0, SPLITS)
    h_ptr += token * h_stride + shrunk_start
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    second = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for r in range(0, rank, BLOCK_R):
        rows = r + tl.arange(0, BLOCK_R)
        rows_ok = rows < rank
        chunk = first_chunk + rows * row_chunks
        page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + column % KV_DIM
        b = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_N)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        b = b.to(tl.float32)
        wait_for_input(PDL)
        h_ptrs = h_ptr + splits[:, None] * split_stride + rows[None, :]
        acc += _expanded(b, h_ptrs, rows_ok, pool_ptr)
        if TOKENS == 2:
            second += _expanded(b, h_ptrs + h_stride, rows_ok & (length == 2), pool_ptr)
    wait_for_input(PDL)
    out_ptr += token * out_stride + out_start + column + columns
    onto_ptr += token * onto_stride + out_start + column + columns
    acc *= scale
    if ONTO:
        acc += tl.load(onto_ptr, mask=columns_ok, other=0.0).to(tl.float32)
    tl.store(out_ptr, acc.to(out_ptr.dtype.element_ty), mask=columns_ok)
    if TOKENS == 2:
        columns_ok = columns_ok & (length == 2)
        second *= scale
        if ONTO:
            second += tl.load(onto_ptr + onto_stride, mask=columns_ok, other=0.0).to(tl.float32)
        tl.store(out_ptr + out_stride, second.to(out_ptr.dtype.element_ty), mask=columns_ok)


@triton.jit
def _expanded(b, h_ptrs, rows_ok, pool_ptr):
    """One token's shrunk activations, their partial sums added up, times rows of B: ``b [rows, columns]`` float32."""
    partial = tl.load(h_ptrs, mask=rows_ok[None, :], other=0.0)
    shrunk = tl.sum(partial, axis=0).to(pool_ptr.dtype.element_ty).to(tl.float32)
    return tl.sum(b * shrunk[:, None], axis=0)


@triton.jit
def _shrink_tile(
    x_ptr,
    pool_ptr,
    h_ptr,
    table_ptr,
    first_row_chunk,
    num_rows,
    start,
    length,
    x_stride,
    h_stride,
    first,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SHARE: tl.constexpr,
):
    """``BLOCK_R`` rows of A times ``BLOCK_T`` tokens, over ``SHARE`` elements of the input from ``first`` on."""
    rows = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    first_chunk = first_row_chunk + rows * ROW_CHUNKS
    columns = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_R, BLOCK_T), dtype=tl.float32)
    for k in range(first, tl.minimum(first + SHARE, IN), BLOCK_K):
        chunk = first_chunk + k // KV_DIM
        page = tl.load(table_ptr + chunk // PAGE_CHUNKS, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + k % KV_DIM
        columns_ok = k + columns < IN
        a = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_K)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        x = tl.load(
            x_ptr + tokens[None, :] * x_stride + (k + columns)[:, None],
            mask=tokens_ok[None, :] & columns_ok[:, None],
            other=0.0,
        )
        acc = tl.dot(a, x, acc, input_precision="ieee")
    tl.store(h_ptr + tokens[None, :] * h_stride + rows[:, None], acc, mask=rows_ok[:, None] & tokens_ok[None, :])


@triton.jit(do_not_specialize=["layer"])
def _shrink_kernel(
    x_ptr,
    pool_ptr,
    h_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    layer,
    x_stride,
    h_stride,
    split_stride,
    pages_stride,
    slot_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    SMALL_K: tl.constexpr,
    LARGE_K: tl.constexpr,
    SHARE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Prompts' chunks: large matrix products; tiles of up to ``SMALL`` tokens take small ones."""
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    start = tl.load(tile + 1)
    length = tl.load(tile + 2)
    if length == 0:
        wait_for_input(PDL)
        return
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    if tl.program_id(0) * BLOCK_R >= num_rows:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    split = tl.program_id(2)
    h_ptr += split * split_stride
    table_ptr = pages_ptr + slot * pages_stride
    first_chunk = tl.load(meta)
    wait_for_input(PDL)
    if length > SMALL:
        _shrink_tile(
            x_ptr, pool_ptr, h_ptr, table_ptr, first_chunk, num_rows, start, length, x_stride, h_stride,
            split * SHARE, IN, KV_DIM, PAGE_CHUNKS, LARGE, BLOCK_R, LARGE_K, SHARE,
        )  # fmt: skip
        return
    _shrink_tile(
        x_ptr, pool_ptr, h_ptr, table_ptr, first_chunk, num_rows, start, length, x_stride, h_stride,
        split * SHARE, IN, KV_DIM, PAGE_CHUNKS, SMALL, BLOCK_R, SMALL_K, SHARE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["layer"])
def _shrink_some_kernel(
    x_ptr,
    pool_ptr,
    h_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    layer,
    x_stride,
    h_stride,
    split_stride,
    pages_stride,
    slot_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WAYS: tl.constexpr,
    SHARE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Up to 16 tokens per tile: each of ``WAYS`` warps multiplies its own columns, and the program adds them up."""
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    start = tl.load(tile + 1)
    length = tl.load(tile + 2)
    if length == 0:
        wait_for_input(PDL)
        return
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    if tl.program_id(0) * BLOCK_R >= num_rows:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    rows = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    first_chunk = tl.load(meta) + rows * ROW_CHUNKS
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((WAYS, BLOCK_R, BLOCK_T), dtype=tl.float32)
    tl.static_assert(SHARE % (WAYS * BLOCK_K) == 0, "a share ends between two rounds of the loop")
    split = tl.program_id(2)
    for k in range(split * SHARE, tl.minimum(split * SHARE + SHARE, IN), WAYS * BLOCK_K):
        column = k + tl.arange(0, WAYS) * BLOCK_K
        ok = (column < IN)[:, None] & rows_ok[None, :]
        chunk = first_chunk[None, :] + (column // KV_DIM)[:, None]
        page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + (column % KV_DIM)[:, None]
        a = tl.load(pool_ptr + place[:, :, None] + inner[None, None, :], mask=ok[:, :, None], other=0.0)
        wait_for_input(PDL)
        columns = column[:, None] + inner[None, :]
        x = tl.load(
            x_ptr + tokens[None, None, :] * x_stride + columns[:, :, None],
            mask=tokens_ok[None, None, :] & (columns < IN)[:, :, None],
            other=0.0,
        )
        acc = tl.dot(a, x, acc, input_precision="ieee")
    shrunk = tl.sum(acc, axis=0).to(h_ptr.dtype.element_ty)
    place = h_ptr + split * split_stride + tokens[None, :] * h_stride + rows[:, None]
    tl.store(place, shrunk, mask=rows_ok[:, None] & tokens_ok[None, :])


@triton.jit
def _sum_kernel(
    h_ptr,
    out_ptr,
    split_stride,
    h_stride,
    out_stride,
    width,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """Add up one token's partial sums, in a fixed order, in the dtype of the next product."""
    let_next_start(PDL)
    wait_for_input(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    ok = columns < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(h_ptr + split * split_stride + token * h_stride + columns, mask=ok, other=0.0)
    tl.store(out_ptr + token * out_stride + columns, total.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _expand_tile(
    h_ptr,
    pool_ptr,
    out_ptr,
    table_ptr,
    onto_ptr,
    first_chunk,
    rank,
    scale,
    start,
    length,
    column,
    out_features,
    h_stride,
    out_stride,
    onto_stride,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONTO: tl.constexpr,
    PDL: tl.constexpr,
):
    """``BLOCK_N`` columns of one target for ``BLOCK_T`` tokens; the pointers are at the target's columns."""
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    columns_ok = column + columns < out_features
    row_chunks = (out_features + KV_DIM - 1) // KV_DIM
    first_chunk += column // KV_DIM
    acc = tl.zeros((BLOCK_T, BLOCK_N), dtype=tl.float32)
    for r in range(0, rank, BLOCK_R):
        rows = r + tl.arange(0, BLOCK_R)
        rows_ok = rows < rank
        chunk = first_chunk + rows * row_chunks
        page = tl.load(table_ptr + chunk // PAGE_CHUNKS, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + column % KV_DIM
        b = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_N)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        wait_for_input(PDL)
        h = tl.load(
            h_ptr + tokens[:, None] * h_stride + rows[None, :], mask=tokens_ok[:, None] & rows_ok[None, :], other=0.0
        )
        acc = tl.dot(h.to(b.dtype), b, acc, input_precision="ieee")
    wait_for_input(PDL)
    acc *= scale
    ok = tokens_ok[:, None] & columns_ok[None, :]
    if ONTO:
        onto_ptrs = onto_ptr + tokens[:, None] * onto_stride + column + columns[None, :]
        acc += tl.load(onto_ptrs, mask=ok, other=0.0).to(tl.float32)
    out_ptrs = out_ptr + tokens[:, None] * out_stride + column + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=["layer"])
def _expand_kernel(
    h_ptr,
    pool_ptr,
    out_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    scales_ptr,
    onto_ptr,
    layer,
    h_stride,
    out_stride,
    onto_stride,
    pages_stride,
    slot_stride,
    scale_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_ALL_TARGETS: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    OUT_0: tl.constexpr,
    OUT_1: tl.constexpr,
    OUT_2: tl.constexpr,
    KV_DIM: tl.constexpr,
    PAGE_CHUNKS: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONTO: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Several tokens per adapter: matrix products. ``LARGE`` 0 leaves the code for large tiles out."""
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    start = tl.load(tile + 1)
    length = tl.load(tile + 2)
    if length == 0:
        wait_for_input(PDL)
        return
    target, block, out_features, out_start = _target_of(tl.program_id(0), BLOCK_N, OUT_0, OUT_1, OUT_2, NUM_TARGETS)
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    rank = tl.load(meta + target * FIELDS + 2)
    if IN_PLACE and rank == 0:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    for other in tl.static_range(NUM_TARGETS):
        if other < target:
            h_ptr += tl.load(meta + other * FIELDS + 2)
    out_ptr += out_start
    onto_ptr += out_start
    scale = tl.load(scales_ptr + slot * scale_stride + layer * NUM_ALL_TARGETS + FIRST + target)
    first_chunk = tl.load(meta + target * FIELDS + 1)
    table_ptr = pages_ptr + slot * pages_stride
    if LARGE > 0:
        wait_for_input(PDL)
        if length > SMALL:
            _expand_tile(
                h_ptr, pool_ptr, out_ptr, table_ptr, onto_ptr, first_chunk, rank, scale, start, length,
                block * BLOCK_N, out_features, h_stride, out_stride, onto_stride,
                KV_DIM, PAGE_CHUNKS, LARGE, BLOCK_R, BLOCK_N, ONTO, False,
            )  # fmt: skip
            return
    _expand_tile(
        h_ptr, pool_ptr, out_ptr, table_ptr, onto_ptr, first_chunk, rank, scale, start, length,
        block * BLOCK_N, out_features, h_stride, out_stride, onto_stride,
        KV_DIM, PAGE_CHUNKS, SMALL, BLOCK_R, BLOCK_N, ONTO, PDL,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Where shrunk activations go: partial sums ``[splits, tokens, rows]`` float32; their sum ``[tokens, rows]``."""

    partial: torch.Tensor
    total: torch.Tensor


@dataclass(frozen=True, slots=True)
class LoraShape:
    """What a launch is sized for: everything that a captured graph fixes.

    ``form`` is also the tile size given to ``token_tiles``. ``max_rank`` bounds the rank of every module in the batch.
    """

    form: Form
    max_rank: int

    def share(self, in_features: int, programs: int) -> int:
        """Input elements for one program of a shrink that has ``programs`` for each share."""
        share = SHARE[self.form]
        while self.form is Form.SOME and share > LEAST_SHARE and programs * _parts(in_features, share // 2) <= FULL:
            share //= 2
        return share

    def workspace(
        self, tokens: int, max_in_features: int, max_targets: int, device: torch.device | str, dtype: torch.dtype
    ) -> Shrunk:
        """For any group with at most that many input features and targets; ``dtype`` is the activations'."""
        rows = self.max_rank * max_targets
        splits = _parts(max_in_features, self.share(max_in_features, programs=1))
        partial = torch.empty(splits, tokens, rows, dtype=torch.float32, device=device)
        return Shrunk(partial, torch.empty(tokens, rows, dtype=dtype, device=device))


def lora_shrink(
    x: torch.Tensor,
    pool: torch.Tensor,
    h: Shrunk,
    tiles: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    kv_dim: int,
    shape: LoraShape,
) -> None:
    """``h[token, row] = A[row] . x[token]`` for every row of the group's targets, of every token's adapter.

    ``x [tokens, in_features]``; ``pool [num_pages, page_elems]`` of this layer; ``h`` from ``shape.workspace``: only
    the columns below the adapter's total rank mean anything. ``tiles [n, 3]`` int32 from ``token_tiles`` with
    ``shape.form``. Raises ``ValueError`` for shapes that do not fit.
    """
    if not tiles.shape[0] or not shape.max_rank:
        return
    _check(x, pool, kv_dim, group.in_features, "x")
    launch = SHRINK[shape.form]
    tokens, max_rows = x.shape[0], shape.max_rank * len(group.out_features)
    row_blocks = triton.cdiv(max_rows, launch.rows)
    share = shape.share(group.in_features, row_blocks * tiles.shape[0])
    splits = _parts(group.in_features, share)
    partial = h.partial
    if partial.shape[0] < splits or partial.shape[1] < tokens or partial.shape[2] < max_rows or partial.stride(2) != 1:
        raise ValueError(f"h is {tuple(partial.shape)}, but needs [{splits}, {tokens}, {max_rows}], rows contiguous")
    tables_of = (tiles, tables.pages, tables.modules, layer)
    strides = (x.stride(0), partial.stride(1), partial.stride(0), tables.pages.stride(0), tables.modules.stride(0))
    common = dict(
        LAYER_STRIDE=len(TARGETS) * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_TARGETS=len(group.out_features),
        IN=group.in_features,
        KV_DIM=kv_dim,
        PAGE_CHUNKS=pool.shape[1] // kv_dim,
        BLOCK_R=launch.rows,
        num_warps=launch.warps,
        num_stages=launch.stages,
        **early_start(x),
    )
    grid = (row_blocks, tiles.shape[0], splits)
    columns = _block(kv_dim, launch.columns)
    if shape.form in (Form.ONE, Form.TWO):
        _shrink_one_kernel[grid](
            x, pool, partial, *tables_of, *strides,
            BLOCKS=share // columns, BLOCK_K=columns, TOKENS=int(shape.form), **common,
        )  # fmt: skip
        return
    if shape.form is Form.SOME:
        # What one program reads whole needs no adding up.
        to = h.total[None] if splits == 1 else partial
        _shrink_some_kernel[grid](
            x, pool, to, *tables_of, x.stride(0), to.stride(1), to.stride(0), *strides[3:],
            BLOCK_T=SMALL_TILE, BLOCK_K=columns, WAYS=launch.warps, SHARE=share, **common,
        )  # fmt: skip
        if splits == 1:
            return
    else:
        _shrink_kernel[grid](
            x, pool, partial, *tables_of, *strides,
            SMALL=SMALL_TILE, LARGE=LARGE_TILE, SMALL_K=_block(kv_dim, 8192 // launch.rows), LARGE_K=columns,
            SHARE=share, **common,
        )  # fmt: skip
    _sum_kernel[(tokens,)](
        partial,
        h.total,
        partial.stride(0),
        partial.stride(1),
        h.total.stride(0),
        max_rows,
        SPLITS=splits,
        BLOCK=triton.next_power_of_2(max_rows),
        num_warps=2,
        **early_start(x),
    )


def lora_expand(
    h: Shrunk,
    pool: torch.Tensor,
    out: torch.Tensor,
    tiles: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    kv_dim: int,
    shape: LoraShape,
    onto: torch.Tensor | None,
) -> None:
    """``out[token] = onto + scale * B^T h[token]``, each target in its own columns.

    ``out [tokens, sum(out_features)]``; ``onto`` is ``out`` itself, a bias of one row, or None for zero. Only rows
    of ``tiles`` are written; a tile of slot 0 gets ``onto`` alone. The rest as for ``lora_shrink``. Raises
    ``ValueError`` for shapes that do not fit.
    """
    if not tiles.shape[0] or not shape.max_rank:
        return
    _check(out, pool, kv_dim, sum(group.out_features), "out")
    outs = (*group.out_features, 0, 0)[:3]
    launch = EXPAND[shape.form]
    block_n = _block(kv_dim, launch.columns)
    grid = (sum(triton.cdiv(features, block_n) for features in group.out_features), tiles.shape[0])
    onto_stride = out.stride(0) if onto is out else 0
    tables_of = (tables.pages, tables.modules, tables.scales, out if onto is None else onto, layer)
    strides = (
        out.stride(0), onto_stride, tables.pages.stride(0), tables.modules.stride(0), tables.scales.stride(0)
    )  # fmt: skip
    common = dict(
        LAYER_STRIDE=len(TARGETS) * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_ALL_TARGETS=len(TARGETS),
        NUM_TARGETS=len(group.out_features),
        OUT_0=outs[0],
        OUT_1=outs[1],
        OUT_2=outs[2],
        KV_DIM=kv_dim,
        PAGE_CHUNKS=pool.shape[1] // kv_dim,
        BLOCK_R=launch.rows,
        BLOCK_N=block_n,
        ONTO=onto is not None,
        IN_PLACE=onto is out,
        num_warps=launch.warps,
        num_stages=launch.stages,
        **early_start(out),
    )
    if shape.form in (Form.ONE, Form.TWO):
        _expand_one_kernel[grid](
            h.partial, pool, out, tiles, *tables_of, h.partial.stride(1), h.partial.stride(0), *strides,
            SPLITS=_parts(group.in_features, SHARE[shape.form]), TOKENS=int(shape.form), **common,
        )  # fmt: skip
        return
    large = LARGE_TILE if shape.form is Form.MANY else 0
    _expand_kernel[grid](
        h.total, pool, out, tiles, *tables_of, h.total.stride(0), *strides, SMALL=SMALL_TILE, LARGE=large, **common
    )


def _parts(in_features: int, share: int) -> int:
    """Parts of the input whose partial sums are kept apart; a power of two."""
    return int(triton.next_power_of_2(triton.cdiv(in_features, share)))


def _check(x: torch.Tensor, pool: torch.Tensor, kv_dim: int, features: int, name: str) -> None:
    if x.shape[1] != features or x.stride(1) != 1:
        raise ValueError(
            f"{name} is {tuple(x.shape)} with strides {x.stride()}, but needs contiguous rows of {features}"
        )
    if pool.shape[1] % kv_dim or not pool.is_contiguous():
        raise ValueError(f"the pool's pages of {pool.shape[1]} elements are no contiguous chunks of {kv_dim}")


def _block(kv_dim: int, limit: int) -> int:
    """The largest power of two that divides ``kv_dim``, at most ``limit``: a block then lies in one chunk.

    Raises ``ValueError`` below 16, the least a matrix instruction takes.
    """
    block = min(kv_dim & -kv_dim, limit)
    if block < 16:
        raise ValueError(f"kv_dim {kv_dim} is not a multiple of 16; these kernels need whole blocks of 16 elements")
    return block
