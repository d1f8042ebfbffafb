"""Products whose rows do not depend on the batch: a token's row is bitwise the same alone and beside any others.

A long sum is cut into parts that follow from the matrix alone. Few tokens have a program for each part, and the last
to arrive adds the parts up; many tokens have one program that does the same sums one after another. Tokens are the
columns of the matrix instruction, so that every number of them takes the same one (``wgmma`` over 64 outputs on
Hopper), whose sum over the inputs does not depend on how many columns it has.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .fp8 import arrivals
from .pdl import grid_dependency_wait, launch_dependents, pdl_options

PROGRAMS = 264  # that a product of few tokens is cut into, at most: two for each multiprocessor
PART_MULTIPLE = 256  # inputs: of every ``inputs`` below
MOST_PARTS = 8
FEW = 64  # tokens up to which parts are summed by programs of their own


class LinearConfig(NamedTuple):
    """Tokens, outputs and inputs (of 16 bits) of a program's tile, its warps, and stages of the loop's pipeline."""

    tokens: int
    outputs: int
    inputs: int
    warps: int
    stages: int


FEW_TOKENS = (
    LinearConfig(16, 64, 128, 4, 4),
    LinearConfig(32, 64, 128, 4, 4),
    LinearConfig(64, 64, 128, 4, 3),
)
SOME_TOKENS = LinearConfig(128, 64, 64, 4, 4)  # up to its own number
MANY_TOKENS = LinearConfig(128, 128, 64, 8, 4)


@triton.jit
def _sum_of_part(
    x_place,
    w_place,
    m_ok,
    n_ok,
    w_in_stride,
    first,
    stop,
    K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """``[BLOCK_N, BLOCK_M]`` over the inputs from ``first`` to ``stop``, one after another."""
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(first, stop, BLOCK_K):
        if K % BLOCK_K:
            k_ok = k + tl.arange(0, BLOCK_K) < K
            w = tl.load(w_place + k * w_in_stride, mask=n_ok[:, None] & k_ok[None, :], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :] & k_ok[:, None], other=0.0)
        else:
            w = tl.load(w_place + k * w_in_stride, mask=n_ok[:, None], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :], other=0.0)
        acc = tl.dot(w, x, acc, input_precision="ieee")
    return acc


@triton.jit(do_not_specialize=["tokens"])
def _linear_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    tokens,
    x_stride,
    w_out_stride,
    w_in_stride,
    out_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    IN_TURN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):
    """``BLOCK_N`` outputs of ``BLOCK_M`` tokens: one part of their sums, or all parts ``IN_TURN``."""
    launch_dependents(PDL)
    # Programs beside each other share rows of the matrix, which is read once; activations stay in the cache.
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_ok, n_ok = m < tokens, n < N
    columns = tl.arange(0, BLOCK_K)
    w_place = w_ptr + n.to(tl.int64)[:, None] * w_out_stride + columns[None, :] * w_in_stride
    x_place = x_ptr + (m.to(tl.int64) * x_stride)[None, :] + columns[:, None]
    grid_dependency_wait(PDL)
    last = True
    if IN_TURN:
        acc = _sum_of_part(x_place, w_place, m_ok, n_ok, w_in_stride, 0, min(PART, K), K, BLOCK_M, BLOCK_N, BLOCK_K)
        for part in tl.static_range(1, PARTS):
            acc += _sum_of_part(
                x_place,
                w_place,
                m_ok,
                n_ok,
                w_in_stride,
                part * PART,
                min(part * PART + PART, K),
                K,
                BLOCK_M,
                BLOCK_N,
                BLOCK_K,
            )
    else:
        part = tl.program_id(2)
        first = part * PART
        acc = _sum_of_part(
            x_place, w_place, m_ok, n_ok, w_in_stride, first, tl.minimum(first + PART, K), K, BLOCK_M, BLOCK_N, BLOCK_K
        )
        tile = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        place = parts_ptr + tile.to(tl.int64) * (PARTS * BLOCK_N * BLOCK_M) + inside
        tl.store(place + part * (BLOCK_N * BLOCK_M), acc)
        tl.debug_barrier()  # every thread's sums are written before one of them says so
        last = tl.atomic_add(arrived_ptr + tile, 1, sem="acq_rel") == PARTS - 1
        if last:
            acc = tl.load(place, cache_modifier=".cg")
            for index in tl.static_range(1, PARTS):
                acc += tl.load(place + index * (BLOCK_N * BLOCK_M), cache_modifier=".cg")
            tl.store(arrived_ptr + tile, 0)  # for the next product
    if last:
        if HAS_BIAS:
            acc += tl.load(bias_ptr + n, mask=n_ok, other=0.0).to(tl.float32)[:, None]
        out_place = out_ptr + (m.to(tl.int64) * out_stride)[None, :] + n[:, None]
        tl.store(out_place, acc.to(out_ptr.dtype.element_ty), mask=n_ok[:, None] & m_ok[None, :])


def invariant_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """``x [tokens, in]`` times ``weight [out, in]`` plus ``bias [out]``; a row follows from its own row of ``x`` alone.

    float32, bfloat16 or float16, rows of ``x`` and ``out`` contiguous; sums in float32. Into
    ``out [tokens, out]`` or a new tensor. Raises ``ValueError`` for shapes that do not fit.
    """
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    if x.shape[1] != inputs or x.stride(1) != 1:
        raise ValueError(f"x is {tuple(x.shape)} with strides {x.stride()}, the matrix {tuple(weight.shape)}")
    if out is None:
        out = torch.empty(tokens, outputs, dtype=x.dtype, device=x.device)
    if not tokens:
        return out
    parts, part = cut(outputs, inputs)
    config = config_for(tokens)
    in_turn = parts == 1 or tokens > FEW
    grid = (triton.cdiv(tokens, config.tokens), triton.cdiv(outputs, config.outputs), 1 if in_turn else parts)
    sums = arrived = x
    if not in_turn:
        tiles = grid[0] * grid[1]
        sums = torch.empty(tiles * parts * config.outputs * config.tokens, dtype=torch.float32, device=x.device)
        arrived = arrivals(x.device, triton.next_power_of_2(max(tiles, 1024)))
    _linear_kernel[grid](
        x,
        weight,
        x if bias is None else bias,
        out,
        sums,
        arrived,
        tokens,
        x.stride(0),
        weight.stride(0),
        weight.stride(1),
        out.stride(0),
        N=outputs,
        K=inputs,
        PART=part,
        PARTS=parts,
        IN_TURN=in_turn,
        HAS_BIAS=bias is not None,
        BLOCK_M=config.tokens,
        BLOCK_N=config.outputs,
        BLOCK_K=max(16, config.inputs * 2 // x.element_size()),  # the same bytes in any dtype
        num_warps=config.warps,
        num_stages=config.stages,
        **pdl_options(x),
    )
    return out


def cut(outputs: int, inputs: int) -> tuple[int, int]:
    """Into how many parts each sum of a matrix is cut, and the inputs of one: by nothing but the matrix."""
    tiles, parts = triton.cdiv(outputs, FEW_TOKENS[0].outputs), 1
    while parts < MOST_PARTS and tiles * parts * 2 <= PROGRAMS and inputs >= 2 * parts * 2 * PART_MULTIPLE:
        parts *= 2
    part = triton.cdiv(triton.cdiv(inputs, parts), PART_MULTIPLE) * PART_MULTIPLE
    return triton.cdiv(inputs, part), part


def config_for(tokens: int) -> LinearConfig:
    """The quickest tile; it changes no sum."""
    for config in (*FEW_TOKENS, SOME_TOKENS):
        if tokens <= config.tokens:
            return config
    return MANY_TOKENS
