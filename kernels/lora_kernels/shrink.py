"""LoRA shrink over pool pages, for any mix of adapters and ranks in one launch: ``h = A x``.

One launch serves all targets that share an input (q,k,v; gate,up). In decode's forms its programs share the pieces
(a tile of tokens, a block of rank rows) that the batch has: a rank-8 adapter beside a rank-64 one has only its own, and
an empty tile of a captured graph has none. In prompts there is a program for each tile and block of rows, those beyond
an adapter's rank end at once. Long inputs are cut into shares, whose partial sums are added up in a fixed order. There
are no atomics and no zero-fill: every output element is written by one program.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .early_start import early_start, let_next_start, wait_for_input
from .forms import LARGE_TILE, SHRINK, SMALL_TILE, Form, LoraShape, Shrunk, block_columns, check_layout, parts
from .tables import MODULE_FIELDS, TARGETS, Group, SlotTables
from .tiles import count_pieces, find_piece, load_tile


@triton.jit
def _rows_of(
    slot,
    modules_ptr,
    slot_stride,
    layer,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
):
    """Where a group's rows of A start, in chunks, and how many they are."""
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    return tl.load(meta), num_rows


@triton.jit(do_not_specialize=["layer", "num_tiles"])
def _shrink_one_kernel(
    x_ptr,
    pool_ptr,
    h_ptr,
    tiles_ptr,
    num_tiles,
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
    MOST_TILES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Up to ``TOKENS`` per tile: the rows' whole share of the input is in flight at once, no loop over it."""
    let_next_start(PDL)
    split = tl.program_id(1)
    column = (split * BLOCKS + tl.arange(0, BLOCKS)) * BLOCK_K
    inner = tl.arange(0, BLOCK_K)
    columns = column[:, None] + inner[None, :]
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    EVEN: tl.constexpr = IN % (BLOCKS * BLOCK_K) == 0  # no column needs a mask
    h_ptr += split * split_stride
    for piece in range(tl.program_id(0), count_pieces(tiles_ptr, num_tiles, NUM_TARGETS), tl.num_programs(0)):
        tile, block = find_piece(piece, tiles_ptr, num_tiles, NUM_TARGETS, MOST_TILES)
        slot, start, length = load_tile(tiles_ptr, tile)
        first_chunk, num_rows = _rows_of(
            slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS
        )
        rows = block * BLOCK_R + tl.arange(0, BLOCK_R)
        rows_ok = rows < num_rows
        chunk = first_chunk + rows[:, None] * ROW_CHUNKS + (column // KV_DIM)[None, :]
        ok = rows_ok[:, None] & (column < IN)[None, :]
        page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + (column % KV_DIM)[None, :]
        a_ok = rows_ok[:, None, None]
        if not EVEN:
            a_ok = a_ok & (columns < IN)[None, :, :]
        a = tl.load(pool_ptr + place[:, :, None] + inner[None, None, :], mask=a_ok, other=0.0)
        wait_for_input(PDL)
        for offset in tl.static_range(TOKENS):
            token = (start + tl.minimum(offset, length - 1)).to(tl.int64)
            if EVEN:
                x = tl.load(x_ptr + token * x_stride + columns)
            else:
                x = tl.load(x_ptr + token * x_stride + columns, mask=columns < IN, other=0.0)
            products = a.to(tl.float32) * x.to(tl.float32)[None, :, :]
            shrunk = tl.sum(tl.sum(products, axis=2), axis=1)
            tl.store(h_ptr + token * h_stride + rows, shrunk, mask=rows_ok & (offset < length))
    wait_for_input(PDL)


@triton.jit(do_not_specialize=["layer", "num_tiles"])
def _shrink_some_kernel(
    x_ptr,
    pool_ptr,
    h_ptr,
    tiles_ptr,
    num_tiles,
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
    MOST_TILES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Up to 16 tokens per tile: each of ``WAYS`` warps multiplies its own columns, and the program adds them up."""
    tl.static_assert(SHARE % (WAYS * BLOCK_K) == 0, "a share ends between two rounds of the loop")
    let_next_start(PDL)
    split = tl.program_id(1)
    inner = tl.arange(0, BLOCK_K)
    h_ptr += split * split_stride
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    for piece in range(tl.program_id(0), count_pieces(tiles_ptr, num_tiles, NUM_TARGETS), tl.num_programs(0)):
        tile, block = find_piece(piece, tiles_ptr, num_tiles, NUM_TARGETS, MOST_TILES)
        slot, start, length = load_tile(tiles_ptr, tile)
        first_chunk, num_rows = _rows_of(
            slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS
        )
        rows = block * BLOCK_R + tl.arange(0, BLOCK_R)
        rows_ok = rows < num_rows
        tokens = tl.arange(0, BLOCK_T)
        tokens_ok = tokens < length
        tokens = (start + tokens).to(tl.int64)
        row_chunk = first_chunk + rows * ROW_CHUNKS
        acc = tl.zeros((WAYS, BLOCK_R, BLOCK_T), dtype=tl.float32)
        stop = tl.where(block * BLOCK_R < num_rows, tl.minimum(split * SHARE + SHARE, IN), 0)
        for k in range(split * SHARE, stop, WAYS * BLOCK_K):
            column = k + tl.arange(0, WAYS) * BLOCK_K
            ok = (column < IN)[:, None] & rows_ok[None, :]
            chunk = row_chunk[None, :] + (column // KV_DIM)[:, None]
            page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=ok, other=0)
            place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM
            place += (column % KV_DIM)[:, None]
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
        tl.store(h_ptr + tokens[None, :] * h_stride + rows[:, None], shrunk, mask=rows_ok[:, None] & tokens_ok[None, :])
    wait_for_input(PDL)


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
    slot, start, length = load_tile(tiles_ptr, tl.program_id(1))
    if length == 0:
        wait_for_input(PDL)
        return
    first_chunk, num_rows = _rows_of(slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS)
    if tl.program_id(0) * BLOCK_R >= num_rows:
        wait_for_input(PDL)
        return
    let_next_start(PDL)
    split = tl.program_id(2)
    h_ptr += split * split_stride
    table_ptr = pages_ptr + slot * pages_stride
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
    the columns below the adapter's total rank mean anything. ``tiles [n, 4]`` int32 from ``token_tiles`` with
    ``shape.form``. Raises ``ValueError`` for shapes that do not fit.
    """
    if not tiles.shape[0] or not shape.max_rank:
        return
    check_layout(x, pool, kv_dim, group.in_features, "x")
    launch, num_tiles, targets = SHRINK[shape.form], tiles.shape[0], len(group.out_features)
    tokens, max_rows = x.shape[0], shape.max_rank * targets
    row_blocks = triton.cdiv(max_rows, launch.rows)
    share = shape.share(group.in_features, row_blocks * num_tiles)
    splits = parts(group.in_features, share)
    partial = h.partial
    if partial.shape[0] < splits or partial.shape[1] < tokens or partial.shape[2] < max_rows or partial.stride(2) != 1:
        raise ValueError(f"h is {tuple(partial.shape)}, but needs [{splits}, {tokens}, {max_rows}], rows contiguous")
    # What one program reads whole needs no adding up. The smallest forms' expand takes partial sums whatever they are.
    summed = shape.form in (Form.SOME, Form.MANY)
    to = h.total[None] if summed and splits == 1 else partial
    tables_of = (tables.pages, tables.modules, layer)
    strides = (x.stride(0), to.stride(1), to.stride(0), tables.pages.stride(0), tables.modules.stride(0))
    common = dict(
        LAYER_STRIDE=len(TARGETS) * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_TARGETS=targets,
        IN=group.in_features,
        KV_DIM=kv_dim,
        PAGE_CHUNKS=pool.shape[1] // kv_dim,
        BLOCK_R=launch.rows,
        **launch.options(),
        **early_start(x),
    )
    columns = block_columns(kv_dim, launch.columns)
    if shape.form is Form.MANY:
        _shrink_kernel[row_blocks, num_tiles, splits](
            x, pool, to, tiles, *tables_of, *strides,
            SMALL=SMALL_TILE, LARGE=LARGE_TILE, SMALL_K=block_columns(kv_dim, 8192 // launch.rows), LARGE_K=columns,
            SHARE=share, **common,
        )  # fmt: skip
    else:
        most_pieces = targets * triton.cdiv(shape.max_rank, launch.rows) * num_tiles
        # One program more than fit at once would start when all others end.
        grid = (min(most_pieces, max(launch.programs // splits, 1)), splits)
        # The same for all usual batches: every other number is one more kernel to compile.
        most_tiles = max(256, triton.next_power_of_2(num_tiles))
        if shape.form is Form.SOME:
            _shrink_some_kernel[grid](
                x, pool, to, tiles, num_tiles, *tables_of, *strides,
                BLOCK_T=SMALL_TILE, BLOCK_K=columns, WAYS=launch.warps, SHARE=share, MOST_TILES=most_tiles, **common,
            )  # fmt: skip
        else:
            _shrink_one_kernel[grid](
                x, pool, to, tiles, num_tiles, *tables_of, *strides,
                BLOCKS=share // columns, BLOCK_K=columns, TOKENS=int(shape.form), MOST_TILES=most_tiles, **common,
            )  # fmt: skip
    if summed and splits > 1:
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
