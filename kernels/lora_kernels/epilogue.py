"""The epilogue of a LoRA product, for DoRA and biases: ``out = out + factor * out + offset``, in place.

A launch covers the tiles of a LoRA launch x the blocks of output columns. Programs of rows without such vectors end at
once; a batch without any such adapter has no launch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .expand import _target_of
from .kernel_variants import block_columns, check_layout
from .tables import ALL_TARGETS, MODULE_FIELDS, MOST_TARGETS, Group, SlotTables
from .work_items import load_tile

# Maximum number of output columns in a program's block.
_COLUMNS = 256


@triton.jit(do_not_specialize=["layer"])
def _epilogue_kernel(
    out_ptr,
    pool_ptr,
    tiles_ptr,
    pages_ptr,
    modules_ptr,
    layer,
    out_stride,
    pages_stride,
    slot_stride,
    LAYER_STRIDE: tl.constexpr,
    FIELDS: tl.constexpr,
    FIRST: tl.constexpr,
    NUM_TARGETS: tl.constexpr,
    OUT_0: tl.constexpr,
    OUT_1: tl.constexpr,
    OUT_2: tl.constexpr,
    OUT_3: tl.constexpr,
    OUT_4: tl.constexpr,
    OUT_5: tl.constexpr,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    slot, start, length = load_tile(tiles_ptr, tl.program_id(1))
    if length == 0:
        return
    target, block, out_features, out_start = _target_of(
        tl.program_id(0), BLOCK_N, OUT_0, OUT_1, OUT_2, OUT_3, OUT_4, OUT_5, NUM_TARGETS
    )
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + (FIRST + target) * FIELDS
    factor_row = tl.load(meta + 3) - 1
    offset_row = tl.load(meta + 4) - 1
    if (factor_row < 0) & (offset_row < 0):
        return
    column = block * BLOCK_N
    columns = tl.arange(0, BLOCK_N)
    ok = column + columns < out_features
    table_ptr = pages_ptr + slot * pages_stride
    factor = _vector(pool_ptr, table_ptr, factor_row, column, columns, ok, KV_DIM, ROWS_PER_PAGE)
    offset = _vector(pool_ptr, table_ptr, offset_row, column, columns, ok, KV_DIM, ROWS_PER_PAGE)
    out_ptr += start.to(tl.int64) * out_stride + out_start + column + columns
    for row in range(length):
        ptrs = out_ptr + row * out_stride
        y = tl.load(ptrs, mask=ok, other=0.0).to(tl.float32)
        tl.store(ptrs, (y + factor * y + offset).to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _vector(
    pool_ptr,
    table_ptr,
    first_pool_row,
    column,
    columns,
    ok,
    KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr,
):
    """Load columns of a vector that starts on a pool row; zeros if there is no vector (-1)."""
    pool_row = tl.maximum(first_pool_row, 0) + column // KV_DIM
    there = first_pool_row >= 0
    page = tl.load(table_ptr + pool_row // ROWS_PER_PAGE, mask=there, other=0)
    place = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM + column % KV_DIM
    return tl.load(pool_ptr + place + columns, mask=ok & there, other=0.0).to(tl.float32)


def lora_epilogue(
    out: torch.Tensor,
    pool: torch.Tensor,
    tiles: torch.Tensor,
    tables: SlotTables,
    layer: int,
    group: Group,
    kv_dim: int,
) -> None:
    """Compute ``out[token] += factor * out[token] + offset`` with the vectors of each token's adapter, per target.

    The arguments are those of ``lora_expand``; ``tiles`` may be of any variant. A token's result does not depend on its
    tile.
    """
    if not tiles.shape[0]:
        return
    check_layout(out, pool, kv_dim, sum(group.out_features), "out")
    outs = (*group.out_features, *[0] * MOST_TARGETS)
    block_n = block_columns(kv_dim, _COLUMNS)
    grid = (sum(triton.cdiv(features, block_n) for features in group.out_features), tiles.shape[0])
    _epilogue_kernel[grid](
        out, pool, tiles, tables.pages, tables.modules, layer,
        out.stride(0), tables.pages.stride(0), tables.modules.stride(0),
        LAYER_STRIDE=ALL_TARGETS * MODULE_FIELDS,
        FIELDS=MODULE_FIELDS,
        FIRST=group.first_target,
        NUM_TARGETS=len(group.out_features),
        OUT_0=outs[0],
        OUT_1=outs[1],
        OUT_2=outs[2],
        OUT_3=outs[3],
        OUT_4=outs[4],
        OUT_5=outs[5],
        KV_DIM=kv_dim,
        ROWS_PER_PAGE=pool.shape[1] // kv_dim,
        BLOCK_N=block_n,
        num_warps=2,
    )  # fmt: skip
