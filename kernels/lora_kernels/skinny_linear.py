"""Products of few tokens with matrices in 16 bits, bound by the bytes of the matrix.

cuBLAS reads no faster than its own kernel runs: it begins once the kernel before it has ended, and sums that it splits
take a second launch. Here the launch overlaps with the kernel before it, and the last program of a split sum adds it
up, onto a bias or an earlier output. Tokens are the columns of the matrix instruction.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .pdl import grid_dependency_wait, has_sm90, launch_dependents, pdl_options
from .split_sums import add_up_splits, split_buffers

# Maximum tokens for which the kernel reads faster than cuBLAS (an H200, sizes of Llama-3.1-8B).
FEW_TOKENS = 32
# Outputs of a narrow matrix, such as a router, and maximum tokens of its product: in blocks of ``FEW_TOKENS``, they and
# the splits of a sum fit on the device at once, and the launches around cuBLAS's product would take longer than it.
NARROW, NARROW_TOKENS = 256, 256
# Programs up to which a sum is split: one for each of the 132 multiprocessors of an H100 or H200.
PROGRAMS = 132


@triton.jit(do_not_specialize=["tokens"])
def _skinny_linear_kernel(
    x_ptr,
    w_ptr,
    onto_ptr,
    out_ptr,
    parts_ptr,
    arrived_ptr,
    tokens,
    x_stride,
    onto_stride,
    out_stride,
    N,
    K,
    EVEN: tl.constexpr,
    HAS_ONTO: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Compute one split of ``BLOCK_N`` outputs of ``BLOCK_M`` tokens; ``EVEN``: ``BLOCK_K`` divides the inputs."""
    launch_dependents(PDL)
    n, m = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    n_ok, m_ok, columns = n < N, m < tokens, tl.arange(0, BLOCK_K)
    split = tl.program_id(1)
    steps = tl.cdiv(K, BLOCK_K)
    share = tl.cdiv(steps, SPLITS)
    w_place = w_ptr + n.to(tl.int64)[:, None] * K + columns[None, :]
    x_place = x_ptr + (m.to(tl.int64) * x_stride)[None, :] + columns[:, None]
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    grid_dependency_wait(PDL)
    for step in range(split * share, tl.minimum((split + 1) * share, steps)):
        k = step * BLOCK_K
        if EVEN:
            w = tl.load(w_place + k, mask=n_ok[:, None], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :], other=0.0)
        else:
            k_ok = k + columns < K
            w = tl.load(w_place + k, mask=n_ok[:, None] & k_ok[None, :], other=0.0)
            x = tl.load(x_place + k, mask=m_ok[None, :] & k_ok[:, None], other=0.0)
        acc = tl.dot(w, x, acc, input_precision="ieee")
    tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    acc, last = add_up_splits(acc, parts_ptr, arrived_ptr, tile, split, SPLITS, BLOCK_N, BLOCK_M)
    if last:
        ok, rows = n_ok[:, None] & m_ok[None, :], m.to(tl.int64)[None, :]
        if HAS_ONTO:
            acc += tl.load(onto_ptr + rows * onto_stride + n[:, None], mask=ok, other=0.0).to(tl.float32)
        tl.store(out_ptr + rows * out_stride + n[:, None], acc.to(out_ptr.dtype.element_ty), mask=ok)


def multiplied_by_skinny(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether ``skinny_linear`` computes a product sooner than cuBLAS."""
    few = 0 < x.shape[0] <= _most_tokens(weight) and x.element_size() == 2 and x.stride(1) == 1
    return few and weight.is_contiguous() and weight.shape[1] % 8 == 0 and has_sm90(x.device)


def _most_tokens(weight: torch.Tensor) -> int:
    return NARROW_TOKENS if weight.shape[0] <= NARROW else FEW_TOKENS


def skinny_linear(
    x: torch.Tensor, weight: torch.Tensor, onto: torch.Tensor | None = None, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute ``x [tokens, in]`` times ``weight [out, in]``, plus ``onto``: a bias ``[out]``, or ``[tokens, out]``.

    Tensors are of one dtype, with contiguous rows, and ``weight`` is contiguous; sums are in float32. The result goes
    into ``out``, which may be ``onto``, or into a new tensor. Raises ``ValueError`` for shapes that do not fit, and for
    more tokens than ``NARROW_TOKENS``, or than ``FEW_TOKENS`` if the matrix is not narrow.
    """
    tokens, (outputs, inputs) = x.shape[0], weight.shape
    fits = 0 < tokens <= _most_tokens(weight)
    if x.shape[1] != inputs or x.stride(1) != 1 or not weight.is_contiguous() or not fits:
        raise ValueError(f"x is {tuple(x.shape)} with strides {x.stride()}, the matrix {tuple(weight.shape)}")
    if out is None:
        out = torch.empty(tokens, outputs, dtype=x.dtype, device=x.device)
    block_m, block_n, block_k, splits, stages = tiling(tokens, outputs, inputs)
    tiles, blocks = triton.cdiv(outputs, block_n), triton.cdiv(tokens, block_m)
    parts, arrived = split_buffers(x, tiles * blocks, splits, block_n * block_m)
    _skinny_linear_kernel[tiles, splits, blocks](
        x,
        weight,
        x if onto is None else onto,
        out,
        parts,
        arrived,
        tokens,
        x.stride(0),
        0 if onto is None or onto.dim() == 1 else onto.stride(0),
        out.stride(0),
        outputs,
        inputs,
        EVEN=inputs % block_k == 0,
        HAS_ONTO=onto is not None,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        SPLITS=splits,
        num_warps=4,
        num_stages=stages,
        **pdl_options(x),
    )
    return out


def tiling(tokens: int, outputs: int, inputs: int) -> tuple[int, int, int, int, int]:
    """Return tokens, outputs and inputs of a program's tile, the number of splits of a sum, and stages.

    Programs of more than ``FEW_TOKENS`` tokens are the same as of so many.
    """
    block_m = 16 if tokens <= 16 else 32
    if outputs >= 128 * PROGRAMS:
        return block_m, 128, 128, 1, 4
    splits = 1
    while triton.cdiv(outputs, 64) * splits * 2 <= PROGRAMS and inputs >= 4 * 256 * splits:
        splits *= 2
    return block_m, 64, 256, splits, 3
