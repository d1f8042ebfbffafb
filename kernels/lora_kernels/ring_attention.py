"""Attention of a draft head over rings: each sequence's last keys and values, at its positions modulo the ring's size.

Two kernels: one rotates queries and keys and puts keys and values into the rings, the other attends. The second reads
only places that hold a position of the row's window, so a captured launch costs a short text no more than its length.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Keys in a block, fewer where a key takes more than so many bytes: blocks lie in shared memory. Warps of a program.
_BLOCK_N, _WIDE_BLOCK_N, _WIDE_BYTES, _WARPS = 64, 32, 512, 4
# Arguments that differ between passes: no number of rows, which follows prompts, needs another compilation.
_ANY_VALUE = {
    "do_not_specialize": ["rows_per_slot", "last_position"],
    "do_not_specialize_on_alignment": ["slots_ptr", "positions_ptr"],
}


@triton.jit(**_ANY_VALUE)
def _rotate_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    cos_ptr,
    sin_ptr,
    slots_ptr,
    positions_ptr,
    keys_ptr,
    values_ptr,
    stored_ptr,
    q_stride,
    k_stride,
    v_stride,
    table_stride,
    last_position,
    rows_per_slot,
    RING: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(positions_ptr + row)
    if position >= 0:
        dims = tl.arange(0, HEAD_PAD)
        ok = dims < HEAD_DIM
        if INTERLEAVED:
            partners = dims ^ 1
        else:
            partners = tl.where(dims < ROTARY_DIM // 2, dims + ROTARY_DIM // 2, dims - ROTARY_DIM // 2)
        partners = tl.where(dims < ROTARY_DIM, partners, dims)
        in_table = tl.minimum(position, last_position) * table_stride + dims
        cos = tl.load(cos_ptr + in_table, mask=ok, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + in_table, mask=ok, other=0.0).to(tl.float32)
        if head < HEADS:
            source = q_ptr + row * q_stride + head * HEAD_DIM
            target = out_ptr + (row * HEADS + head) * HEAD_DIM
        else:
            kv_head = head - HEADS
            place = tl.load(slots_ptr + row // rows_per_slot) * (RING + 1) + position % RING
            source = k_ptr + row * k_stride + kv_head * HEAD_DIM
            target = keys_ptr + (place * KV_HEADS + kv_head) * HEAD_DIM
            value = tl.load(v_ptr + row * v_stride + kv_head * HEAD_DIM + dims, mask=ok)
            tl.store(values_ptr + (place * KV_HEADS + kv_head) * HEAD_DIM + dims, value, mask=ok)
            if kv_head == 0:
                tl.store(stored_ptr + place, position)
        x = tl.load(source + dims, mask=ok, other=0.0).to(tl.float32)
        partner = tl.load(source + partners, mask=ok, other=0.0).to(tl.float32)
        tl.store(target + dims, (x * cos + partner * sin).to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit(**_ANY_VALUE)
def _attend_kernel(
    q_ptr,
    out_ptr,
    slots_ptr,
    positions_ptr,
    keys_ptr,
    values_ptr,
    stored_ptr,
    window,
    rows_per_slot,
    scale_log2e,
    RING: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEAD_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    position = tl.load(positions_ptr + row)
    group: tl.constexpr = HEADS // KV_HEADS
    members = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_PAD)
    dims_ok = dims < HEAD_DIM
    ok = (members < group)[:, None] & dims_ok[None, :]
    at = (row * HEADS + kv_head * group + members[:, None]) * HEAD_DIM + dims[None, :]
    acc = tl.zeros((BLOCK_M, HEAD_PAD), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    if position >= 0:
        q = tl.load(q_ptr + at, mask=ok, other=0.0)
        ring = tl.load(slots_ptr + row // rows_per_slot) * (RING + 1)
        best = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
        first = tl.maximum(0, position - window + 1)
        for start in range(first, position + 1, BLOCK_N):
            theirs = start + tl.arange(0, BLOCK_N)
            places = ring + theirs % RING
            visible = theirs <= position
            # A ring that was emptied has other positions, or none, where no row was written since.
            visible = visible & (tl.load(stored_ptr + places, mask=visible, other=-1) == theirs)
            elements = (places * KV_HEADS + kv_head) * HEAD_DIM
            both = visible[:, None] & dims_ok[None, :]
            k = tl.load(keys_ptr + elements[:, None] + dims[None, :], mask=both, other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2e
            scores = tl.where(visible[None, :], scores, float("-inf"))
            new_best = tl.maximum(best, tl.max(scores, axis=1))
            # The best score is -inf until a key is visible: subtracting it would give NaN.
            anchor = tl.where(new_best == float("-inf"), 0.0, new_best)
            weights = tl.exp2(scores - anchor[:, None])
            shrink = tl.exp2(best - anchor)
            v = tl.load(values_ptr + elements[:, None] + dims[None, :], mask=both, other=0.0)
            acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
            total = total * shrink + tl.sum(weights, axis=1)
            best = new_best
    mean = acc / tl.where(total == 0, 1.0, total)[:, None]
    tl.store(out_ptr + at, mean.to(out_ptr.dtype.element_ty), mask=ok)


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    stored: torch.Tensor,
    *,
    window: int,
    scale: float,
    rotary_dim: int,
    interleaved: bool = False,
) -> torch.Tensor:
    """Put rotated keys, and values, into rings, and return the attention of rotated queries ``[rows, heads *
    head_dim]``.

    ``q [rows, heads, head_dim]``, ``k`` and ``v`` ``[rows, kv heads, head_dim]`` may have strided rows. ``positions
    [slots, rows per slot]`` int64, -1 for padding, whose results are zeros; ``slots [slots]`` int64, each once but for
    those of padding. ``keys`` and ``values`` ``[rings, places + 1, kv heads, head_dim]`` and the positions that they
    hold, ``stored [rings, places + 1]`` int64, are contiguous. A query sees the ``window`` positions up to its own that
    are stored. ``cos`` and ``sin`` ``[positions, head_dim]`` as in ``rope_and_write_kv``; later positions are rotated
    as the last one. Raises ``ValueError`` for shapes that do not fit.
    """
    rows, heads, head_dim = q.shape
    kv_heads, ring = keys.shape[2], keys.shape[1] - 1
    if k.shape != (rows, kv_heads, head_dim) or v.shape != k.shape or heads % kv_heads:
        raise ValueError(
            f"q is {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}, but the rings have {kv_heads} heads"
        )
    if positions.numel() != rows or len(slots) != len(positions):
        raise ValueError(f"{rows} rows need as many positions, not {tuple(positions.shape)} for {len(slots)} slots")
    if not 0 < window <= ring or values.shape != keys.shape or stored.shape != keys.shape[:2]:
        raise ValueError(f"rings of {ring} places, {tuple(stored.shape)} positions, do not fit a window of {window}")
    if any(x.stride(1) != head_dim or x.stride(2) != 1 for x in (q, k, v)):
        raise ValueError("the heads of a row must be adjacent")
    positions = positions.contiguous()
    rotated, out = q.new_empty(rows, heads * head_dim), q.new_empty(rows, heads * head_dim)
    sizes = {
        "RING": ring, "HEADS": heads, "KV_HEADS": kv_heads, "HEAD_DIM": head_dim,
        "HEAD_PAD": triton.next_power_of_2(head_dim),
    }  # fmt: skip
    block_n = _WIDE_BLOCK_N if sizes["HEAD_PAD"] * q.element_size() > _WIDE_BYTES else _BLOCK_N
    _rotate_kernel[(rows, heads + kv_heads)](
        q, k, v, rotated, cos, sin, slots, positions, keys, values, stored, q.stride(0), k.stride(0), v.stride(0),
        cos.stride(0), len(cos) - 1, positions.shape[1], ROTARY_DIM=rotary_dim, INTERLEAVED=interleaved, num_warps=1,
        **sizes,
    )  # fmt: skip
    _attend_kernel[(rows, kv_heads)](
        rotated, out, slots, positions, keys, values, stored, window, positions.shape[1], scale * 1.4426950408889634,
        BLOCK_M=max(16, triton.next_power_of_2(heads // kv_heads)), BLOCK_N=block_n, num_warps=_WARPS, **sizes,
    )  # fmt: skip
    return out
