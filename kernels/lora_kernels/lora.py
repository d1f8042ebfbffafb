"""LoRA shrink and expand over pool pages, for any mix of adapters and ranks in one launch.

One launch serves all targets that share an input (q,k,v; gate,up). A launch covers token
tiles x blocks of rank rows (shrink) or of output columns (expand); a block beyond an
adapter's rank ends at once, so a rank-8 adapter beside a rank-64 one reads only its own
rows. There are no atomics and no zero-fill: every output element is written by one program,
in one order. Rows lie in chunks of ``kv_dim`` elements, ``page_elems / kv_dim`` to a page;
a block of columns never crosses a chunk, so one page lookup serves a row of a block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .tables import MODULE_FIELDS, TARGETS, Group, SlotTables

MAX_BLOCK_K = 256
MAX_BLOCK_N = 256


@triton.jit(do_not_specialize=["layer"])
def _shrink_kernel(
    x_ptr, pool_ptr, h_ptr, tiles_ptr, pages_ptr, modules_ptr,
    layer, x_stride, h_stride, pages_stride, slot_stride,
    LAYER_STRIDE: tl.constexpr, FIELDS: tl.constexpr, FIRST: tl.constexpr, NUM_TARGETS: tl.constexpr,
    IN: tl.constexpr, KV_DIM: tl.constexpr, PAGE_CHUNKS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):
    row_block = tl.program_id(0)
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    length = tl.load(tile + 2)
    if length == 0:
        return
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    num_rows = 0
    for target in tl.static_range(NUM_TARGETS):
        num_rows += tl.load(meta + target * FIELDS + 2)
    if row_block * BLOCK_R >= num_rows:
        return
    rows = row_block * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < num_rows
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = tl.load(tile + 1) + tokens
    ROW_CHUNKS: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    first_chunk = tl.load(meta) + rows * ROW_CHUNKS
    columns = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_R, BLOCK_T), dtype=tl.float32)
    for k in range(0, IN, BLOCK_K):
        chunk = first_chunk + k // KV_DIM
        page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + k % KV_DIM
        columns_ok = k + columns < IN
        a = tl.load(pool_ptr + place[:, None] + columns[None, :],
                    mask=rows_ok[:, None] & columns_ok[None, :], other=0.0)
        x = tl.load(x_ptr + tokens.to(tl.int64)[None, :] * x_stride + (k + columns)[:, None],
                    mask=tokens_ok[None, :] & columns_ok[:, None], other=0.0)
        acc = tl.dot(a, x, acc, input_precision="ieee")
    tl.store(h_ptr + tokens.to(tl.int64)[None, :] * h_stride + rows[:, None], acc.to(h_ptr.dtype.element_ty),
             mask=rows_ok[:, None] & tokens_ok[None, :])


@triton.jit(do_not_specialize=["layer"])
def _expand_kernel(
    h_ptr, pool_ptr, out_ptr, tiles_ptr, pages_ptr, modules_ptr, scales_ptr,
    layer, h_stride, out_stride, pages_stride, slot_stride, scale_stride,
    LAYER_STRIDE: tl.constexpr, FIELDS: tl.constexpr, FIRST: tl.constexpr, NUM_ALL_TARGETS: tl.constexpr,
    NUM_TARGETS: tl.constexpr, OUT_0: tl.constexpr, OUT_1: tl.constexpr, OUT_2: tl.constexpr,
    KV_DIM: tl.constexpr, PAGE_CHUNKS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_N: tl.constexpr,
):
    tile = tiles_ptr + tl.program_id(1) * 3
    slot = tl.load(tile)
    length = tl.load(tile + 2)
    if length == 0:
        return
    # Which target this block of columns belongs to.
    BLOCKS_0: tl.constexpr = (OUT_0 + BLOCK_N - 1) // BLOCK_N
    BLOCKS_1: tl.constexpr = (OUT_1 + BLOCK_N - 1) // BLOCK_N
    block = tl.program_id(0)
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
    meta = modules_ptr + slot * slot_stride + layer * LAYER_STRIDE + FIRST * FIELDS
    rank = tl.load(meta + target * FIELDS + 2)
    if rank == 0:
        return
    shrunk_start = 0
    for other in tl.static_range(NUM_TARGETS):
        if other < target:
            shrunk_start += tl.load(meta + other * FIELDS + 2)
    scale = tl.load(scales_ptr + slot * scale_stride + layer * NUM_ALL_TARGETS + FIRST + target)
    tokens = tl.arange(0, BLOCK_T)
    tokens_ok = tokens < length
    tokens = (tl.load(tile + 1) + tokens).to(tl.int64)
    column = block * BLOCK_N
    columns = tl.arange(0, BLOCK_N)
    columns_ok = column + columns < out_features
    row_chunks = (out_features + KV_DIM - 1) // KV_DIM
    first_chunk = tl.load(meta + target * FIELDS + 1) + column // KV_DIM
    acc = tl.zeros((BLOCK_T, BLOCK_N), dtype=tl.float32)
    for r in range(0, rank, BLOCK_R):
        rows = r + tl.arange(0, BLOCK_R)
        rows_ok = rows < rank
        chunk = first_chunk + rows * row_chunks
        page = tl.load(pages_ptr + slot * pages_stride + chunk // PAGE_CHUNKS, mask=rows_ok, other=0)
        place = page.to(tl.int64) * (PAGE_CHUNKS * KV_DIM) + (chunk % PAGE_CHUNKS) * KV_DIM + column % KV_DIM
        b = tl.load(pool_ptr + place[:, None] + columns[None, :],
                    mask=rows_ok[:, None] & columns_ok[None, :], other=0.0)
        h = tl.load(h_ptr + tokens[:, None] * h_stride + shrunk_start + rows[None, :],
                    mask=tokens_ok[:, None] & rows_ok[None, :], other=0.0)
        acc = tl.dot(h, b, acc, input_precision="ieee")
    out_ptrs = out_ptr + tokens[:, None] * out_stride + out_start + column + columns[None, :]
    out_ok = tokens_ok[:, None] & columns_ok[None, :]
    base = tl.load(out_ptrs, mask=out_ok, other=0.0)
    tl.store(out_ptrs, (base.to(tl.float32) + acc * scale).to(out_ptr.dtype.element_ty), mask=out_ok)


def lora_shrink(
    x: torch.Tensor, pool: torch.Tensor, h: torch.Tensor, tiles: torch.Tensor, tables: SlotTables, layer: int,
    group: Group, kv_dim: int, *, block_tokens: int, max_rows: int,
) -> None:
    """``h[token, row] = A[row] . x[token]`` for every row of the group's targets, of each token's adapter.

    ``x [tokens, in_features]``; ``pool [num_pages, page_elems]`` of this layer; ``h [tokens, >= max_rows]`` in
    ``x``'s dtype: only the columns below the adapter's total rank are written. ``tiles [n, 3]`` int32 from
    ``token_tiles`` with ``block_tokens``. ``max_rows`` bounds the total rank of the group's targets over the
    adapters in the batch. Raises ``ValueError`` for shapes that do not fit.
    """
    if not tiles.shape[0] or not max_rows:
        return
    _check(x, pool, kv_dim, group.in_features, "x")
    if h.shape[1] < max_rows or h.shape[0] < x.shape[0] or h.stride(1) != 1:
        raise ValueError(f"h is {tuple(h.shape)}, but needs [{x.shape[0]}, {max_rows}] with contiguous rows")
    block_r = 16 if max_rows <= 16 or block_tokens <= 16 else 32
    grid = (triton.cdiv(max_rows, block_r), tiles.shape[0])
    _shrink_kernel[grid](
        x, pool, h, tiles, tables.pages, tables.modules,
        layer, x.stride(0), h.stride(0), tables.pages.stride(0), tables.modules.stride(0),
        LAYER_STRIDE=len(TARGETS) * MODULE_FIELDS, FIELDS=MODULE_FIELDS, FIRST=group.first_target,
        NUM_TARGETS=len(group.out_features), IN=group.in_features, KV_DIM=kv_dim, PAGE_CHUNKS=pool.shape[1] // kv_dim,
        BLOCK_T=block_tokens, BLOCK_R=block_r, BLOCK_K=_block(kv_dim, MAX_BLOCK_K if block_tokens <= 16 else 128),
        num_warps=4, num_stages=4 if block_tokens <= 16 else 3,
    )


def lora_expand(
    h: torch.Tensor, pool: torch.Tensor, out: torch.Tensor, tiles: torch.Tensor, tables: SlotTables, layer: int,
    group: Group, kv_dim: int, *, block_tokens: int,
) -> None:
    """``out[token] += scale * B^T h[token]`` in place, each target in its own columns.

    ``out [tokens, sum(out_features)]``; the rest as for ``lora_shrink``. Raises ``ValueError`` for shapes that do
    not fit.
    """
    if not tiles.shape[0]:
        return
    _check(out, pool, kv_dim, sum(group.out_features), "out")
    block_n = _block(kv_dim, MAX_BLOCK_N if block_tokens <= 16 else 128)
    outs = (*group.out_features, 0, 0)[:3]
    grid = (sum(triton.cdiv(features, block_n) for features in group.out_features), tiles.shape[0])
    _expand_kernel[grid](
        h, pool, out, tiles, tables.pages, tables.modules, tables.scales,
        layer, h.stride(0), out.stride(0), tables.pages.stride(0), tables.modules.stride(0), tables.scales.stride(0),
        LAYER_STRIDE=len(TARGETS) * MODULE_FIELDS, FIELDS=MODULE_FIELDS, FIRST=group.first_target,
        NUM_ALL_TARGETS=len(TARGETS), NUM_TARGETS=len(group.out_features), OUT_0=outs[0], OUT_1=outs[1], OUT_2=outs[2],
        KV_DIM=kv_dim, PAGE_CHUNKS=pool.shape[1] // kv_dim,
        BLOCK_T=block_tokens, BLOCK_R=16, BLOCK_N=block_n, num_warps=4, num_stages=3,
    )


def _check(x: torch.Tensor, pool: torch.Tensor, kv_dim: int, features: int, name: str) -> None:
    if x.shape[1] != features or x.stride(1) != 1:
        raise ValueError(f"{name} is {tuple(x.shape)} with strides {x.stride()}, but needs contiguous rows of {features}")
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
