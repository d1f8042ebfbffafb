"""Products of FP8 matrices with activations that are quantised token by token, and the quantisation of activations.

From `FEW` tokens on, cuBLAS (``torch._scaled_mm``) computes products with a scale for each channel. On Hopper GPUs
`hopper_fp8` computes those with fewer tokens, and `hopper_fp8_wide` those that do not fit cuBLAS's tiles. The kernel
here computes all others.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .fp8_tensors import BLOCK, LARGEST, SMALLEST_SCALE, Fp8Matrix, Fp8Rows
from .hopper_fp8 import hopper_fp8_linear, takes, tiles_of
from .hopper_fp8_wide import hopper_fp8_wide_linear, splits_of, takes_wide
from .pdl import grid_dependency_wait, is_hopper, launch_dependents, pdl_options
from .split_sums import add_up_splits, split_buffers

# Tokens from which on cuBLAS computes the product.
FEW = 65
# Programs up to which a product of few tokens is split: one for each of the 132 multiprocessors of an H100 or H200. A
# second one would read no faster, and has partial sums to write (`benchmarks/fp8_table.py`).
PROGRAMS = 132
_LARGEST = tl.constexpr(LARGEST)
_SMALLEST_SCALE = tl.constexpr(SMALLEST_SCALE)


@triton.jit
def store_quantised(
    x, row, columns, ok, data_ptr, scale_ptr, static_ptr, size: tl.constexpr, groups: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, GROUP: tl.constexpr, STATIC: tl.constexpr,
):  # fmt: skip
    """Store one row ``x`` (float32, zeros beyond ``size``) in E4M3, with a scale for every ``GROUP`` columns (0: all).

    The scale of values that are not finite is not finite either, so that an overflow stays visible.
    """
    largest = tl.where(x == x, tl.abs(x), float("inf"))
    if GROUP:
        x = tl.reshape(x, (BLOCK_SIZE // GROUP, GROUP))
        largest = tl.max(tl.reshape(largest, (BLOCK_SIZE // GROUP, GROUP)), axis=1)
        place = tl.arange(0, BLOCK_SIZE // GROUP)
    else:
        largest = tl.max(largest, axis=0)
        place = 0
    if STATIC:
        scale = tl.where(largest < float("inf"), tl.load(static_ptr), float("nan"))
    else:
        scale = tl.maximum(largest / _LARGEST, _SMALLEST_SCALE)
    tl.store(scale_ptr + row * groups + place, scale, mask=place < groups)
    inverse = 1.0 / scale  # a division of every element would take as long as all else
    scaled = x * (inverse[:, None] if GROUP else inverse)
    if STATIC:
        scaled = tl.clamp(scaled, -_LARGEST, _LARGEST)
    if GROUP:
        scaled = tl.reshape(scaled, (BLOCK_SIZE,))
    tl.store(data_ptr + row * size + columns, scaled.to(tl.float8e4nv), mask=ok)


@triton.jit
def _quantise_kernel(
    x_ptr,
    data_ptr,
    scale_ptr,
    static_ptr,
    x_stride,
    SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    STATIC: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    ok = columns < SIZE
    grid_dependency_wait(PDL)
    x = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0).to(tl.float32)
    store_quantised(x, row, columns, ok, data_ptr, scale_ptr, static_ptr, SIZE, GROUPS, BLOCK_SIZE, GROUP, STATIC)


@triton.jit
def _activate_and_quantise_kernel(
    x_ptr,
    out_ptr,
    data_ptr,
    scale_ptr,
    static_ptr,
    x_stride,
    INNER: tl.constexpr,
    GROUPS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUP: tl.constexpr,
    STATIC: tl.constexpr,
    GELU: tl.constexpr,
    FULL: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    ok = columns < INNER
    grid_dependency_wait(PDL)
    gate = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    up = tl.load(x_ptr + row * x_stride + INNER + columns, mask=ok, other=0.0)
    wide = gate.to(tl.float32)
    # As in ``gated_activation``.
    steep = 1.5957691216057308 * (wide + 0.044715 * wide * wide * wide) if GELU else wide
    inner = (wide / (1.0 + tl.exp(-steep))).to(gate.dtype) * up
    if FULL:
        tl.store(out_ptr + row * INNER + columns, inner, mask=ok)
    wide = inner.to(tl.float32)
    store_quantised(wide, row, columns, ok, data_ptr, scale_ptr, static_ptr, INNER, GROUPS, BLOCK_SIZE, GROUP, STATIC)


def quantise_rows(x: torch.Tensor, matrix: Fp8Matrix) -> Fp8Rows:
    """Quantise ``x [tokens, in]`` for a product with ``matrix``. Raises ``ValueError`` for shapes that do not fit."""
    if x.shape[1] != matrix.shape[1]:
        raise ValueError(f"x has {x.shape[1]} columns, but the matrix is {tuple(matrix.shape)}")
    rows = Fp8Rows.empty(x.shape[0], matrix, x)
    options = quantising(rows, matrix)
    _quantise_kernel[(x.shape[0],)](
        x, rows.data, rows.scale, static_scale(matrix), x.stride(0), SIZE=x.shape[1], **options, **pdl_options(x)
    )
    return rows


def activate_and_quantise(gate_up: torch.Tensor, matrix: Fp8Matrix, activation: str, full: bool) -> Fp8Rows:
    """Compute ``gated_activation`` of ``gate_up [tokens, 2 * inner]``, quantised for a product with ``matrix``.

    ``activation`` is "silu" or "gelu_tanh"; ``full``: the unquantised result is kept too. Raises ``ValueError`` for
    another activation, or for shapes that do not fit.
    """
    tokens, inner = gate_up.shape[0], gate_up.shape[1] // 2
    if inner != matrix.shape[1]:
        raise ValueError(f"gate_up is {tuple(gate_up.shape)}, but the matrix is {tuple(matrix.shape)}")
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation {activation!r} has no kernel; use silu or gelu_tanh")
    out = torch.empty(tokens, inner, dtype=gate_up.dtype, device=gate_up.device) if full else None
    rows = Fp8Rows.empty(tokens, matrix, out)
    _activate_and_quantise_kernel[(tokens,)](
        gate_up,
        gate_up if out is None else out,
        rows.data,
        rows.scale,
        static_scale(matrix),
        gate_up.stride(0),
        INNER=inner,
        GELU=activation == "gelu_tanh",
        FULL=full,
        **quantising(rows, matrix),
        **pdl_options(gate_up),
    )
    return rows


def quantising(rows: Fp8Rows, matrix: Fp8Matrix) -> dict[str, int | bool]:
    """Return the launch arguments of a kernel that fills ``rows``, with one program for each row."""
    block = max(triton.next_power_of_2(rows.shape[1]), BLOCK)
    return {
        "GROUPS": rows.scale.shape[1],
        "BLOCK_SIZE": block,
        "GROUP": BLOCK if matrix.in_blocks else 0,
        "STATIC": matrix.input_scale is not None,
        "num_warps": min(32, max(1, block // 512)),
    }


def static_scale(matrix: Fp8Matrix) -> torch.Tensor:
    """Return the tensor of the matrix's input scale; without one, any tensor, which kernels do not read."""
    return matrix.scale if matrix.input_scale is None else matrix.input_scale


@triton.jit(do_not_specialize=["tokens"])
def _fp8_matmul_kernel(
    x_ptr,
    x_scale_ptr,
    w_ptr,
    w_scale_ptr,
    onto_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    tokens,
    onto_stride,
    out_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    X_GROUPS: tl.constexpr,
    IN_BLOCKS: tl.constexpr,
    HAS_ONTO: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute one split of ``BLOCK_N`` outputs of ``BLOCK_M`` tokens; the last program to arrive adds the splits up."""
    launch_dependents(PDL)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.program_id(2)
    n_ok, m_ok = n < N, m < tokens
    STEPS: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    SHARE: tl.constexpr = (STEPS + SPLITS - 1) // SPLITS
    first = split * SHARE
    columns = tl.arange(0, BLOCK_K)
    w_place = w_ptr + n.to(tl.int64)[:, None] * K + columns[None, :]
    x_place = x_ptr + m.to(tl.int64)[None, :] * K + columns[:, None]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    grid_dependency_wait(PDL)
    for step in range(first, tl.minimum(first + SHARE, STEPS)):
        k = step * BLOCK_K
        if K % BLOCK_K:
            k_ok = k + columns < K
            w = tl.load(w_place + k, mask=n_ok[:, None] & k_ok[None, :], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :] & k_ok[:, None], other=0.0)
        else:
            w = tl.load(w_place + k, mask=n_ok[:, None], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :], other=0.0)
        # Do not accumulate into ``acc`` here: tensor cores add FP8 products up with 14 bits.
        product = tl.dot(w, x)
        if IN_BLOCKS:
            W_GROUPS: tl.constexpr = (K + 127) // 128
            w_scale = tl.load(w_scale_ptr + (n // 128) * W_GROUPS + step, mask=n_ok, other=0.0)
            x_scale = tl.load(x_scale_ptr + m.to(tl.int64) * X_GROUPS + step, mask=m_ok, other=0.0)
            product = product * w_scale[:, None] * x_scale[None, :]
        acc += product
    if not IN_BLOCKS:
        w_scale = tl.load(w_scale_ptr + n, mask=n_ok, other=0.0)
        x_scale = tl.load(x_scale_ptr + m, mask=m_ok, other=0.0)
        acc = acc * w_scale[:, None] * x_scale[None, :]
    tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    acc, last = add_up_splits(acc, parts_ptr, arrived_ptr, tile, split, SPLITS, BLOCK_N, BLOCK_M)
    if last:
        ok = n_ok[:, None] & m_ok[None, :]
        rows = m.to(tl.int64)[None, :]
        if HAS_ONTO:
            acc += tl.load(onto_ptr + rows * onto_stride + n[:, None], mask=ok, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows * out_stride + n[:, None], acc.to(out_ptr.dtype.element_ty), mask=ok)


def fp8_linear(
    x: Fp8Rows,
    weight: Fp8Matrix,
    dtype: torch.dtype,
    onto: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    invariant: bool = False,
) -> torch.Tensor:
    """Compute ``x [tokens, in]`` times ``weight [out, in]``, plus ``onto``: a bias ``[out]``, or ``[tokens, out]``.

    The result goes into ``out``, which may be ``onto``, or into a new tensor of ``dtype``. ``invariant``: each row is
    bitwise the same in any batch. Raises ``ValueError`` for shapes that do not fit.
    """
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    if x.shape[1] != inputs or x.group != weight.group:
        raise ValueError(
            f"x is {tuple(x.shape)} in groups of {x.group}, the matrix {tuple(weight.shape)} of {weight.group}"
        )
    by_cublas = not invariant and multiplied_by_cublas(tokens, weight, dtype)
    if by_cublas and (onto is None or onto.dim() == 1):
        if x.data.device.type == "meta":  # torch cannot record it with an ``out``, and it is no launch of these kernels
            return torch.empty(tokens, outputs, dtype=dtype, device="meta") if out is None else out
        return torch._scaled_mm(
            x.data, weight.data.t(), scale_a=x.scale, scale_b=weight.scale[None], bias=onto, out_dtype=dtype,
            use_fast_accum=True, **({} if out is None else {"out": out}),
        )  # fmt: skip
    if out is None:
        out = torch.empty(tokens, outputs, dtype=dtype, device=x.data.device)
    if not invariant and multiplied_on_hopper(tokens, weight):
        if takes_wide(tokens, outputs, inputs):
            hopper_fp8_wide_linear(x, weight, onto, out, splits_of(outputs, inputs), pdl_options(x.data))
        else:
            hopper_fp8_linear(x, weight, onto, out, tiles_of(tokens, outputs, inputs), pdl_options(x.data))
        return out
    block_m, block_n, block_k, splits, warps, stages = tiling(tokens, outputs, inputs, weight.in_blocks, invariant)
    grid = (triton.cdiv(outputs, block_n), triton.cdiv(tokens, block_m), splits)
    parts, arrived = split_buffers(x.scale, grid[0] * grid[1], splits, block_n * block_m)
    _fp8_matmul_kernel[grid](
        x.data,
        x.scale,
        weight.data,
        weight.scale,
        x.scale if onto is None else onto,
        out,
        parts,
        arrived,
        tokens,
        0 if onto is None or onto.dim() == 1 else onto.stride(0),
        out.stride(0),
        N=outputs,
        K=inputs,
        X_GROUPS=x.scale.shape[1],
        IN_BLOCKS=weight.in_blocks,
        HAS_ONTO=onto is not None,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        SPLITS=splits,
        num_warps=warps,
        num_stages=stages,
        **pdl_options(x.data),
    )
    return out


def multiplied_by_cublas(tokens: int, weight: Fp8Matrix, dtype: torch.dtype) -> bool:
    """Return whether ``torch._scaled_mm`` is possible and faster."""
    on_gpu = weight.data.device.type in ("cuda", "meta")  # meta: a GPU's launches are being recorded
    possible = tokens >= FEW and on_gpu and dtype is torch.bfloat16 and not weight.in_blocks
    return possible and not multiplied_on_hopper(tokens, weight)


def multiplied_on_hopper(tokens: int, weight: Fp8Matrix) -> bool:
    """Return whether a kernel for Hopper GPUs computes a product, unless it must be ``invariant``."""
    aligned = weight.shape[1] % 16 == 0  # rows begin where the copy engine can
    fits = takes(tokens, weight.shape[0]) or takes_wide(tokens, *weight.shape)
    return not weight.in_blocks and aligned and is_hopper(weight.data.device) and fits


def tiling(
    tokens: int, outputs: int, inputs: int, in_blocks: bool, invariant: bool = False
) -> tuple[int, int, int, int, int, int]:
    """Return tokens, outputs and inputs of a program's tile, the number of splits of a sum, warps and stages.

    ``invariant``: inputs of a tile and splits do not depend on ``tokens``.
    """
    block_k = BLOCK if invariant or in_blocks or inputs <= 1024 else 256
    # Wide tiles where they alone are enough programs; an invariant product has the same ones for any number of tokens.
    block_n = 128 if block_k == 256 and outputs >= 128 * PROGRAMS else 64
    programs = triton.cdiv(outputs, block_n)
    splits = 1
    while programs * splits * 2 <= PROGRAMS and triton.cdiv(inputs, block_k) >= 4 * splits:
        splits *= 2
    if tokens > 64:
        return (128, 128, 128, splits if invariant else 1, 8, 3)
    block_m = 16 if tokens <= 16 else 32 if tokens <= 32 else 64
    stages = min(6, 160_000 // ((block_m + block_n) * block_k))
    return (block_m, block_n, block_k, splits, 4, stages)
