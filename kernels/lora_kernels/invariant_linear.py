"""Batch-invariant matrix products: a token's row is bitwise the same alone and beside any other tokens.

One program sums over all inputs, in order. Tokens are the columns of the matrix instruction, so that any number of
tokens uses the same instruction (``wgmma`` over 64 outputs on Hopper). Its sum over the inputs depends neither on the
number of columns nor on the number of inputs in a tile.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .pdl import grid_dependency_wait, launch_dependents, pdl_options


class LinearConfig(NamedTuple):
    """A program's tile (tokens, outputs, inputs of 16 bits), its warps, and the stages of the loop's pipeline."""

    tokens: int
    outputs: int
    inputs: int
    warps: int
    stages: int


# Configurations by increasing tokens: a launch takes the first configuration whose tile holds all tokens, or the last.
CONFIGS = (
    LinearConfig(16, 64, 128, 4, 4),
    LinearConfig(32, 64, 128, 4, 4),
    LinearConfig(64, 64, 128, 4, 3),
    LinearConfig(128, 128, 64, 8, 4),
)


@triton.jit(do_not_specialize=["tokens"])
def _linear_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    tokens,
    x_stride,
    w_out_stride,
    w_in_stride,
    out_stride,
    N: tl.constexpr,
    K: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute ``BLOCK_N`` outputs of ``BLOCK_M`` tokens."""
    launch_dependents(PDL)
    # Adjacent programs share rows of the matrix, which is then read once; activations stay in the cache.
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_ok, n_ok = m < tokens, n < N
    columns = tl.arange(0, BLOCK_K)
    w_place = w_ptr + n.to(tl.int64)[:, None] * w_out_stride + columns[None, :] * w_in_stride
    x_place = x_ptr + (m.to(tl.int64) * x_stride)[None, :] + columns[:, None]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    grid_dependency_wait(PDL)
    for k in range(0, K, BLOCK_K):
        if K % BLOCK_K:
            k_ok = k + columns < K
            w = tl.load(w_place + k * w_in_stride, mask=n_ok[:, None] & k_ok[None, :], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :] & k_ok[:, None], other=0.0)
        else:
            w = tl.load(w_place + k * w_in_stride, mask=n_ok[:, None], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :], other=0.0)
        acc = tl.dot(w, x, acc, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias_ptr + n, mask=n_ok, other=0.0).to(tl.float32)[:, None]
    out_place = out_ptr + (m.to(tl.int64) * out_stride)[None, :] + n[:, None]
    tl.store(out_place, acc.to(out_ptr.dtype.element_ty), mask=n_ok[:, None] & m_ok[None, :])


def invariant_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute ``x [tokens, in]`` times ``weight [out, in]`` plus ``bias [out]``, each row independently of the others.

    Tensors are float32, bfloat16 or float16, with contiguous rows of ``x`` and ``out``; sums are in float32. The result
    goes into ``out [tokens, out]``, or into a new tensor. Raises ``ValueError`` for shapes that do not fit.
    """
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    if x.shape[1] != inputs or x.stride(1) != 1:
        raise ValueError(f"x is {tuple(x.shape)} with strides {x.stride()}, the matrix {tuple(weight.shape)}")
    if out is None:
        out = torch.empty(tokens, outputs, dtype=x.dtype, device=x.device)
    if not tokens:
        return out
    config = next((config for config in CONFIGS if tokens <= config.tokens), CONFIGS[-1])
    _linear_kernel[triton.cdiv(tokens, config.tokens), triton.cdiv(outputs, config.outputs)](
        x,
        weight,
        x if bias is None else bias,
        out,
        tokens,
        x.stride(0),
        weight.stride(0),
        weight.stride(1),
        out.stride(0),
        N=outputs,
        K=inputs,
        HAS_BIAS=bias is not None,
        BLOCK_M=config.tokens,
        BLOCK_N=config.outputs,
        BLOCK_K=max(16, config.inputs * 2 // x.element_size()),  # the same number of bytes in any dtype
        num_warps=config.warps,
        num_stages=config.stages,
        **pdl_options(x),
    )
    return out
