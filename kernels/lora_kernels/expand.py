"""LoRA expand over pool pages, for any mix of adapters and ranks in one launch: ``out = onto + scale * B^T h``.

One launch covers the tiles x the blocks of output columns of all targets of a group. A program iterates over its
adapter's rank only, so a rank-8 adapter beside a rank-64 one reads no more than its rows. One program writes each
output element and sums in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .fp8_tensors import FP8
from .kernel_variants import (
    EXPAND,
    LARGE_TILE,
    SMALL_TILE,
    SPLIT_K,
    KernelVariant,
    LoraShape,
    ShrinkBuffers,
    block_columns,
    check_layout,
    num_splits,
)
from .pdl import grid_dependency_wait, launch_dependents, pdl_options
from .tables import ALL_TARGETS, FP8_ROWS, MODULE_FIELDS, MOST_TARGETS, Group, SlotTables
from .work_items import load_tile

_FP8_ROWS = tl.constexpr(FP8_ROWS)


@triton.jit
def _target_of(
    block,
    BLOCK_N: tl.constexpr,
    OUT_0: tl.constexpr,
    OUT_1: tl.constexpr,
    OUT_2: tl.constexpr,
    OUT_3: tl.constexpr,
    OUT_4: tl.constexpr,
    OUT_5: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
):
    """Return the target of a block of output columns: its index, the block inside it, its width, its first column."""
    BLOCKS_0: tl.constexpr = (OUT_0 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_1: tl.constexpr = (OUT_1 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_2: tl.constexpr = (OUT_2 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_3: tl.constexpr = (OUT_3 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_4: tl.constexpr = (OUT_4 + BLOCK_N - 1) // BLOCK_N
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
                    if NUM_TARGETS > 3:
                        if block >= BLOCKS_2:
                            block -= BLOCKS_2
                            target = 3
                            out_features = OUT_3
                            out_start = OUT_0 + OUT_1 + OUT_2
                            if NUM_TARGETS > 4:
                                if block >= BLOCKS_3:
                                    block -= BLOCKS_3
                                    target = 4
                                    out_features = OUT_4
                                    out_start = OUT_0 + OUT_1 + OUT_2 + OUT_3
                                    if NUM_TARGETS > 5:
                                        if block >= BLOCKS_4:
                                            block -= BLOCKS_4
                                            target = 5
                                            out_features = OUT_5
                                            out_start = OUT_0 + OUT_1 + OUT_2 + OUT_3 + OUT_4
    return target, block, out_features, out_start


@triton.jit
def _expand_columns(
    h_ptr,
    pool_ptr,
    out_ptr,
    table_ptr,
    first_pool_row,
    rank,
    length,
    column,
    out_features,
    h_stride,
    split_stride,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    SHARDS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TOKENS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Multiply one or two tokens' shrunk activations by ``BLOCK_N`` columns of a target's B."""
    columns = tl.arange(0, BLOCK_N)
    pool_rows_per_row = (out_features + KV_DIM - 1) // KV_DIM
    first_pool_row += column // KV_DIM
    splits = tl.arange(0, MAX_SPLITS)
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    second = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for r in range(0, rank * SHARDS, BLOCK_R):
        rows = r + tl.arange(0, BLOCK_R)
        rows_ok = rows < rank * SHARDS
        pool_row = first_pool_row + rows * pool_rows_per_row
        page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM + column % KV_DIM
        b = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_N)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        b = b.to(tl.float32)
        grid_dependency_wait(PDL)
        h_ptrs = h_ptr + splits[:, None] * split_stride + _place(rows, rank, split_stride, SHARDS)[None, :]
        h_ok = (splits < SPLITS)[:, None] & rows_ok[None, :]
        acc += _expanded(b, h_ptrs, h_ok, out_ptr)
        if TOKENS == 2:
            second += _expanded(b, h_ptrs + h_stride, h_ok & (length == 2), out_ptr)
    return acc, second


@triton.jit(do_not_specialize=["layer"])
def _expand_gemv_kernel(
    h_ptr,
    pool_ptr,
    fp8_pool_ptr,
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
    OUT_3: tl.constexpr,
    OUT_4: tl.constexpr,
    OUT_5: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SPLITS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    SHARDS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    TOKENS: tl.constexpr,
    FP8: tl.constexpr,
    ONTO: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Expand tiles of one or two tokens; adds up the shrink's partial sums in a fixed order."""
    slot, start, length = load_tile(tiles_ptr, tl.program_id(1))
    token = start.to(tl.int64)
    if length == 0:
        grid_dependency_wait(PDL)
        return
    target, block, out_features, out_start = _target_of(
        tl.program_id(0), BLOCK_N, OUT_0, OUT_1, OUT_2, OUT_3, OUT_4, OUT_5, NUM_TARGETS
    )
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    rank = tl.load(meta + target * FIELDS + 2)
    if IN_PLACE and rank == 0:
        grid_dependency_wait(PDL)
        return
    launch_dependents(PDL)
    shrunk_start = 0
    for other in tl.static_range(NUM_TARGETS):
        if other < target:
            shrunk_start += tl.load(meta + other * FIELDS + 2)
    scale = tl.load(scales_ptr + slot * scale_stride + layer * NUM_ALL_TARGETS + FIRST + target)
    column = block * BLOCK_N
    columns = tl.arange(0, BLOCK_N)
    columns_ok = column + columns < out_features
    first_pool_row = tl.load(meta + target * FIELDS + 1)
    table_ptr = pages_ptr + slot * pages_stride
    h_ptr += token * h_stride + shrunk_start
    if FP8 > 0 and first_pool_row >= _FP8_ROWS:
        acc, second = _expand_columns(
            h_ptr, fp8_pool_ptr, out_ptr, table_ptr, first_pool_row - _FP8_ROWS, rank, length, column, out_features,
            h_stride, split_stride, KV_DIM, ROWS_PER_PAGE * FP8, SPLITS, MAX_SPLITS, SHARDS, BLOCK_R, BLOCK_N, TOKENS,
            PDL,
        )  # fmt: skip
    else:
        acc, second = _expand_columns(
            h_ptr, pool_ptr, out_ptr, table_ptr, first_pool_row, rank, length, column, out_features, h_stride,
            split_stride, KV_DIM, ROWS_PER_PAGE, SPLITS, MAX_SPLITS, SHARDS, BLOCK_R, BLOCK_N, TOKENS, PDL,
        )  # fmt: skip
    grid_dependency_wait(PDL)
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
def _place(rows, rank, shard_stride, SHARDS: tl.constexpr):
    """Return the offsets of a token's shrunk rows, of which each of ``SHARDS`` tensor-parallel ranks made ``rank``."""
    if SHARDS > 1:
        rows = (rows // rank) * shard_stride + rows % rank
    return rows


@triton.jit
def _expanded(b, h_ptrs, h_ok, out_ptr):
    """Multiply one token's shrunk activations, the totals of their partial sums, by ``b [rows, columns]`` float32."""
    partial = tl.load(h_ptrs, mask=h_ok, other=0.0)
    shrunk = tl.sum(partial, axis=0).to(out_ptr.dtype.element_ty).to(tl.float32)
    return tl.sum(b * shrunk[:, None], axis=0)


@triton.jit
def _expand_tile(
    h_ptr,
    pool_ptr,
    out_ptr,
    table_ptr,
    onto_ptr,
    first_pool_row,
    rank,
    scale,
    start,
    length,
    column,
    out_features,
    h_stride,
    shard_stride,
    out_stride,
    onto_stride,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SHARDS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONTO: tl.constexpr,
    PDL: tl.constexpr,
):
    """Expand ``BLOCK_N`` columns of one target for ``BLOCK_T`` tokens; the pointers are at the target's columns."""
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (start + tokens).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    columns_ok = column + columns < out_features
    pool_rows_per_row = (out_features + KV_DIM - 1) // KV_DIM
    first_pool_row += column // KV_DIM
    acc = tl.zeros((BLOCK_T, BLOCK_N), dtype=tl.float32)
    for r in range(0, rank * SHARDS, BLOCK_R):
        rows = r + tl.arange(0, BLOCK_R)
        rows_ok = rows < rank * SHARDS
        pool_row = first_pool_row + rows * pool_rows_per_row
        page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM + column % KV_DIM
        b = tl.load(
            pool_ptr + tl.multiple_of(place, BLOCK_N)[:, None] + columns[None, :], mask=rows_ok[:, None], other=0.0
        )
        grid_dependency_wait(PDL)
        places = _place(rows, rank, shard_stride, SHARDS)
        h = tl.load(
            h_ptr + tokens[:, None] * h_stride + places[None, :], mask=tokens_ok[:, None] & rows_ok[None, :], other=0.0
        )
        b = b.to(out_ptr.dtype.element_ty)
        acc = tl.dot(h.to(b.dtype), b, acc, input_precision="ieee")
    grid_dependency_wait(PDL)
    acc *= scale
    ok = tokens_ok[:, None] & columns_ok[None, :]
    if ONTO:
        onto_ptrs = onto_ptr + tokens[:, None] * onto_stride + column + columns[None, :]
        acc += tl.load(onto_ptrs, mask=ok, other=0.0).to(tl.float32)
    out_ptrs = out_ptr + tokens[:, None] * out_stride + column + columns[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _expand_tile_of(
    h_ptr,
    pool_ptr,
    out_ptr,
    table_ptr,
    onto_ptr,
    first_pool_row,
    rank,
    scale,
    start,
    length,
    column,
    out_features,
    h_stride,
    shard_stride,
    out_stride,
    onto_stride,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SHARDS: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ONTO: tl.constexpr,
    PDL: tl.constexpr,
):
    """Expand a tile by the larger product if it has more than ``SMALL`` tokens; ``LARGE`` or ``SMALL`` 0: none has."""
    if LARGE > 0:
        grid_dependency_wait(PDL)
    if LARGE > 0 and length > SMALL:
        _expand_tile(
            h_ptr, pool_ptr, out_ptr, table_ptr, onto_ptr, first_pool_row, rank, scale, start, length, column,
            out_features, h_stride, shard_stride, out_stride, onto_stride,
            KV_DIM, ROWS_PER_PAGE, SHARDS, LARGE, BLOCK_R, BLOCK_N, ONTO, False,
        )  # fmt: skip
    elif SMALL > 0:
        _expand_tile(
            h_ptr, pool_ptr, out_ptr, table_ptr, onto_ptr, first_pool_row, rank, scale, start, length, column,
            out_features, h_stride, shard_stride, out_stride, onto_stride,
            KV_DIM, ROWS_PER_PAGE, SHARDS, SMALL, BLOCK_R, BLOCK_N, ONTO, PDL,
        )  # fmt: skip


@triton.jit(do_not_specialize=["layer"])
def _expand_gemm_kernel(
    h_ptr,
    pool_ptr,
    fp8_pool_ptr,
    out_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    scales_ptr,
    onto_ptr,
    layer,
    h_stride,
    shard_stride,
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
    OUT_3: tl.constexpr,
    OUT_4: tl.constexpr,
    OUT_5: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    SHARDS: tl.constexpr,
    SMALL: tl.constexpr,
    LARGE: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
    FP8: tl.constexpr,
    ONTO: tl.constexpr,
    IN_PLACE: tl.constexpr,
    PDL: tl.constexpr,
):
    """Expand tiles of several tokens by matrix products.

    ``LARGE`` 0 omits the code for large tiles, ``SMALL`` 0 the code for small ones.
    """
    slot, start, length = load_tile(tiles_ptr, tl.program_id(1))
    if length == 0:
        grid_dependency_wait(PDL)
        return
    target, block, out_features, out_start = _target_of(
        tl.program_id(0), BLOCK_N, OUT_0, OUT_1, OUT_2, OUT_3, OUT_4, OUT_5, NUM_TARGETS
    )
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    rank = tl.load(meta + target * FIELDS + 2)
    if IN_PLACE and rank == 0:
        grid_dependency_wait(PDL)
        return
    launch_dependents(PDL)
    for other in tl.static_range(NUM_TARGETS):
        if other < target:
            h_ptr += tl.load(meta + other * FIELDS + 2)
    out_ptr += out_start
    onto_ptr += out_start
    scale = tl.load(scales_ptr + slot * scale_stride + layer * NUM_ALL_TARGETS + FIRST + target)
    first_pool_row = tl.load(meta + target * FIELDS + 1)
    table_ptr = pages_ptr + slot * pages_stride
    if FP8 > 0 and first_pool_row >= _FP8_ROWS:
        _expand_tile_of(
            h_ptr, fp8_pool_ptr, out_ptr, table_ptr, onto_ptr, first_pool_row - _FP8_ROWS, rank, scale, start, length,
            block * BLOCK_N, out_features, h_stride, shard_stride, out_stride, onto_stride,
            KV_DIM, ROWS_PER_PAGE * FP8, SHARDS, SMALL, LARGE, BLOCK_R, BLOCK_N, ONTO, PDL,
        )  # fmt: skip
    else:
        _expand_tile_of(
            h_ptr, pool_ptr, out_ptr, table_ptr, onto_ptr, first_pool_row, rank, scale, start, length,
            block * BLOCK_N, out_features, h_stride, shard_stride, out_stride, onto_stride,
            KV_DIM, ROWS_PER_PAGE, SHARDS, SMALL, LARGE, BLOCK_R, BLOCK_N, ONTO, PDL,
        )  # fmt: skip


def lora_expand(
    h: ShrinkBuffers,
    pool: torch.Tensor,
    out: torch.Tensor,
    tiles: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    kv_dim: int,
    shape: LoraShape,
    onto: torch.Tensor | None,
    exchanged: torch.Tensor | None = None,
) -> None:
    """Compute ``out[token] = onto + scale * B^T h[token]``, each target in its columns.

    The second product of LoRA, as Punica's SGMV expand (arXiv 2310.18547).

    ``h`` is the output of ``lora_shrink`` for the same ``tiles``, ``group`` and ``shape``. ``out [tokens,
    sum(out_features)]`` has the pool's dtype and contiguous rows; ``onto`` is ``out`` itself, a bias
    ``[sum(out_features)]``, or None for zero. Only rows of ``tiles`` are written; a tile of slot 0 gets ``onto`` alone.
    Sums are in float32. The other arguments are those of ``lora_shrink``. Raises ``ValueError`` for shapes that do not
    fit.

    ``exchanged [shards, tokens, rows]``, contiguous, replaces ``h`` under tensor parallelism: the shrunk activations of
    all ranks, each with its rows of A. B has as many rows as A on all ranks together, the first rank's first.
    """
    if not tiles.shape[0] or not shape.max_rank:
        return
    check_layout(out, pool, kv_dim, sum(group.out_features), "out")
    outs = (*group.out_features, *[0] * MOST_TARGETS)
    launch = EXPAND[shape.variant]
    block_n = block_columns(kv_dim, launch.columns)
    grid = (sum(triton.cdiv(features, block_n) for features in group.out_features), tiles.shape[0])
    shards = 1 if exchanged is None else exchanged.shape[0]
    onto_stride = out.stride(0) if onto is out else 0
    tables_of = (tables.pages, tables.modules, tables.scales, out if onto is None else onto, layer)
    pools = (pool, pool.view(FP8) if tables.fp8_rows else pool)
    strides = (
        out.stride(0), onto_stride, tables.pages.stride(0), tables.modules.stride(0), tables.scales.stride(0)
    )  # fmt: skip
    common = dict(
        LAYER_STRIDE=ALL_TARGETS * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_ALL_TARGETS=ALL_TARGETS,
        NUM_TARGETS=len(group.out_features),
        OUT_0=outs[0],
        OUT_1=outs[1],
        OUT_2=outs[2],
        OUT_3=outs[3],
        OUT_4=outs[4],
        OUT_5=outs[5],
        KV_DIM=kv_dim,
        ROWS_PER_PAGE=pool.shape[1] // kv_dim,
        SHARDS=shards,
        BLOCK_R=launch.rows,
        BLOCK_N=block_n,
        FP8=tables.fp8_rows,
        ONTO=onto is not None,
        IN_PLACE=onto is out,
        **launch.options(),
        **pdl_options(out),
    )
    if shape.variant in (KernelVariant.GEMV_1, KernelVariant.GEMV_2):
        splits = num_splits(group.in_features, SPLIT_K[shape.variant].most) if exchanged is None else 1
        partial = h.partial if exchanged is None else exchanged
        _expand_gemv_kernel[grid](
            partial, *pools, out, tiles, *tables_of, partial.stride(1), partial.stride(0), *strides,
            SPLITS=splits, MAX_SPLITS=triton.next_power_of_2(splits), TOKENS=int(shape.variant), **common,
        )  # fmt: skip
        return
    small, large = (shape.small_tile, LARGE_TILE) if shape.variant is KernelVariant.PREFILL else (SMALL_TILE, 0)
    total = h.total[None] if exchanged is None else exchanged
    shard_stride = total.stride(0) if shards > 1 else 0
    _expand_gemm_kernel[grid](
        total, *pools, out, tiles, *tables_of, total.stride(1), shard_stride, *strides, SMALL=small, LARGE=large,
        **common,
    )  # fmt: skip
