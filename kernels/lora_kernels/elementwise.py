"""The small kernels between the matrix products, each one pass over its data."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    x_stride,
    residual_stride,
    out_stride,
    eps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    ok = columns < SIZE
    x = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    if HAS_RESIDUAL:
        x = (
            x.to(tl.float32)
            + tl.load(residual_ptr + row * residual_stride + columns, mask=ok, other=0.0).to(tl.float32)
        ).to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + row * residual_stride + columns, x, mask=ok)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    weight = tl.load(weight_ptr + columns, mask=ok, other=0.0)
    out = (wide * scale).to(out_ptr.dtype.element_ty) * weight
    tl.store(out_ptr + row * out_stride + columns, out.to(out_ptr.dtype.element_ty), mask=ok)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, out: torch.Tensor
) -> None:
    """``residual += x`` in place (if there is one), then ``out = rms_norm(residual) * weight``; all ``[tokens, size]``.

    The sum is rounded to the residual's dtype before it is normalised, as two separate steps would.
    """
    size = x.shape[1]
    if weight.shape != (size,) or out.shape != x.shape:
        raise ValueError(f"x is {tuple(x.shape)}, weight {tuple(weight.shape)}, out {tuple(out.shape)}")
    target = residual if residual is not None else x
    _rms_norm_kernel[(x.shape[0],)](
        x,
        target,
        weight,
        out,
        x.stride(0),
        target.stride(0),
        out.stride(0),
        eps,
        SIZE=size,
        BLOCK=triton.next_power_of_2(size),
        HAS_RESIDUAL=residual is not None,
        num_warps=min(16, max(1, size // 512)),
    )


@triton.jit
def _rope_kv_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    cells_ptr,
    pool_ptr,
    q_norm_ptr,
    k_norm_ptr,
    qkv_stride,
    table_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_PAD: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    QK_NORM: tl.constexpr,
):
    """One token and one head: heads are the query heads, then the keys, then the values."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    KV_DIM: tl.constexpr = KV_HEADS * HEAD_DIM
    dims = tl.arange(0, HALF_PAD)
    ok = dims < HALF
    place = qkv_ptr + token * qkv_stride + head * HEAD_DIM + dims
    low = tl.load(place, mask=ok, other=0.0)
    high = tl.load(place + HALF, mask=ok, other=0.0)
    cell = tl.load(cells_ptr + token).to(tl.int64)
    if head >= HEADS + KV_HEADS:
        value = pool_ptr + (cell + PAGE_TOKENS) * KV_DIM + (head - HEADS - KV_HEADS) * HEAD_DIM + dims
        tl.store(value, low, mask=ok)
        tl.store(value + HALF, high, mask=ok)
        return
    a, b = low.to(tl.float32), high.to(tl.float32)
    if QK_NORM:
        scale = tl.rsqrt((tl.sum(a * a, axis=0) + tl.sum(b * b, axis=0)) / HEAD_DIM + eps)
        norm_ptr = q_norm_ptr
        if head >= HEADS:
            norm_ptr = k_norm_ptr
        a = (a * scale).to(low.dtype).to(tl.float32) * tl.load(norm_ptr + dims, mask=ok, other=0.0).to(tl.float32)
        b = (b * scale).to(low.dtype).to(tl.float32) * tl.load(norm_ptr + HALF + dims, mask=ok, other=0.0).to(
            tl.float32
        )
    row = tl.load(positions_ptr + token).to(tl.int64) * table_stride
    cos = tl.load(cos_ptr + row + dims, mask=ok, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row + HALF + dims, mask=ok, other=0.0).to(tl.float32)
    rotated_low = (a * cos - b * sin).to(low.dtype)
    rotated_high = (b * cos + a * sin).to(low.dtype)
    if head >= HEADS:
        place = pool_ptr + cell * KV_DIM + (head - HEADS) * HEAD_DIM + dims
    tl.store(place, rotated_low, mask=ok)
    tl.store(place + HALF, rotated_high, mask=ok)


def rope_and_write_kv(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    key_cells: torch.Tensor,
    pool: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """Normalise (if the model does) and rotate queries in place in ``qkv [tokens, (heads + 2 kv_heads) * head_dim]``;
    rotate keys and copy values into the pool's cells. ``cos``, ``sin`` ``[positions, head_dim]``, the sine's first half
    negated; ``key_cells [tokens]`` as ``PagePool.token_cells`` rows."""
    if qkv.shape[1] != (heads + 2 * kv_heads) * head_dim:
        raise ValueError(
            f"qkv has {qkv.shape[1]} columns, but {heads} + 2 x {kv_heads} heads of {head_dim} need "
            f"{(heads + 2 * kv_heads) * head_dim}"
        )
    _rope_kv_kernel[(qkv.shape[0], heads + 2 * kv_heads)](
        qkv,
        cos,
        sin,
        positions,
        key_cells,
        pool,
        q_norm if q_norm is not None else qkv,
        k_norm if k_norm is not None else qkv,
        qkv.stride(0),
        cos.stride(0),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        HALF_PAD=triton.next_power_of_2(head_dim // 2),
        PAGE_TOKENS=page_tokens,
        QK_NORM=q_norm is not None,
        num_warps=1,
    )


@triton.jit
def _silu_mul_kernel(x_ptr, out_ptr, x_stride, out_stride, INNER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = columns < INNER
    gate = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    up = tl.load(x_ptr + row * x_stride + INNER + columns, mask=ok, other=0.0)
    wide = gate.to(tl.float32)
    activated = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out_ptr + row * out_stride + columns, activated * up, mask=ok)


def silu_mul(gate_up: torch.Tensor, out: torch.Tensor) -> None:
    """``out = silu(gate) * up`` of ``gate_up [tokens, 2 * inner]``."""
    inner = gate_up.shape[1] // 2
    if out.shape != (gate_up.shape[0], inner):
        raise ValueError(f"gate_up is {tuple(gate_up.shape)}, so out must be {(gate_up.shape[0], inner)}")
    block = min(1024, triton.next_power_of_2(inner))
    _silu_mul_kernel[(gate_up.shape[0], triton.cdiv(inner, block))](
        gate_up,
        out,
        gate_up.stride(0),
        out.stride(0),
        INNER=inner,
        BLOCK=block,
        num_warps=4,
    )
