"""LoRA shrink over pool pages, for any mix of adapters and ranks in one launch: ``h = A x``.

One launch serves all targets that share an input (q,k,v; gate,up). In the decode variants the programs share the work
items of the batch (a tile of tokens, a block of rank rows): a rank-8 adapter has fewer of them than a rank-64 one, and
an empty tile of a captured graph has none. For prefill there is a program for each tile and block of rows; programs
beyond an adapter's rank end at once. Long inputs are split (split-K), and the partial sums are added up in a fixed
order. There are no atomics and no zero-fill: one program writes each output element.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .fp8_tensors import FP8
from .kernel_variants import (
    LARGE_TILE,
    SMALL_TILE,
    SPLIT_K,
    KernelVariant,
    LoraShape,
    ShrinkBuffers,
    block_columns,
    check_layout,
    num_splits,
    shrink_launch,
)
from .pdl import grid_dependency_wait, launch_dependents, pdl_options
from .tables import ALL_TARGETS, FP8_ROWS, MODULE_FIELDS, Group, SlotTables
from .work_items import count_work_items, find_work_item, load_tile

_FP8_ROWS = tl.constexpr(FP8_ROWS)


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
    """Return the first pool row of a group's A, plus ``FP8_ROWS`` if it is in FP8, and the number of rows of A."""
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    return tl.load(meta), num_rows


@triton.jit
def _shrink_rows(
    x_ptr,
    pool_ptr,
    h_ptr,
    table_ptr,
    first_pool_row,
    num_rows,
    block,
    start,
    length,
    first_block,
    x_stride,
    h_stride,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TOKENS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply ``BLOCK_R`` rows of A by up to ``TOKENS`` tokens, over ``BLOCKS`` blocks of the input."""
    POOL_ROWS_PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    EVEN: tl.constexpr = IN % (BLOCKS * BLOCK_K) == 0  # no column needs a mask
    column = (first_block + tl.arange(0, BLOCKS)) * BLOCK_K
    inner = tl.arange(0, BLOCK_K)
    columns = column[:, None] + inner[None, :]
    rows = block * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    pool_row = first_pool_row + rows[:, None] * POOL_ROWS_PER_ROW + (column // KV_DIM)[None, :]
    ok = rows_ok[:, None] & (column < IN)[None, :]
    page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=ok, other=0)
    place = (
        page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM + (column % KV_DIM)[None, :]
    )
    a_ok = rows_ok[:, None, None]
    if not EVEN:
        a_ok = a_ok & (columns < IN)[None, :, :]
    a = tl.load(pool_ptr + place[:, :, None] + inner[None, None, :], mask=a_ok, other=0.0)
    grid_dependency_wait(PDL)
    for offset in tl.static_range(TOKENS):
        token = (start + tl.minimum(offset, length - 1)).to(tl.int64)
        if EVEN:
            x = tl.load(x_ptr + token * x_stride + columns)
        else:
            x = tl.load(x_ptr + token * x_stride + columns, mask=columns < IN, other=0.0)
        products = a.to(tl.float32) * x.to(tl.float32)[None, :, :]
        shrunk = tl.sum(tl.sum(products, axis=2), axis=1)
        tl.store(h_ptr + token * h_stride + rows, shrunk, mask=rows_ok & (offset < length))


@triton.jit(do_not_specialize=["layer", "num_tiles"])
def _shrink_gemv_kernel(
    x_ptr,
    pool_ptr,
    fp8_pool_ptr,
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
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    TOKENS: tl.constexpr,
    FP8: tl.constexpr,
    MAX_TILES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Shrink tiles of up to ``TOKENS`` tokens; loads the rows' whole split of the input at once, without a loop."""
    launch_dependents(PDL)
    split = tl.program_id(1)
    h_ptr += split * split_stride
    for item in range(tl.program_id(0), count_work_items(tiles_ptr, num_tiles, NUM_TARGETS), tl.num_programs(0)):
        tile, block = find_work_item(item, tiles_ptr, num_tiles, NUM_TARGETS, MAX_TILES)
        slot, start, length = load_tile(tiles_ptr, tile)
        first_pool_row, num_rows = _rows_of(
            slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS
        )
        table_ptr = pages_ptr + slot * pages_stride
        if FP8 > 0 and first_pool_row >= _FP8_ROWS:
            _shrink_rows(
                x_ptr, fp8_pool_ptr, h_ptr, table_ptr, first_pool_row - _FP8_ROWS, num_rows, block, start, length,
                split * BLOCKS, x_stride, h_stride, IN, KV_DIM, ROWS_PER_PAGE * FP8, BLOCK_R, BLOCKS, BLOCK_K, TOKENS,
                PDL,
            )  # fmt: skip
        else:
            _shrink_rows(
                x_ptr, pool_ptr, h_ptr, table_ptr, first_pool_row, num_rows, block, start, length,
                split * BLOCKS, x_stride, h_stride, IN, KV_DIM, ROWS_PER_PAGE, BLOCK_R, BLOCKS, BLOCK_K, TOKENS, PDL,
            )  # fmt: skip
    grid_dependency_wait(PDL)


@triton.jit
def _shrink_few(
    x_ptr,
    pool_ptr,
    h_ptr,
    table_ptr,
    first_pool_row,
    num_rows,
    block,
    start,
    length,
    first,
    x_stride,
    h_stride,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WAYS: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply ``BLOCK_R`` rows of A by up to 16 tokens; each of ``WAYS`` warps multiplies its columns."""
    inner = tl.arange(0, BLOCK_K)
    POOL_ROWS_PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    rows = block * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    row_start = first_pool_row + rows * POOL_ROWS_PER_ROW
    acc = tl.zeros((WAYS, BLOCK_R, BLOCK_T), dtype=tl.float32)
    stop = tl.where(block * BLOCK_R < num_rows, tl.minimum(first + SPLIT_SIZE, IN), 0)
    for k in range(first, stop, WAYS * BLOCK_K):
        column = k + tl.arange(0, WAYS) * BLOCK_K
        ok = (column < IN)[:, None] & rows_ok[None, :]
        pool_row = row_start[None, :] + (column // KV_DIM)[:, None]
        page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=ok, other=0)
        place = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM
        place += (column % KV_DIM)[:, None]
        a = tl.load(pool_ptr + place[:, :, None] + inner[None, None, :], mask=ok[:, :, None], other=0.0)
        grid_dependency_wait(PDL)
        columns = column[:, None] + inner[None, :]
        x = tl.load(
            x_ptr + tokens[None, None, :] * x_stride + columns[:, :, None],
            mask=tokens_ok[None, None, :] & (columns < IN)[:, :, None],
            other=0.0,
        )
        acc = tl.dot(a.to(x.dtype), x, acc, input_precision="ieee")
    shrunk = tl.sum(acc, axis=0).to(h_ptr.dtype.element_ty)
    tl.store(h_ptr + tokens[None, :] * h_stride + rows[:, None], shrunk, mask=rows_ok[:, None] & tokens_ok[None, :])


@triton.jit(do_not_specialize=["layer", "num_tiles"])
def _shrink_grouped_kernel(
    x_ptr,
    pool_ptr,
    fp8_pool_ptr,
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
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    WAYS: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    FP8: tl.constexpr,
    MAX_TILES: tl.constexpr,
    PDL: tl.constexpr,
):
    """Shrink tiles of up to 16 tokens; each of ``WAYS`` warps multiplies its columns, and the program adds them up."""
    tl.static_assert(SPLIT_SIZE % (WAYS * BLOCK_K) == 0, "a split ends between two rounds of the loop")
    launch_dependents(PDL)
    split = tl.program_id(1)
    h_ptr += split * split_stride
    for item in range(tl.program_id(0), count_work_items(tiles_ptr, num_tiles, NUM_TARGETS), tl.num_programs(0)):
        tile, block = find_work_item(item, tiles_ptr, num_tiles, NUM_TARGETS, MAX_TILES)
        slot, start, length = load_tile(tiles_ptr, tile)
        first_pool_row, num_rows = _rows_of(
            slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS
        )
        table_ptr = pages_ptr + slot * pages_stride
        if FP8 > 0 and first_pool_row >= _FP8_ROWS:
            _shrink_few(
                x_ptr, fp8_pool_ptr, h_ptr, table_ptr, first_pool_row - _FP8_ROWS, num_rows, block, start, length,
                split * SPLIT_SIZE, x_stride, h_stride, IN, KV_DIM, ROWS_PER_PAGE * FP8, BLOCK_T, BLOCK_R, BLOCK_K,
                WAYS, SPLIT_SIZE, PDL,
            )  # fmt: skip
        else:
            _shrink_few(
                x_ptr, pool_ptr, h_ptr, table_ptr, first_pool_row, num_rows, block, start, length,
                split * SPLIT_SIZE, x_stride, h_stride, IN, KV_DIM, ROWS_PER_PAGE, BLOCK_T, BLOCK_R, BLOCK_K, WAYS,
                SPLIT_SIZE, PDL,
            )  # fmt: skip
    grid_dependency_wait(PDL)


@triton.jit
def _shrink_tile(
    x_ptr,
    pool_ptr,
    h_ptr,
    table_ptr,
    first_pool_row,
    num_rows,
    start,
    length,
    x_stride,
    h_stride,
    first,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
):
    """Multiply ``BLOCK_R`` rows of A by ``BLOCK_T`` tokens, over ``SPLIT_SIZE`` input elements from ``first`` on."""
    rows = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    POOL_ROWS_PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    first_pool_row = first_pool_row + rows * POOL_ROWS_PER_ROW
    columns = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_R, BLOCK_T), dtype=tl.float32)
    for k in range(first, tl.minimum(first + SPLIT_SIZE, IN), BLOCK_K):
        pool_row = first_pool_row + k // KV_DIM
        page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM + k % KV_DIM
        columns_ok = k + columns < IN
        a = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_K)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        x = tl.load(
            x_ptr + tokens[None, :] * x_stride + (k + columns)[:, None],
            mask=tokens_ok[None, :] & columns_ok[:, None],
            other=0.0,
        )
        acc = tl.dot(a.to(x.dtype), x, acc, input_precision="ieee")
    tl.store(h_ptr + tokens[None, :] * h_stride + rows[:, None], acc, mask=rows_ok[:, None] & tokens_ok[None, :])


@triton.jit
def _shrink_tile_of(
    x_ptr,
    pool_ptr,
    h_ptr,
    table_ptr,
    first_pool_row,
    num_rows,
    start,
    length,
    x_stride,
    h_stride,
    first,
    IN: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    SMALL_K: tl.constexpr,
    LARGE_K: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
):
    """Shrink a tile of up to ``LARGE`` tokens, or by the smaller product if it has up to ``SMALL`` (0: no tile)."""
    if length > SMALL:
        _shrink_tile(
            x_ptr, pool_ptr, h_ptr, table_ptr, first_pool_row, num_rows, start, length, x_stride, h_stride, first,
            IN, KV_DIM, ROWS_PER_PAGE, LARGE, BLOCK_R, LARGE_K, SPLIT_SIZE,
        )  # fmt: skip
    elif SMALL > 0:
        _shrink_tile(
            x_ptr, pool_ptr, h_ptr, table_ptr, first_pool_row, num_rows, start, length, x_stride, h_stride, first,
            IN, KV_DIM, ROWS_PER_PAGE, SMALL, BLOCK_R, SMALL_K, SPLIT_SIZE,
        )  # fmt: skip


@triton.jit(do_not_specialize=["layer"])
def _shrink_prefill_kernel(
    x_ptr,
    pool_ptr,
    fp8_pool_ptr,
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
    ROWS_PER_PAGE: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    SMALL_K: tl.constexpr,
    LARGE_K: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    FP8: tl.constexpr,
    PDL: tl.constexpr,
):
    """Shrink prefill chunks by large matrix products; tiles of up to ``SMALL`` tokens take small ones (0: no tile)."""
    slot, start, length = load_tile(tiles_ptr, tl.program_id(1))
    if length == 0:
        grid_dependency_wait(PDL)
        return
    first_pool_row, num_rows = _rows_of(slot, modules_ptr, slot_stride, layer, LAYER_STRIDE, FIELDS, FIRST, NUM_TARGETS)
    if tl.program_id(0) * BLOCK_R >= num_rows:
        grid_dependency_wait(PDL)
        return
    launch_dependents(PDL)
    split = tl.program_id(2)
    h_ptr += split * split_stride
    table_ptr = pages_ptr + slot * pages_stride
    grid_dependency_wait(PDL)
    if FP8 > 0 and first_pool_row >= _FP8_ROWS:
        _shrink_tile_of(
            x_ptr, fp8_pool_ptr, h_ptr, table_ptr, first_pool_row - _FP8_ROWS, num_rows, start, length, x_stride,
            h_stride, split * SPLIT_SIZE, IN, KV_DIM, ROWS_PER_PAGE * FP8, SMALL, LARGE, BLOCK_R, SMALL_K, LARGE_K,
            SPLIT_SIZE,
        )  # fmt: skip
    else:
        _shrink_tile_of(
            x_ptr, pool_ptr, h_ptr, table_ptr, first_pool_row, num_rows, start, length, x_stride,
            h_stride, split * SPLIT_SIZE, IN, KV_DIM, ROWS_PER_PAGE, SMALL, LARGE, BLOCK_R, SMALL_K, LARGE_K,
            SPLIT_SIZE,
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
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    token = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    ok = columns < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(h_ptr + split * split_stride + token * h_stride + columns, mask=ok, other=0.0)
    tl.store(out_ptr + token * out_stride + columns, total.to(out_ptr.dtype.element_ty), mask=ok)


def sums_of_shrink(h: ShrinkBuffers, tokens: int, group: Group, shape: LoraShape, shards: int) -> torch.Tensor:
    """Add up the output ``h`` of ``lora_shrink`` for the same ``group`` and ``shape``: ``[tokens, rows]``, contiguous.

    Rows of A are divided over ``shards`` ranks; the result has as many columns as the largest adapter then has rows.
    Columns beyond the rows of a token's adapter are undefined.
    """
    width = -(-shape.max_rank // shards) * len(group.out_features)
    if shape.variant in (KernelVariant.GROUPED, KernelVariant.PREFILL):
        return h.total[:tokens, :width].contiguous()
    splits = num_splits(group.in_features, SPLIT_K[shape.variant].most)
    return h.partial[:splits, :tokens, :width].sum(0)


def lora_shrink(
    x: torch.Tensor,
    pool: torch.Tensor,
    h: ShrinkBuffers,
    tiles: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    kv_dim: int,
    shape: LoraShape,
) -> None:
    """Compute ``h[token, row] = A[row] . x[token]`` for every row of the group's targets, of every token's adapter.

    The first product of LoRA, as Punica's SGMV shrink (arXiv 2310.18547), over paged weights as S-LoRA's MBGMM
    (arXiv 2311.03285).

    ``x [tokens, in_features]`` has contiguous rows and the pool's dtype (float32, bfloat16 or float16). ``pool
    [num_pages, page_elems]`` of this layer is contiguous. ``h`` comes from ``shape.workspace``; only the columns below
    the adapter's total rank are written. ``tiles [n, 4]`` int32 comes from ``token_tiles`` with ``shape.variant``;
    ``tables`` are on ``x``'s device. ``kv_dim``: elements of a pool row, a multiple of 16. Sums are in float32. Raises
    ``ValueError`` for shapes that do not fit.

    Factors in FP8 (``FP8_ROWS`` in ``tables``) are converted to ``x``'s dtype in registers, which is exact.
    """
    if not tiles.shape[0] or not shape.max_rank:
        return
    check_layout(x, pool, kv_dim, group.in_features, "x")
    launch = shrink_launch(shape.variant, kv_dim, tables.fp8_rows > 0)
    num_tiles, targets = tiles.shape[0], len(group.out_features)
    tokens, max_rows = x.shape[0], shape.max_rank * targets
    row_blocks = triton.cdiv(max_rows, launch.rows)
    split_size = shape.split_size(group.in_features, row_blocks * num_tiles)
    splits = num_splits(group.in_features, split_size)
    partial = h.partial
    if partial.shape[0] < splits or partial.shape[1] < tokens or partial.shape[2] < max_rows or partial.stride(2) != 1:
        raise ValueError(f"h is {tuple(partial.shape)}, but needs [{splits}, {tokens}, {max_rows}], rows contiguous")
    # A single split needs no addition. The expand of GEMV_1 and GEMV_2 takes partial sums in any case.
    summed = shape.variant in (KernelVariant.GROUPED, KernelVariant.PREFILL)
    to = h.total[None] if summed and splits == 1 else partial
    tables_of = (tables.pages, tables.modules, layer)
    pools = (pool, pool.view(FP8) if tables.fp8_rows else pool)
    strides = (x.stride(0), to.stride(1), to.stride(0), tables.pages.stride(0), tables.modules.stride(0))
    common = dict(
        LAYER_STRIDE=ALL_TARGETS * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_TARGETS=targets,
        IN=group.in_features,
        KV_DIM=kv_dim,
        ROWS_PER_PAGE=pool.shape[1] // kv_dim,
        BLOCK_R=launch.rows,
        FP8=tables.fp8_rows,
        **launch.options(),
        **pdl_options(x),
    )
    columns = block_columns(kv_dim, launch.columns)
    if shape.variant is KernelVariant.PREFILL:
        _shrink_prefill_kernel[row_blocks, num_tiles, splits](
            x, *pools, to, tiles, *tables_of, *strides,
            SMALL=shape.small_tile, LARGE=LARGE_TILE, SMALL_K=block_columns(kv_dim, 8192 // launch.rows),
            LARGE_K=columns, SPLIT_SIZE=split_size, **common,
        )  # fmt: skip
    else:
        max_work_items = targets * triton.cdiv(shape.max_rank, launch.rows) * num_tiles
        # Programs beyond those that fit at once would start only when others end.
        grid = (min(max_work_items, max(launch.programs // splits, 1)), splits)
        # The same value for all usual batches: each further value is one more kernel to compile.
        max_tiles = max(256, triton.next_power_of_2(num_tiles))
        if shape.variant is KernelVariant.GROUPED:
            _shrink_grouped_kernel[grid](
                x, *pools, to, tiles, num_tiles, *tables_of, *strides,
                BLOCK_T=SMALL_TILE, BLOCK_K=columns, WAYS=launch.warps, SPLIT_SIZE=split_size, MAX_TILES=max_tiles,
                **common,
            )  # fmt: skip
        else:
            _shrink_gemv_kernel[grid](
                x, *pools, to, tiles, num_tiles, *tables_of, *strides,
                BLOCKS=split_size // columns, BLOCK_K=columns, TOKENS=int(shape.variant), MAX_TILES=max_tiles, **common,
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
            **pdl_options(x),
        )
