"""Products of FP8 matrices with few tokens on Hopper GPUs: the fast form of `fp8.fp8_linear`, in Gluon.

A warp copies tiles of weights and activations into shared memory with the copy engine (TMA), and a warpgroup
multiplies. The weights of the first tiles are copied while the kernel before is still running: most of what such a
product takes is reading them. Tiles of 128 outputs by two warpgroups were not faster. Triton's interpreter cannot run
Gluon.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
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

from .fp8_tensors import Fp8Matrix, Fp8Rows
from .split_sums import split_buffers

# Inputs of a panel: 128 bytes, the width of the swizzle of shared memory.
_PANEL = 128
# Panels of a tile. Tensor cores add up FP8 products with 14 bits, so that sums of more inputs are added up outside of
# them. With one panel, the warps of a tile would wait for each other longer than they multiply.
_PANELS = 2
# The name of the barrier of a partition's threads changed with Triton 3.7.
_barrier = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
# Outputs that a tile computes.
_ROWS = 64
# Programs up to which a product is split: one for each of the 132 multiprocessors of an H100 or H200.
_PROGRAMS = 132
# Tokens up to which the kernel is faster than cuBLAS, and up to which it is for matrices with at most one tile for each
# multiprocessor. More tokens do not fit into a tile.
_FEW_TOKENS, _MOST_TOKENS = 64, 128
# Inputs from which on a sum is split: adding up its parts takes 3 us.
_LONG_SUM = 12_000
# Bytes of shared memory for the tiles of all programs of a multiprocessor.
_SHARED = 208 * 1024
# Registers of a thread that copies.
_COPY_REGISTERS = 24


class Fp8Tiles(NamedTuple):
    """The shape of a launch: tokens of a tile, programs per sum, and tiles in flight."""

    block_m: int
    splits: int
    stages: int


def takes(tokens: int, outputs: int) -> bool:
    """Return whether this kernel is the fastest for a product (measured on an H200)."""
    return tokens <= _FEW_TOKENS or (tokens <= _MOST_TOKENS and triton.cdiv(outputs, _ROWS) <= _PROGRAMS)


def tiles_of(tokens: int, outputs: int, inputs: int) -> Fp8Tiles:
    """Return the tiles of a product, one of those that the kernel ``takes``."""
    block_m = next(size for size in (16, 32, 64, _MOST_TOKENS) if tokens <= size)
    programs = triton.cdiv(outputs, _ROWS)
    splits = 2 if inputs >= _LONG_SUM and 2 * programs <= _PROGRAMS else 1
    pairs = programs > _PROGRAMS and _last_round(programs, 2 * _PROGRAMS) >= _last_round(programs, _PROGRAMS)
    return fitting(block_m, splits, inputs, _SHARED // 2 if pairs else _SHARED)


def _last_round(programs: int, places: int) -> float:
    """Return the share of the time in which all places for programs are taken, if all programs take as long."""
    return programs / (-(-programs // places) * places)


def fitting(block_m: int, splits: int, inputs: int, shared: int) -> Fp8Tiles:
    """Return tiles without empty splits, with as many in flight as ``shared`` bytes hold."""
    steps = triton.cdiv(inputs, _PANELS * _PANEL)
    splits = triton.cdiv(steps, triton.cdiv(steps, splits))
    return Fp8Tiles(block_m, splits, shared // ((_ROWS + block_m) * _PANELS * _PANEL))


@gluon.jit
def _wait_for_kernel_before(PDL: gl.constexpr):
    if PDL:
        gl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def _copy_weights(w_descriptor, w_tiles, full, stage, first_n, k, BYTES: gl.constexpr, PANELS: gl.constexpr):
    PANEL: gl.constexpr = w_descriptor.block_shape[1]
    mbarrier.expect(full.index(stage), BYTES)
    for panel in gl.static_range(PANELS):
        tma.async_copy_global_to_shared(
            w_descriptor,
            [first_n, k + panel * PANEL],
            full.index(stage),
            w_tiles.index(stage * PANELS + panel),
        )


@gluon.jit
def _copy_activations(x_descriptor, x_tiles, full, stage, first_m, k, PANELS: gl.constexpr):
    PANEL: gl.constexpr = x_descriptor.block_shape[1]
    for panel in gl.static_range(PANELS):
        tma.async_copy_global_to_shared(
            x_descriptor,
            [first_m, k + panel * PANEL],
            full.index(stage),
            x_tiles.index(stage * PANELS + panel),
        )


@gluon.jit
def _copy(
    w_descriptor, x_descriptor, w_tiles, x_tiles, full, empty, first_n, first_m, first_k, count,
    PANELS: gl.constexpr, STAGES: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """Copy a program's tiles; the weights of the first ones before the kernel that computes ``x`` has ended."""
    BLOCK_K: gl.constexpr = PANELS * w_descriptor.block_shape[1]
    BYTES: gl.constexpr = PANELS * (w_descriptor.block_type.nbytes + x_descriptor.block_type.nbytes)
    early = gl.minimum(count, STAGES)
    for step in range(early):
        _copy_weights(w_descriptor, w_tiles, full, step, first_n, first_k + step * BLOCK_K, BYTES, PANELS)
    _wait_for_kernel_before(PDL)
    for step in range(early):
        _copy_activations(x_descriptor, x_tiles, full, step, first_m, first_k + step * BLOCK_K, PANELS)
    for step in range(STAGES, count):
        stage = step % STAGES
        k = first_k + step * BLOCK_K
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        _copy_weights(w_descriptor, w_tiles, full, stage, first_n, k, BYTES, PANELS)
        _copy_activations(x_descriptor, x_tiles, full, stage, first_m, k, PANELS)


@gluon.jit
def _begin_product(
    w_tiles, x_tiles, full, step, PANELS: gl.constexpr, STAGES: gl.constexpr, LAYOUT: gl.constexpr
):  # fmt: skip
    """Begin to multiply a tile, once it is in shared memory."""
    ROWS: gl.constexpr = w_tiles.shape[1]
    BLOCK_M: gl.constexpr = x_tiles.shape[1]
    stage = step % STAGES
    product = gl.zeros([ROWS, BLOCK_M], gl.float32, LAYOUT)
    mbarrier.wait(full.index(stage), step // STAGES & 1)
    for panel in gl.static_range(PANELS):
        product = warpgroup_mma(
            w_tiles.index(stage * PANELS + panel),
            x_tiles.index(stage * PANELS + panel).permute((1, 0)),
            product,
            use_acc=panel > 0,
            is_async=True,
        )
    return product


@gluon.jit
def _store_output(
    acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO: gl.constexpr,
):  # fmt: skip
    ok = (n < N)[:, None] & (m < tokens)[None, :]
    rows = m.to(gl.int64)[None, :]
    if HAS_ONTO:
        acc += gl.load(onto_ptr + rows * onto_stride + n[:, None], mask=ok, other=0.0).to(gl.float32)
    gl.store(out_ptr + rows * out_stride + n[:, None], acc.to(out_ptr.dtype.element_ty), mask=ok)


@gluon.jit
def _multiply(
    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty, N, tokens,
    onto_stride, out_stride, tile, first_n, first_m, split, count,
    BLOCK_M: gl.constexpr, PANELS: gl.constexpr, SPLITS: gl.constexpr,
    STAGES: gl.constexpr, HAS_ONTO: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """Compute a tile; of a split sum, the last program to arrive adds up the parts in their order."""
    ROWS: gl.constexpr = w_tiles.shape[1]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 32])
    inside_n = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    inside_m = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, LAYOUT))
    n, m = first_n + inside_n, first_m + inside_m
    w_scale = gl.load(w_scale_ptr + n, mask=n < N, other=0.0)
    acc = gl.zeros([ROWS, BLOCK_M], gl.float32, LAYOUT)
    _wait_for_kernel_before(PDL)
    x_scale = gl.load(x_scale_ptr + m, mask=m < tokens, other=0.0)
    for pair in range(count // 2):  # the second product of a pair runs while the first one is added
        a = _begin_product(w_tiles, x_tiles, full, 2 * pair, PANELS, STAGES, LAYOUT)
        b = _begin_product(w_tiles, x_tiles, full, 2 * pair + 1, PANELS, STAGES, LAYOUT)
        a = warpgroup_mma_wait(1, deps=(a,))
        mbarrier.arrive(empty.index(2 * pair % STAGES), count=1)
        acc += a
        b = warpgroup_mma_wait(0, deps=(b,))
        mbarrier.arrive(empty.index((2 * pair + 1) % STAGES), count=1)
        acc += b
    if count % 2 == 1:
        a = _begin_product(w_tiles, x_tiles, full, count - 1, PANELS, STAGES, LAYOUT)
        acc += warpgroup_mma_wait(0, deps=(a,))
    acc = acc * w_scale[:, None] * x_scale[None, :]
    if SPLITS > 1:
        inside = inside_n[:, None] * BLOCK_M + inside_m[None, :]
        parts = parts_ptr + tile.to(gl.int64) * (SPLITS * ROWS * BLOCK_M) + inside
        gl.store(parts + split * (ROWS * BLOCK_M), acc)
        _barrier()  # all threads must have written their parts before one of them signals it
        if gl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == SPLITS - 1:
            acc = gl.zeros([ROWS, BLOCK_M], gl.float32, LAYOUT)
            for part in gl.static_range(SPLITS):
                acc += gl.load(parts + part * (ROWS * BLOCK_M), cache_modifier=".cg")
            gl.store(arrived_ptr + tile, 0)  # for the next product
            _store_output(acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO)
    else:
        _store_output(acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO)


@gluon.jit(do_not_specialize=["tokens"])
def _hopper_fp8_kernel(
    w_descriptor,
    x_descriptor,
    x_scale_ptr,
    w_scale_ptr,
    onto_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    N,
    K,
    tokens,
    onto_stride,
    out_stride,
    PANELS: gl.constexpr,
    SPLITS: gl.constexpr,
    STAGES: gl.constexpr,
    HAS_ONTO: gl.constexpr,
    COPY_REGISTERS: gl.constexpr,
    PDL: gl.constexpr,
):
    if PDL:
        gl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )
    ROWS: gl.constexpr = w_descriptor.block_shape[0]
    PANEL: gl.constexpr = w_descriptor.block_shape[1]
    BLOCK_K: gl.constexpr = PANELS * PANEL
    BLOCK_M: gl.constexpr = x_descriptor.block_shape[0]
    DTYPE: gl.constexpr = w_descriptor.dtype
    steps = gl.cdiv(K, BLOCK_K)
    share = gl.cdiv(steps, SPLITS)
    split = gl.program_id(2)
    tile = gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
    first_n = gl.program_id(0) * ROWS
    first_m = gl.program_id(1) * BLOCK_M
    first = split * share
    count = gl.minimum(first + share, steps) - first
    w_tiles = gl.allocate_shared_memory(DTYPE, [STAGES * PANELS, ROWS, PANEL], w_descriptor.layout)
    x_tiles = gl.allocate_shared_memory(DTYPE, [STAGES * PANELS, BLOCK_M, PANEL], x_descriptor.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _multiply,
                (
                    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty,
                    N, tokens, onto_stride, out_stride, tile, first_n, first_m, split, count, BLOCK_M, PANELS, SPLITS,
                    STAGES, HAS_ONTO, PDL,
                ),
            ),
            (
                _copy,
                (
                    w_descriptor, x_descriptor, w_tiles, x_tiles, full, empty, first_n, first_m, first * BLOCK_K, count,
                    PANELS, STAGES, PDL,
                ),
            ),
        ],
        [1],
        [COPY_REGISTERS],
    )  # fmt: skip


def hopper_fp8_linear(
    x: Fp8Rows, weight: Fp8Matrix, onto: torch.Tensor | None, out: torch.Tensor, tiles: Fp8Tiles, pdl: dict[str, bool]
) -> None:
    """Compute ``out = x times weight + onto`` as `fp8.fp8_linear` does, for a matrix with scales by output."""
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    grid = (triton.cdiv(outputs, _ROWS), triton.cdiv(tokens, tiles.block_m), tiles.splits)
    parts, arrived = split_buffers(x.scale, grid[0] * grid[1], tiles.splits, _ROWS * tiles.block_m)
    registers = min(240, max(88, 64 + 3 * tiles.block_m // 2))
    # Registers of all threads before they are distributed: no more, so that other kernels' programs fit beside.
    maxnreg = -(-(registers + _COPY_REGISTERS) // 2 // 8) * 8
    swizzled = gl.NVMMASharedLayout(128, 8, rank=2)
    _hopper_fp8_kernel[grid](
        TensorDescriptor(weight.data, [outputs, inputs], [inputs, 1], [_ROWS, _PANEL], swizzled),
        TensorDescriptor(x.data, [tokens, inputs], [inputs, 1], [tiles.block_m, _PANEL], swizzled),
        x.scale,
        weight.scale,
        x.scale if onto is None else onto,
        out,
        parts,
        arrived,
        outputs,
        inputs,
        tokens,
        0 if onto is None or onto.dim() == 1 else onto.stride(0),
        out.stride(0),
        PANELS=_PANELS,
        SPLITS=tiles.splits,
        STAGES=tiles.stages,
        HAS_ONTO=onto is not None,
        COPY_REGISTERS=_COPY_REGISTERS,
        num_warps=4,
        maxnreg=maxnreg,
        **pdl,
    )
