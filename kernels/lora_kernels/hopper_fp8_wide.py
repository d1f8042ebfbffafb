"""Products of FP8 matrices with 129 to 192 tokens on Hopper GPUs, in Gluon, beside `hopper_fp8` for fewer.

cuBLAS's tiles have 128 or 256 tokens, so it computes 192 tokens as 256. Here each of three warpgroups multiplies 64
tokens by a tile of weights that all three share. Tensor cores add up the whole sum with 14 bits, as cuBLAS does for
`fp8.fp8_linear`. Triton's interpreter cannot run Gluon.
"""

from __future__ import annotations

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
from .hopper_fp8 import _barrier, _wait_for_kernel_before
from .split_sums import split_buffers

# Inputs of a tile: 128 bytes, the width of the swizzle of shared memory.
_PANEL = 128
# Tokens of a warpgroup, outputs of a tile, and tiles in flight, which fill the shared memory.
_ROWS, _COLUMNS, _STAGES = 64, 128, 5
# Tokens for which the kernel is meant: more than `hopper_fp8` takes, and as many as three warpgroups multiply.
_FEWEST_TOKENS, _MOST_TOKENS = 129, 3 * _ROWS
# Elements that its matrices have at least: those of a layer of Llama-3.1-70B on one of two GPUs have as many, and take
# 8 us less together than by cuBLAS (docs/LOG.md). Smaller ones were not measured.
_LEAST_ELEMENTS = 32 << 20
# Programs up to which a sum is split: one for each of the 132 multiprocessors of an H100 or H200.
_PROGRAMS = 132
# Inputs that a part of a split sum has at least, and number of its parts at most.
_PART_INPUTS, _MOST_SPLITS = 1024, 3
# Registers of a thread before they are distributed, and then of one that multiplies and one that copies.
_LAUNCH_REGISTERS, _REGISTERS, _COPY_REGISTERS = 128, 160, 24


def takes_wide(tokens: int, outputs: int, inputs: int) -> bool:
    """Return whether this kernel is the fastest for a product (measured on H200s)."""
    return _FEWEST_TOKENS <= tokens <= _MOST_TOKENS and outputs * inputs >= _LEAST_ELEMENTS


def splits_of(outputs: int, inputs: int) -> int:
    """Return the number of parts of a product's sums."""
    tiles = triton.cdiv(outputs, _COLUMNS)
    splits = max(1, min(_PROGRAMS // tiles, inputs // _PART_INPUTS, _MOST_SPLITS))
    steps = triton.cdiv(inputs, _PANEL)
    return int(triton.cdiv(steps, triton.cdiv(steps, splits)))  # no part is empty


@gluon.jit
def _copy_activations(x_descriptor, x_tiles, full, stage, k):
    ROWS: gl.constexpr = x_descriptor.block_shape[0]
    for group in gl.static_range(3):
        tma.async_copy_global_to_shared(
            x_descriptor, [group * ROWS, k], full.index(stage), x_tiles.index(stage * 3 + group)
        )


@gluon.jit
def _copy(
    w_descriptor, x_descriptor, w_tiles, x_tiles, full, empty, first_n, first_k, count, STAGES: gl.constexpr,
    PDL: gl.constexpr,
):  # fmt: skip
    """Copy a program's tiles; the weights of the first ones before the kernel that computes ``x`` has ended."""
    PANEL: gl.constexpr = w_descriptor.block_shape[1]
    BYTES: gl.constexpr = w_descriptor.block_type.nbytes + 3 * x_descriptor.block_type.nbytes
    early = gl.minimum(count, STAGES)
    for step in range(early):
        mbarrier.expect(full.index(step), BYTES)
        tma.async_copy_global_to_shared(
            w_descriptor, [first_n, first_k + step * PANEL], full.index(step), w_tiles.index(step)
        )
    _wait_for_kernel_before(PDL)
    for step in range(early):
        _copy_activations(x_descriptor, x_tiles, full, step, first_k + step * PANEL)
    for step in range(STAGES, count):
        stage = step % STAGES
        k = first_k + step * PANEL
        mbarrier.wait(empty.index(stage), (step // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(stage), BYTES)
        tma.async_copy_global_to_shared(w_descriptor, [first_n, k], full.index(stage), w_tiles.index(stage))
        _copy_activations(x_descriptor, x_tiles, full, stage, k)


@gluon.jit
def _store_output(
    acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO: gl.constexpr,
):  # fmt: skip
    ok = (m < tokens)[:, None] & (n < N)[None, :]
    rows = m.to(gl.int64)[:, None]
    if HAS_ONTO:
        acc += gl.load(onto_ptr + rows * onto_stride + n[None, :], mask=ok, other=0.0).to(gl.float32)
    gl.store(out_ptr + rows * out_stride + n[None, :], acc.to(out_ptr.dtype.element_ty), mask=ok)


@gluon.jit
def _multiply(
    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty, N, tokens,
    onto_stride, out_stride, tile, first_n, split, count,
    SPLITS: gl.constexpr, STAGES: gl.constexpr, HAS_ONTO: gl.constexpr, PDL: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Compute a warpgroup's tokens of a tile; of a split sum, the last program to arrive adds up the parts in order."""
    ROWS: gl.constexpr = x_tiles.shape[1]
    COLUMNS: gl.constexpr = w_tiles.shape[1]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 32])
    inside_m = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    inside_n = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    n, m = first_n + inside_n, GROUP * ROWS + inside_m
    acc = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
    for step in range(count):  # a tile's memory is free once the product behind it has begun
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        acc = warpgroup_mma(
            x_tiles.index(stage * 3 + GROUP), w_tiles.index(stage).permute((1, 0)), acc, use_acc=step > 0, is_async=True
        )
        acc = warpgroup_mma_wait(1, deps=(acc,))
        if step > 0:
            mbarrier.arrive(empty.index((step - 1) % STAGES), count=1)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    w_scale = gl.load(w_scale_ptr + n, mask=n < N, other=0.0)
    _wait_for_kernel_before(PDL)
    x_scale = gl.load(x_scale_ptr + m, mask=m < tokens, other=0.0)
    acc = acc * x_scale[:, None] * w_scale[None, :]
    if SPLITS > 1:
        inside = inside_m[:, None] * COLUMNS + inside_n[None, :]
        of_group = tile * 3 + GROUP
        parts = parts_ptr + of_group.to(gl.int64) * (SPLITS * ROWS * COLUMNS) + inside
        gl.store(parts + split * (ROWS * COLUMNS), acc)
        _barrier()  # all threads must have written their parts before one of them signals it
        if gl.atomic_add(arrived_ptr + of_group, 1, sem="acq_rel") == SPLITS - 1:
            acc = gl.zeros([ROWS, COLUMNS], gl.float32, LAYOUT)
            for part in range(SPLITS):  # not unrolled: registers have no room for all parts
                acc += gl.load(parts + part * (ROWS * COLUMNS), cache_modifier=".cg")
            gl.store(arrived_ptr + of_group, 0)  # for the next product
            _store_output(acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO)
    else:
        _store_output(acc, onto_ptr, out_ptr, n, m, N, tokens, onto_stride, out_stride, HAS_ONTO)


@gluon.jit(do_not_specialize=["tokens"])
def _hopper_fp8_wide_kernel(
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
    SPLITS: gl.constexpr,
    STAGES: gl.constexpr,
    HAS_ONTO: gl.constexpr,
    REGISTERS: gl.constexpr,
    COPY_REGISTERS: gl.constexpr,
    PDL: gl.constexpr,
):
    if PDL:
        gl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // dummy $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
        )
    COLUMNS: gl.constexpr = w_descriptor.block_shape[0]
    PANEL: gl.constexpr = w_descriptor.block_shape[1]
    ROWS: gl.constexpr = x_descriptor.block_shape[0]
    DTYPE: gl.constexpr = w_descriptor.dtype
    steps = gl.cdiv(K, PANEL)
    share = gl.cdiv(steps, SPLITS)
    tile, split = gl.program_id(0), gl.program_id(1)
    first_n = tile * COLUMNS
    first = split * share
    count = gl.minimum(first + share, steps) - first
    w_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, COLUMNS, PANEL], w_descriptor.layout)
    x_tiles = gl.allocate_shared_memory(DTYPE, [STAGES * 3, ROWS, PANEL], x_descriptor.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=3)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                _multiply,
                (
                    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty,
                    N, tokens, onto_stride, out_stride, tile, first_n, split, count, SPLITS, STAGES, HAS_ONTO, PDL, 0,
                ),
            ),
            (
                _multiply,
                (
                    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty,
                    N, tokens, onto_stride, out_stride, tile, first_n, split, count, SPLITS, STAGES, HAS_ONTO, PDL, 1,
                ),
            ),
            (
                _multiply,
                (
                    x_scale_ptr, w_scale_ptr, onto_ptr, out_ptr, parts_ptr, arrived_ptr, w_tiles, x_tiles, full, empty,
                    N, tokens, onto_stride, out_stride, tile, first_n, split, count, SPLITS, STAGES, HAS_ONTO, PDL, 2,
                ),
            ),
            (
                _copy,
                (w_descriptor, x_descriptor, w_tiles, x_tiles, full, empty, first_n, first * PANEL, count, STAGES, PDL),
            ),
        ],
        [4, 4, 1],
        [REGISTERS, REGISTERS, COPY_REGISTERS],
    )  # fmt: skip


def hopper_fp8_wide_linear(
    x: Fp8Rows, weight: Fp8Matrix, onto: torch.Tensor | None, out: torch.Tensor, splits: int, pdl: dict[str, bool]
) -> None:
    """Compute ``out = x times weight + onto`` as `fp8.fp8_linear` does, for a matrix with scales by output.

    Raises ``ValueError`` for more tokens than fit into a tile.
    """
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    if tokens > _MOST_TOKENS:
        raise ValueError(f"x has {tokens} tokens, but a tile has at most {_MOST_TOKENS}")
    grid = (triton.cdiv(outputs, _COLUMNS), splits)
    parts, arrived = split_buffers(x.scale, 3 * grid[0], splits, _ROWS * _COLUMNS)
    swizzled = gl.NVMMASharedLayout(128, 8, rank=2)
    _hopper_fp8_wide_kernel[grid](
        TensorDescriptor(weight.data, [outputs, inputs], [inputs, 1], [_COLUMNS, _PANEL], swizzled),
        TensorDescriptor(x.data, [tokens, inputs], [inputs, 1], [_ROWS, _PANEL], swizzled),
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
        SPLITS=splits,
        STAGES=_STAGES,
        HAS_ONTO=onto is not None,
        REGISTERS=_REGISTERS,
        COPY_REGISTERS=_COPY_REGISTERS,
        num_warps=4,
        maxnreg=_LAUNCH_REGISTERS,
        **pdl,
    )
