"""The elementwise kernels between the matrix products; each makes one pass over its data."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .fp8 import quantising, static_scale, store_quantised
from .fp8_tensors import Fp8Matrix, Fp8Rows
from .pdl import grid_dependency_wait, launch_dependents, pdl_options

# Elements that a program of ``sum_rows`` adds up: 16 bytes of each addend for each of 256 threads.
_SUM_BLOCK = 2048


@triton.jit
def _norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    data_ptr,
    scale_ptr,
    static_ptr,
    addends_ptr,
    x_stride,
    residual_stride,
    out_stride,
    eps,
    scale,
    SIZE: tl.constexpr,
    ADDENDS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    STATIC: tl.constexpr,
    FULL: tl.constexpr,
    QUANTISED: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    SCALED: tl.constexpr,
    CENTRED: tl.constexpr,
    ROUNDED_FIRST: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_SIZE)
    ok = columns < SIZE
    weight = tl.load(weight_ptr + columns, mask=ok, other=0.0)
    grid_dependency_wait(PDL)
    if ADDENDS:
        total = tl.zeros((BLOCK_SIZE,), tl.float32)
        for index in tl.static_range(ADDENDS):
            address = tl.load(addends_ptr + index).to(tl.pointer_type(x_ptr.dtype.element_ty))
            address = tl.multiple_of(address, 16)
            # Not through the L1 cache, which does not know of other GPUs' writes.
            part = tl.load(address + row * x_stride + columns, mask=ok, other=0.0, cache_modifier=".cg")
            total += part.to(tl.float32)
        x = total.to(x_ptr.dtype.element_ty)
    else:
        x = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    if HAS_RESIDUAL:
        added = x.to(tl.float32)
        if SCALED:
            added = (added * scale).to(x.dtype).to(tl.float32)
        added += tl.load(residual_ptr + row * residual_stride + columns, mask=ok, other=0.0).to(tl.float32)
        x = added.to(residual_ptr.dtype.element_ty)
        tl.store(residual_ptr + row * residual_stride + columns, x, mask=ok)
    wide = x.to(tl.float32)
    if CENTRED:
        wide = tl.where(ok, wide - tl.sum(wide, axis=0) / SIZE, 0.0)
    out = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    if ROUNDED_FIRST:
        out = out.to(out_ptr.dtype.element_ty)
    out = (out * weight).to(out_ptr.dtype.element_ty)
    if FULL:
        tl.store(out_ptr + row * out_stride + columns, out, mask=ok)
    if QUANTISED:
        wide = out.to(tl.float32)
        store_quantised(
            wide, row, columns, ok, data_ptr, scale_ptr, static_ptr, SIZE, GROUPS, BLOCK_SIZE, GROUP, STATIC
        )


def add_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor,
    *,
    scale: float = 1.0,
    centred: bool = False,
    rounded_first: bool = True,
    addends: torch.Tensor | None = None,
) -> None:
    """Compute ``residual += scale * x`` in place (unless None), then ``out = norm(residual) * weight``.

    All are ``[tokens, size]``. Without a residual, ``x`` is normalised.
    The norm is the root mean square, after subtraction of the mean if ``centred``. The sum is rounded to the residual's
    dtype before normalisation, and the norm to ``out``'s dtype before multiplication if ``rounded_first``, as separate
    steps would do. ``out`` may be ``x``. Rows may be strided; ``weight [size]``. The computation is in float32. Raises
    ``ValueError`` for shapes that do not fit.

    ``addends [n]`` int64: ``x`` is the sum of n tensors at these addresses, in their order and rounded to ``x``'s
    dtype; only the shape, dtype and strides of ``x`` itself are used. They may be in the memory of other GPUs.
    """
    if out.shape != x.shape:
        raise ValueError(f"out is {tuple(out.shape)}, but must have the shape of x, {tuple(x.shape)}")
    _launch_norm(x, residual, weight, eps, out, None, None, scale, centred, rounded_first, addends)


def add_norm_and_quantise(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    matrix: Fp8Matrix,
    full: bool,
    *,
    scale: float = 1.0,
    centred: bool = False,
    rounded_first: bool = True,
    addends: torch.Tensor | None = None,
) -> Fp8Rows:
    """Compute ``add_norm`` for a product with ``matrix``, rounded to ``x``'s dtype, then quantised to FP8.

    ``full``: the unquantised result is kept too.
    """
    rows = Fp8Rows.empty(x.shape[0], matrix, torch.empty_like(x) if full else None)
    _launch_norm(x, residual, weight, eps, rows.full, rows, matrix, scale, centred, rounded_first, addends)
    return rows


def _launch_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None,
    rows: Fp8Rows | None,
    matrix: Fp8Matrix | None,
    scale: float,
    centred: bool,
    rounded_first: bool,
    addends: torch.Tensor | None,
) -> None:
    size = x.shape[1]
    if weight.shape != (size,) or (rows is not None and rows.shape != x.shape):
        raise ValueError(f"x is {tuple(x.shape)}, but weight {tuple(weight.shape)} is for another width")
    target = residual if residual is not None else x
    block = triton.next_power_of_2(size)
    quantised: dict[str, int | bool] = {"BLOCK_SIZE": block, "GROUPS": 0, "GROUP": 0, "STATIC": False}
    # From the block, not the width: the number of warps must be a power of two.
    quantised["num_warps"] = min(16, max(1, block // 512))
    if rows is not None and matrix is not None:
        quantised = quantising(rows, matrix)
    _norm_kernel[(x.shape[0],)](
        x,
        target,
        weight,
        x if out is None else out,
        x if rows is None else rows.data,
        x if rows is None else rows.scale,
        x if matrix is None else static_scale(matrix),
        x if addends is None else addends,
        x.stride(0),
        target.stride(0),
        0 if out is None else out.stride(0),
        eps,
        scale,
        SIZE=size,
        ADDENDS=0 if addends is None else len(addends),
        FULL=out is not None,
        QUANTISED=rows is not None,
        HAS_RESIDUAL=residual is not None,
        SCALED=scale != 1.0,
        CENTRED=centred,
        ROUNDED_FIRST=rounded_first,
        **quantised,
        **pdl_options(x),
    )


@triton.jit(do_not_specialize=["first", "count", "rank"])
def _sum_rows_kernel(x_ptr, addends_ptr, first, count, rank, ADDENDS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = offsets < count
    offsets = tl.multiple_of(first, 16) + offsets
    total = tl.zeros((BLOCK,), tl.float32)
    for index in tl.static_range(ADDENDS):
        address = tl.load(addends_ptr + index).to(tl.pointer_type(x_ptr.dtype.element_ty))
        address = tl.multiple_of(address, 16)
        # Not through the L1 cache, which does not know of other GPUs' writes.
        total += tl.load(address + offsets, mask=ok, other=0.0, cache_modifier=".cg").to(tl.float32)
    rounded = total.to(x_ptr.dtype.element_ty)
    for index in tl.static_range(ADDENDS):
        # Every rank begins with another one: a link carries what one GPU sends, not what all send at once.
        address = tl.load(addends_ptr + (rank + index) % ADDENDS).to(tl.pointer_type(x_ptr.dtype.element_ty))
        tl.store(tl.multiple_of(address, 16) + offsets, rounded, mask=ok)


def sum_rows(x: torch.Tensor, addends: torch.Tensor, rank: int) -> None:
    """Replace a share of the rows of all ``addends`` by their sum: the ``rank``-th of as many shares as addends.

    ``addends [n]`` int64: the addresses of tensors like ``x [tokens, size]``, which is contiguous and one of them; all
    but the last shares have ``tokens / n`` rows, rounded up. The others may be in the memory of other GPUs, which must
    not read or write these rows meanwhile. The sum is computed in float32 in the order of the addends and rounded to
    ``x``'s dtype, as in ``add_norm``. Raises ``ValueError`` if rows are not contiguous, or not a multiple of 16 long.
    """
    tokens, size = x.shape
    if not x.is_contiguous() or size % 16:
        raise ValueError(f"x is {tuple(x.shape)} with strides {x.stride()}, but must be contiguous, with rows of 16 n")
    share = triton.cdiv(tokens, len(addends))
    count = max(0, min(share, tokens - rank * share)) * size
    if count:
        _sum_rows_kernel[(triton.cdiv(count, _SUM_BLOCK),)](
            x, addends, rank * share * size, count, rank, ADDENDS=len(addends), BLOCK=_SUM_BLOCK, num_warps=8
        )


@triton.jit
def _dims_of_pairs(pairs, HALF: tl.constexpr, ROTARY_HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Return the two dimensions of each pair of a head; the pairing of dimensions that do not rotate is arbitrary."""
    if INTERLEAVED:
        low, high = 2 * pairs, 2 * pairs + 1
    elif ROTARY_HALF == HALF:
        low, high = pairs, pairs + HALF
    else:
        low = tl.where(pairs < ROTARY_HALF, pairs, pairs + ROTARY_HALF)
        high = tl.where(pairs < ROTARY_HALF, pairs + ROTARY_HALF, pairs + HALF)
    return low, high


@triton.jit
def _stored(x, pool_ptr):
    """Convert to the pool's dtype; FP8 saturates large numbers, and values that are not finite become NaN."""
    if pool_ptr.dtype.element_ty == tl.float8e4nv:
        wide = x.to(tl.float32)
        x = tl.where(tl.abs(wide) < float("inf"), wide, float("nan")).to(tl.float8e4nv)
    return x


@triton.jit(do_not_specialize=["num_tokens"])
def _rope_kv_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    positions_ptr,
    slot_mapping_ptr,
    pool_ptr,
    q_norm_ptr,
    k_norm_ptr,
    num_tokens,
    qkv_stride,
    table_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF_PAD: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    QK_NORM: tl.constexpr,
    ROUNDED_FIRST: tl.constexpr,
    ROTARY_HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    PDL: tl.constexpr,
):
    """Process ``BLOCK_T`` tokens of one head; heads are numbered queries first, then keys, then values."""
    launch_dependents(PDL)
    tokens = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    head = tl.program_id(1)
    HALF: tl.constexpr = HEAD_DIM // 2
    KV_DIM: tl.constexpr = KV_HEADS * HEAD_DIM
    pairs = tl.arange(0, HALF_PAD)
    low_dims, high_dims = _dims_of_pairs(pairs, HALF, ROTARY_HALF, INTERLEAVED)
    exists = tokens < num_tokens
    ok = exists[:, None] & (pairs < HALF)[None, :]
    row = tl.load(positions_ptr + tokens, mask=exists, other=0).to(tl.int64) * table_stride
    slot = tl.load(slot_mapping_ptr + tokens, mask=exists, other=0).to(tl.int64)
    cos = tl.load(cos_ptr + row[:, None] + low_dims[None, :], mask=ok, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row[:, None] + high_dims[None, :], mask=ok, other=0.0).to(tl.float32)
    grid_dependency_wait(PDL)
    place = qkv_ptr + (tokens.to(tl.int64) * qkv_stride)[:, None] + head * HEAD_DIM
    low = tl.load(place + low_dims[None, :], mask=ok, other=0.0)
    high = tl.load(place + high_dims[None, :], mask=ok, other=0.0)
    if head >= HEADS + KV_HEADS:
        value = (slot + PAGE_TOKENS) * KV_DIM + (head - HEADS - KV_HEADS) * HEAD_DIM
        value_place = pool_ptr + value[:, None]
        tl.store(value_place + low_dims[None, :], _stored(low, pool_ptr), mask=ok)
        tl.store(value_place + high_dims[None, :], _stored(high, pool_ptr), mask=ok)
        return
    a, b = low.to(tl.float32), high.to(tl.float32)
    if QK_NORM:
        scale = tl.rsqrt((tl.sum(a * a, axis=1) + tl.sum(b * b, axis=1)) / HEAD_DIM + eps)[:, None]
        norm_ptr = q_norm_ptr
        if head >= HEADS:
            norm_ptr = k_norm_ptr
        norm_low = tl.load(norm_ptr + low_dims, mask=pairs < HALF, other=0.0).to(tl.float32)[None, :]
        norm_high = tl.load(norm_ptr + high_dims, mask=pairs < HALF, other=0.0).to(tl.float32)[None, :]
        a, b = a * scale, b * scale
        if ROUNDED_FIRST:
            a, b = a.to(low.dtype).to(tl.float32), b.to(low.dtype).to(tl.float32)
        a, b = a * norm_low, b * norm_high
    low, high = (a * cos - b * sin).to(low.dtype), (b * cos + a * sin).to(low.dtype)
    if head >= HEADS:
        key_place = pool_ptr + (slot * KV_DIM + (head - HEADS) * HEAD_DIM)[:, None]
        tl.store(key_place + low_dims[None, :], _stored(low, pool_ptr), mask=ok)
        tl.store(key_place + high_dims[None, :], _stored(high, pool_ptr), mask=ok)
    else:
        tl.store(place + low_dims[None, :], low, mask=ok)
        tl.store(place + high_dims[None, :], high, mask=ok)


def rope_and_write_kv(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    slot_mapping: torch.Tensor,
    pool: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 0.0,
    rounded_first: bool = True,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    invariant: bool = False,
) -> None:
    """Rotate queries in place in ``qkv``, and write rotated keys and values into the pool, each token's into its slot.

    ``qkv [tokens, (heads + 2 kv_heads) * head_dim]``; queries and keys are normalised first if ``q_norm`` and
    ``k_norm`` ``[head_dim]`` are given (both or neither), ``rounded_first`` as in ``add_norm``. ``cos``, ``sin``
    ``[positions, head_dim]``, the sine of each pair's first dimension negated. ``positions [tokens]`` int32;
    ``slot_mapping [tokens]`` int32, rows of ``PagePool.pool_rows``. ``pool [num_pages, page_elems]`` of this layer has
    ``qkv``'s dtype or E4M3, which saturates numbers that are too large and stores values that are not finite as NaN.

    Pairs are dimensions i and i + half of the first ``rotary_dim`` (None: all), or 2i and 2i + 1 if ``interleaved``;
    for dimensions that do not rotate the tables are 1 and 0. ``invariant``: any number of tokens takes the same kernel.
    Raises ``ValueError`` for shapes that do not fit.
    """
    if qkv.shape[1] != (heads + 2 * kv_heads) * head_dim:
        raise ValueError(
            f"qkv has {qkv.shape[1]} columns, but {heads} + 2 x {kv_heads} heads of {head_dim} need "
            f"{(heads + 2 * kv_heads) * head_dim}"
        )
    tokens = qkv.shape[0]
    # A decode step has too few tokens to fill the GPU with large blocks.
    block = 4 if invariant or tokens <= 1024 else 16
    _rope_kv_kernel[(triton.cdiv(tokens, block), heads + 2 * kv_heads)](
        qkv,
        cos,
        sin,
        positions,
        slot_mapping,
        pool,
        q_norm if q_norm is not None else qkv,
        k_norm if k_norm is not None else qkv,
        tokens,
        qkv.stride(0),
        cos.stride(0),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HEAD_DIM=head_dim,
        HALF_PAD=triton.next_power_of_2(head_dim // 2),
        PAGE_TOKENS=page_tokens,
        QK_NORM=q_norm is not None,
        ROUNDED_FIRST=rounded_first,
        ROTARY_HALF=(head_dim if rotary_dim is None else rotary_dim) // 2,
        INTERLEAVED=interleaved,
        BLOCK_T=block,
        num_warps=block // 4,
        **pdl_options(qkv),
    )


@triton.jit
def _gated_activation_kernel(
    x_ptr,
    out_ptr,
    x_stride,
    out_stride,
    INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    GELU: tl.constexpr,
    PDL: tl.constexpr,
):
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = columns < INNER
    gate = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    up = tl.load(x_ptr + row * x_stride + INNER + columns, mask=ok, other=0.0)
    wide = gate.to(tl.float32)
    # GELU by tanh is x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)), since 1 + tanh(a) = 2 sigmoid(2 a).
    steep = 1.5957691216057308 * (wide + 0.044715 * wide * wide * wide) if GELU else wide
    activated = (wide / (1.0 + tl.exp(-steep))).to(gate.dtype)
    tl.store(out_ptr + row * out_stride + columns, activated * up, mask=ok)


def gated_activation(gate_up: torch.Tensor, out: torch.Tensor, activation: str = "silu") -> None:
    """Compute ``out = activation(gate) * up`` of ``gate_up [tokens, 2 * inner]``; ``out [tokens, inner]``.

    ``activation`` is "silu" or "gelu_tanh", computed in float32. Raises ``ValueError`` for another one, or for shapes
    that do not fit.
    """
    inner = gate_up.shape[1] // 2
    if out.shape != (gate_up.shape[0], inner):
        raise ValueError(f"gate_up is {tuple(gate_up.shape)}, so out must be {(gate_up.shape[0], inner)}")
    if activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation {activation!r} has no kernel; use silu or gelu_tanh")
    block = min(1024, triton.next_power_of_2(inner))
    _gated_activation_kernel[(gate_up.shape[0], triton.cdiv(inner, block))](
        gate_up,
        out,
        gate_up.stride(0),
        out.stride(0),
        INNER=inner,
        BLOCK=block,
        GELU=activation == "gelu_tanh",
        num_warps=4,
        **pdl_options(out),
    )
