"""The gated delta rule (Gated DeltaNet, arXiv 2412.06464) over states in pages of the pool.

Each value head has a state S ``[value_dim, key_dim]`` in float32. Per token, with the normalised query q and key k,
the decay a = exp(-exp(A_log) softplus(a + dt_bias)) and the rate b = sigmoid(b):
``S = a S;  S += b (v - S k) k^T;  out = S q / sqrt(key_dim)``. Prompts are computed in chunks of ``CHUNK`` tokens with
the WY form of the paper (section 3.3): within a chunk all updates are matrix products, and only the states of chunks
follow each other. The output is normed by head and multiplied by ``silu(z)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .pdl import is_hopper
from .short_convolution import CHUNK_FIELDS
from .state_pages import CHUNK, DecodeRuns, DeltaShape, StateRows

# Fields of a span in a span table: first row, last row exclusive, context.
SPAN_FIELDS = 3
# Value columns of a program that walks over a span's chunks, and the chunks that it loads at a time (an H200: 60 to 134
# us for 1 to 32 spans of 4,096 tokens together, where one at a time takes 83 to 198), in 200 KB of shared memory.
_SCAN_COLUMNS, _SCAN_STAGES = 64, 3


def chunk_table(spans: Sequence[tuple[int, int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the int32 tables ``[spans, 3]`` and ``[chunks, 5]`` of spans (first row, last row exclusive, context).

    A chunk is its first and last row, its span's first row, context and index.
    """
    chunks = [
        (start, min(start + CHUNK, stop), first, context, index)
        for index, (first, stop, context) in enumerate(spans)
        for start in range(first, stop, CHUNK)
    ]
    return (
        torch.tensor(spans, dtype=torch.int32).view(-1, 3),
        torch.tensor(chunks, dtype=torch.int32).view(-1, CHUNK_FIELDS),
    )


@triton.jit
def _gates(a, b, a_log, dt_bias, BETA_SCALE: tl.constexpr):
    """Return the logarithm of the decay, and the rate, in float32."""
    x = a.to(tl.float32) + dt_bias.to(tl.float32)
    softplus = tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
    return -tl.exp(a_log.to(tl.float32)) * softplus, BETA_SCALE * tl.sigmoid(b.to(tl.float32))


@triton.jit
def _state_pointers(
    pool_ptr, table_ptr, head, values, keys, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr,
    PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    """Return pointers ``[values, keys]`` to a head's state."""
    rows = FIRST_ROW + head * VALUE_DIM + values
    pages = tl.load(table_ptr + FIRST_PAGE + rows // PER_PAGE, mask=values < VALUE_DIM, other=0).to(tl.int64)
    return pool_ptr + (pages * PAGE_ELEMS + (rows % PER_PAGE) * KEY_DIM)[:, None] + keys[None, :]


@triton.jit
def _normed_and_gated(out, z, weight, EPS: tl.constexpr, VALUE_DIM: tl.constexpr, dtype: tl.constexpr):
    """Return ``norm(out) * weight * silu(z)`` over the last axis; out is first rounded as the reference rounds it."""
    out = out.to(dtype).to(tl.float32)
    mean = tl.sum(out * out, axis=len(out.shape) - 1, keep_dims=True) / VALUE_DIM
    normed = (out * tl.rsqrt(mean + EPS)).to(dtype).to(tl.float32) * weight.to(tl.float32)
    z = z.to(tl.float32)
    return normed.to(dtype).to(tl.float32) * (z * tl.sigmoid(z))


@triton.jit
def _next_token(
    state, pointers, row, head, keys, values, qkv_ptr, a_ptr, b_ptr, z_ptr, a_log_ptr, dt_bias_ptr, norm_ptr, out_ptr,
    qkv_stride, gate_stride, z_stride, out_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, SCALE: tl.constexpr,
    EPS: tl.constexpr, BETA_SCALE: tl.constexpr,
):  # fmt: skip
    """Store a token's output and the state ``[values, keys]`` behind it."""
    keys_ok, values_ok = keys < KEY_DIM, values < VALUE_DIM
    qkv_ptr += row * qkv_stride
    key_head = head // (HEADS // KEY_HEADS) * KEY_DIM
    q = tl.load(qkv_ptr + key_head + keys, mask=keys_ok, other=0.0).to(tl.float32)
    k = tl.load(qkv_ptr + KEY_HEADS * KEY_DIM + key_head + keys, mask=keys_ok, other=0.0).to(tl.float32)
    v = tl.load(qkv_ptr + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + values, mask=values_ok, other=0.0).to(tl.float32)
    q = q * (tl.rsqrt(tl.sum(q * q) + 1e-6) * SCALE)
    k = k * tl.rsqrt(tl.sum(k * k) + 1e-6)
    decay, beta = _gates(
        tl.load(a_ptr + row * gate_stride + head), tl.load(b_ptr + row * gate_stride + head), tl.load(a_log_ptr + head),
        tl.load(dt_bias_ptr + head), BETA_SCALE,
    )  # fmt: skip
    state = state * tl.exp(decay)
    change = (v - tl.sum(state * k[None, :], axis=1)) * beta
    state += change[:, None] * k[None, :]
    tl.store(pointers, state, mask=values_ok[:, None] & keys_ok[None, :])
    out = tl.sum(state * q[None, :], axis=1)
    z = tl.load(z_ptr + row * z_stride + head * VALUE_DIM + values, mask=values_ok, other=0.0)
    weight = tl.load(norm_ptr + values, mask=values_ok, other=0.0)
    out = _normed_and_gated(out, z, weight, EPS, VALUE_DIM, out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * out_stride + head * VALUE_DIM + values, out.to(out_ptr.dtype.element_ty), mask=values_ok)


@triton.jit
def _next_tokens(
    state, pointers, row, head, keys, values, qkv_ptr, a_ptr, b_ptr, z_ptr, a_log_ptr, dt_bias_ptr, norm_ptr, runs_ptr,
    kept_ptr, out_ptr, qkv_stride, gate_stride, z_stride, out_stride, runs_stride, slot_stride, kept_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, SCALE: tl.constexpr,
    EPS: tl.constexpr, BETA_SCALE: tl.constexpr, KEPT_KEYS: tl.constexpr, KEPT_VALUES: tl.constexpr,
    KEPT_GATES: tl.constexpr,
):  # fmt: skip
    """Take the replayed rows into a run's state, then process its rows: store their outputs and the state after the
    certain ones, and keep the inputs of drafts.

    Replayed rows and others run the same instructions, so that a state has the same bits however its tokens came.
    """
    keys_ok, values_ok = keys < KEY_DIM, values < VALUE_DIM
    runs_ptr += row
    rows, drafts = tl.load(runs_ptr), tl.load(runs_ptr + runs_stride)
    replays, slot = tl.load(runs_ptr + 2 * runs_stride), tl.load(runs_ptr + 3 * runs_stride)
    kept_ptr += slot.to(tl.int64) * slot_stride
    certain = rows - drafts
    first_kept = tl.where(certain > 0, 0, replays)
    key_head = head // (HEADS // KEY_HEADS) * KEY_DIM
    a_log, dt_bias = tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head)
    weight = tl.load(norm_ptr + values, mask=values_ok, other=0.0)
    for index in range(replays + rows):
        at = index - replays
        is_replay = at < 0
        fresh, from_kept = keys_ok & (at >= 0), kept_ptr + index * kept_stride
        inputs = qkv_ptr + (row + at) * qkv_stride
        q = tl.load(inputs + key_head + keys, mask=fresh, other=0.0).to(tl.float32)
        k_in = tl.where(
            is_replay,
            tl.load(from_kept + KEPT_KEYS + head * KEY_DIM + keys, mask=keys_ok & is_replay, other=0.0),
            tl.load(inputs + KEY_HEADS * KEY_DIM + key_head + keys, mask=fresh, other=0.0),
        )
        v_in = tl.where(
            is_replay,
            tl.load(from_kept + KEPT_VALUES + head * VALUE_DIM + values, mask=values_ok & is_replay, other=0.0),
            tl.load(
                inputs + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + values, mask=values_ok & (at >= 0), other=0.0
            ),
        )
        gates = (row + at) * gate_stride + head
        a = tl.where(
            is_replay,
            tl.load(from_kept + KEPT_GATES + HEADS + head, mask=is_replay, other=0.0),
            tl.load(a_ptr + gates, mask=at >= 0, other=0.0),
        )
        b = tl.where(
            is_replay,
            tl.load(from_kept + KEPT_GATES + head, mask=is_replay, other=0.0),
            tl.load(b_ptr + gates, mask=at >= 0, other=0.0),
        )
        k, v = k_in.to(tl.float32), v_in.to(tl.float32)
        q = q * (tl.rsqrt(tl.sum(q * q) + 1e-6) * SCALE)
        k = k * tl.rsqrt(tl.sum(k * k) + 1e-6)
        decay, beta = _gates(a, b, a_log, dt_bias, BETA_SCALE)
        state = state * tl.exp(decay)
        change = (v - tl.sum(state * k[None, :], axis=1)) * beta
        state += change[:, None] * k[None, :]
        is_last = (at >= 0) & (at == certain - 1)
        tl.store(pointers, state, mask=values_ok[:, None] & keys_ok[None, :] & is_last)
        out = tl.sum(state * q[None, :], axis=1)
        z = tl.load(z_ptr + (row + at) * z_stride + head * VALUE_DIM + values, mask=values_ok & (at >= 0), other=0.0)
        out = _normed_and_gated(out, z, weight, EPS, VALUE_DIM, out_ptr.dtype.element_ty)
        tl.store(
            out_ptr + (row + at) * out_stride + head * VALUE_DIM + values, out.to(out_ptr.dtype.element_ty),
            mask=values_ok & (at >= 0),
        )  # fmt: skip
        tl.debug_barrier()  # other threads have read a replayed row before a draft is kept in its place
        is_draft = (at >= 0) & (at >= certain)
        to_kept = kept_ptr + (first_kept + at - certain) * kept_stride
        tl.store(to_kept + KEPT_KEYS + head * KEY_DIM + keys, k_in, mask=keys_ok & is_draft)
        tl.store(to_kept + KEPT_VALUES + head * VALUE_DIM + values, v_in, mask=values_ok & is_draft)
        tl.store(to_kept + KEPT_GATES + head, b, mask=is_draft)
        tl.store(to_kept + KEPT_GATES + HEADS + head, a, mask=is_draft)


@triton.jit(do_not_specialize=["table_stride", "runs_stride"])
def _decode_kernel(
    qkv_ptr, a_ptr, b_ptr, z_ptr, a_log_ptr, dt_bias_ptr, norm_ptr, pool_ptr, table_ptr, lengths_ptr, runs_ptr,
    kept_ptr, out_ptr, qkv_stride, gate_stride, z_stride, table_stride, out_stride, runs_stride, slot_stride,
    kept_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr, SCALE: tl.constexpr, EPS: tl.constexpr, BETA_SCALE: tl.constexpr,
    FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr,
    KEPT_KEYS: tl.constexpr, KEPT_VALUES: tl.constexpr, KEPT_GATES: tl.constexpr, RUNS: tl.constexpr,
    PADDED: tl.constexpr,
):  # fmt: skip
    """Process one token of a sequence; with ``RUNS`` the run that begins at this row, if any.

    ``PADDED``: rows without a state, whose first page is 0, are left alone.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    table_ptr += row * table_stride
    if PADDED:
        if tl.load(table_ptr) == 0:
            return
    keys, values = tl.arange(0, KEY_PAD), tl.arange(0, VALUE_PAD)
    pointers = _state_pointers(
        pool_ptr, table_ptr, head, values, keys, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS,
        KEY_DIM, VALUE_DIM,
    )  # fmt: skip
    # A state that no token has written may be another sequence's NaN.
    has_state = tl.load(lengths_ptr + row) > 1
    if RUNS:
        has_state = has_state & (tl.load(runs_ptr + row) > 0)
    ok = (values < VALUE_DIM)[:, None] & (keys < KEY_DIM)[None, :]
    state = tl.load(pointers, mask=ok & has_state, other=0.0)
    if RUNS:
        _next_tokens(
            state, pointers, row, head, keys, values, qkv_ptr, a_ptr, b_ptr, z_ptr, a_log_ptr, dt_bias_ptr, norm_ptr,
            runs_ptr, kept_ptr, out_ptr, qkv_stride, gate_stride, z_stride, out_stride, runs_stride, slot_stride,
            kept_stride, HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, SCALE, EPS, BETA_SCALE, KEPT_KEYS, KEPT_VALUES,
            KEPT_GATES,
        )  # fmt: skip
    else:
        _next_token(
            state, pointers, row, head, keys, values, qkv_ptr, a_ptr, b_ptr, z_ptr, a_log_ptr, dt_bias_ptr, norm_ptr,
            out_ptr, qkv_stride, gate_stride, z_stride, out_stride,
            HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, SCALE, EPS, BETA_SCALE,
        )  # fmt: skip


@triton.jit
def _product(a, b, HALVES: tl.constexpr):
    """Multiply float32 matrices; with ``HALVES`` in float16, which has as many digits as tf32 in half the time."""
    return tl.dot(a.to(tl.float16), b.to(tl.float16)) if HALVES else tl.dot(a, b, input_precision="ieee")


@triton.jit
def _inverse(a, HALVES: tl.constexpr, CHUNK: tl.constexpr):
    """Return ``(I + a)^-1`` of a strictly lower triangular matrix, by blocks of twice the size in each round.

    Forward substitution by blocks is stable where a product of powers of ``a`` is not: equal keys make those cancel.
    ``HALVES``: in float16, whose range is enough, since the inverse is a product of reflections and contractions
    between keys of length one, and has no element above 2. A step of Newton's method then squares the error. Its
    residual is nearly that of float32: the inverse is rounded before, and ``a`` is the sum of two float16 matrices.
    """
    i, j = tl.arange(0, CHUNK)[:, None], tl.arange(0, CHUNK)[None, :]
    inverse = tl.where(i == j, 1.0, 0.0) - tl.where((i // 2 == j // 2), a, 0.0)
    for step in range(1, 6):
        below = tl.where((i >> (step + 1) == j >> (step + 1)) & (i >> step > j >> step), a, 0.0)
        inverse -= _product(_product(inverse, below, HALVES), inverse, HALVES)
    if HALVES:
        rounded = inverse.to(tl.float16)
        inverse = rounded.to(tl.float32)
        larger = a.to(tl.float16)
        residual = tl.dot(larger, rounded, inverse - tl.where(i == j, 1.0, 0.0))
        residual = tl.dot((a - larger.to(tl.float32)).to(tl.float16), rounded, residual)
        inverse -= tl.dot(rounded, residual.to(tl.float16))
    return inverse


@triton.jit
def _keys(ptr, tokens, ok, stride, keys, KEY_DIM: tl.constexpr):
    """Load rows ``[tokens, keys]`` and norm each to length one, in float32."""
    x = tl.load(
        ptr + tokens[:, None] * stride + keys[None, :], mask=ok[:, None] & (keys < KEY_DIM)[None, :], other=0.0
    ).to(tl.float32)
    return x * tl.rsqrt(tl.sum(x * x, axis=1) + 1e-6)[:, None]


@triton.jit
def _chunk_kernel(
    qkv_ptr, a_ptr, b_ptr, a_log_ptr, dt_bias_ptr, chunks_ptr, q_ptr, k_ptr, w_ptr, u_ptr, scores_ptr, decays_ptr,
    qkv_stride, gate_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr, SCALE: tl.constexpr, BETA_SCALE: tl.constexpr, FIELDS: tl.constexpr,
    CHUNK: tl.constexpr, PRECISION: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """Compute what a chunk's tokens need of each other: new values before the state's part, and scores.

    The first head of each key head stores the normalised queries, times ``SCALE``, and keys.
    """
    chunk, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    start, stop = tl.load(chunks_ptr + chunk * FIELDS), tl.load(chunks_ptr + chunk * FIELDS + 1)
    if start >= stop:  # padding
        return
    t, keys, values = tl.arange(0, CHUNK), tl.arange(0, KEY_PAD), tl.arange(0, VALUE_PAD)
    tokens, ok = (start + t).to(tl.int64), start + t < stop
    dtype: tl.constexpr = w_ptr.dtype.element_ty
    a = tl.load(a_ptr + tokens * gate_stride + head, mask=ok, other=0.0)
    b = tl.load(b_ptr + tokens * gate_stride + head, mask=ok, other=0.0)
    decay, beta = _gates(a, b, tl.load(a_log_ptr + head), tl.load(dt_bias_ptr + head), BETA_SCALE)
    decay, beta = tl.where(ok, decay, 0.0), tl.where(ok, beta, 0.0)
    total = tl.cumsum(decay, axis=0)
    sharing: tl.constexpr = HEADS // KEY_HEADS
    key_head = head // sharing * KEY_DIM
    q = (_keys(qkv_ptr + key_head, tokens, ok, qkv_stride, keys, KEY_DIM) * SCALE).to(dtype)
    k = _keys(qkv_ptr + KEY_HEADS * KEY_DIM + key_head, tokens, ok, qkv_stride, keys, KEY_DIM).to(dtype)
    if head % sharing == 0:
        of_keys = ((chunk * KEY_HEADS + head // sharing) * CHUNK + t)[:, None] * KEY_PAD + keys[None, :]
        tl.store(q_ptr + of_keys, q)
        tl.store(k_ptr + of_keys, k)
    place = (chunk * HEADS + head) * CHUNK + t
    between = tl.exp(tl.where(t[:, None] >= t[None, :], total[:, None] - total[None, :], 0.0))
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    scores = tl.where(t[:, None] >= t[None, :], scores * between, 0.0)
    tl.store(scores_ptr + place[:, None] * CHUNK + t[None, :], scores.to(dtype))
    products = tl.dot(k, tl.trans(k), input_precision=PRECISION) * beta[:, None]
    products = tl.where(t[:, None] > t[None, :], products * between, 0.0)
    inverse = _inverse(products, HALVES, CHUNK) * beta[None, :]
    w = tl.dot((inverse * tl.exp(total)[None, :]).to(dtype), k, input_precision=PRECISION)
    tl.store(w_ptr + place[:, None] * KEY_PAD + keys[None, :], w.to(dtype))
    v = tl.load(
        qkv_ptr + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + tokens[:, None] * qkv_stride + values[None, :],
        mask=ok[:, None] & (values < VALUE_DIM)[None, :],
        other=0.0,
    )
    u = tl.dot(inverse.to(dtype), v, input_precision=PRECISION)
    tl.store(u_ptr + place[:, None] * VALUE_PAD + values[None, :], u.to(dtype))
    tl.store(decays_ptr + place, total)


@triton.jit(do_not_specialize=["table_stride"])
def _scan_kernel(
    q_ptr, k_ptr, w_ptr, u_ptr, scores_ptr, decays_ptr, spans_ptr, first_chunk_ptr, pool_ptr, table_ptr, out_ptr,
    table_stride, out_stride,
    HEADS: tl.constexpr, KEY_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    KEY_PAD: tl.constexpr, VALUE_PAD: tl.constexpr, FIRST_PAGE: tl.constexpr,
    FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Walk over a span's chunks with some columns of a head's state: add its part to the outputs, and update it."""
    span, head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, stop = tl.load(spans_ptr + span * 3), tl.load(spans_ptr + span * 3 + 1)
    if first >= stop:  # padding
        return
    context, chunk = tl.load(spans_ptr + span * 3 + 2), tl.load(first_chunk_ptr + span).to(tl.int64)
    t, keys, values = tl.arange(0, CHUNK), tl.arange(0, KEY_PAD), tile * COLUMNS + tl.arange(0, COLUMNS)
    keys_ok, values_ok = keys < KEY_DIM, values < VALUE_DIM
    dtype: tl.constexpr = w_ptr.dtype.element_ty
    pointers = _state_pointers(
        pool_ptr, table_ptr + span.to(tl.int64) * table_stride, head, values, keys, FIRST_PAGE, FIRST_ROW, PER_PAGE,
        PAGE_ELEMS, KEY_DIM, VALUE_DIM,
    )  # fmt: skip
    state_ok = values_ok[:, None] & keys_ok[None, :]
    state = tl.load(pointers, mask=state_ok & (context > 0), other=0.0)
    for start in range(first, stop, CHUNK):
        tokens, ok = (start + t).to(tl.int64), start + t < stop
        place = (chunk * HEADS + head) * CHUNK + t
        total = tl.load(decays_ptr + place)
        end = tl.load(decays_ptr + (chunk * HEADS + head) * CHUNK + CHUNK - 1)
        of_keys = (chunk * KEY_HEADS + head // (HEADS // KEY_HEADS)) * CHUNK + t
        q = tl.load(q_ptr + of_keys[:, None] * KEY_PAD + keys[None, :])
        k = tl.load(k_ptr + of_keys[:, None] * KEY_PAD + keys[None, :])
        w = tl.load(w_ptr + place[:, None] * KEY_PAD + keys[None, :])
        u = tl.load(u_ptr + place[:, None] * VALUE_PAD + values[None, :], mask=(values < VALUE_PAD)[None, :], other=0.0)
        scores = tl.load(scores_ptr + place[:, None] * CHUNK + t[None, :])
        before = tl.trans(state.to(dtype))
        new = u.to(tl.float32) - tl.dot(w, before, input_precision=PRECISION)
        out = tl.dot(q, before, input_precision=PRECISION) * tl.exp(total)[:, None]
        out = tl.dot(scores, new.to(dtype), out, input_precision=PRECISION)
        tl.store(
            out_ptr + tokens[:, None] * out_stride + head * VALUE_DIM + values[None, :],
            out.to(out_ptr.dtype.element_ty),
            mask=ok[:, None] & values_ok[None, :],
        )
        new = (new * tl.exp(end - total)[:, None]).to(dtype)
        state = tl.dot(tl.trans(new), k, state * tl.exp(end), input_precision=PRECISION)
        chunk += 1
    tl.store(pointers, state, mask=state_ok)


@triton.jit
def _norm_kernel(
    x_ptr, z_ptr, norm_ptr, spans_ptr, x_stride, z_stride,
    HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, VALUE_PAD: tl.constexpr, HEADS_PAD: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if row < tl.load(spans_ptr):
        return
    heads, values = tl.program_id(1) * HEADS_PAD + tl.arange(0, HEADS_PAD), tl.arange(0, VALUE_PAD)
    ok = (heads < HEADS)[:, None] & (values < VALUE_DIM)[None, :]
    columns = heads[:, None] * VALUE_DIM + values[None, :]
    x = tl.load(x_ptr + row * x_stride + columns, mask=ok, other=0.0)
    z = tl.load(z_ptr + row * z_stride + columns, mask=ok, other=0.0)
    weight = tl.load(norm_ptr + values, mask=values < VALUE_DIM, other=0.0)[None, :]
    out = _normed_and_gated(x, z, weight, EPS, VALUE_DIM, x_ptr.dtype.element_ty)
    tl.store(x_ptr + row * x_stride + columns, out.to(x_ptr.dtype.element_ty), mask=ok)


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """The small parameters of a layer: ``a_log [heads]``, ``dt_bias [heads]``, ``norm [value_dim]``."""

    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """The projections of a batch's tokens on one rank.

    ``qkv [tokens, channels]`` after the convolution, ``a`` and ``b`` ``[tokens, heads]`` with equal strides, and ``z``
    ``[tokens, heads * value_dim]``.
    """

    qkv: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    z: torch.Tensor

    def rows(self, start: int, stop: int) -> DeltaInputs:
        """Return the projections of some tokens."""
        return DeltaInputs(self.qkv[start:stop], self.a[start:stop], self.b[start:stop], self.z[start:stop])


def _check(inputs: DeltaInputs, weights: DeltaWeights, shape: DeltaShape, rows: StateRows) -> dict[str, int]:
    tokens = len(inputs.qkv)
    sizes = {
        "qkv": (inputs.qkv, shape.channels), "a": (inputs.a, shape.heads), "b": (inputs.b, shape.heads),
        "z": (inputs.z, shape.heads * shape.value_dim),
    }  # fmt: skip
    for name, (tensor, width) in sizes.items():
        if tensor.shape != (tokens, width) or tensor.stride(1) != 1:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, but must have {tokens} rows of {width} elements")
    if inputs.a.stride(0) != inputs.b.stride(0):
        raise ValueError("a and b must have the same distance between rows")
    if weights.norm.shape != (shape.value_dim,) or weights.a_log.shape != (shape.heads,):
        raise ValueError(f"the layer's parameters are not those of {shape.heads} heads of {shape.value_dim}")
    if rows.length != shape.key_dim or rows.count != shape.heads * shape.value_dim:
        raise ValueError(f"{rows.count} rows of {rows.length} are no state of {shape}")
    return {
        "HEADS": shape.heads, "KEY_HEADS": shape.key_heads, "KEY_DIM": shape.key_dim, "VALUE_DIM": shape.value_dim,
        "KEY_PAD": max(16, triton.next_power_of_2(shape.key_dim)),
        "VALUE_PAD": max(16, triton.next_power_of_2(shape.value_dim)),
    }  # fmt: skip


def _places(rows: StateRows) -> dict[str, int]:
    return {
        "FIRST_PAGE": rows.first_page, "FIRST_ROW": rows.first, "PER_PAGE": rows.per_page,
        "PAGE_ELEMS": rows.page_elems,
    }  # fmt: skip


def delta_tokens(
    inputs: DeltaInputs,
    weights: DeltaWeights,
    pool: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    rows: StateRows,
    shape: DeltaShape,
    out: torch.Tensor,
    runs: DecodeRuns | None = None,
    padded: bool = False,
) -> None:
    """Process one token of each sequence: update its state and write ``out [sequences, heads * value_dim]``.

    ``pool [pages, page_elems]`` of one layer group as float32, ``table [sequences, state pages]`` int32, ``lengths
    [sequences]`` int32 with this token: at 1 the state counts as zero. With ``runs`` a sequence may have several rows,
    of which the last are drafts; results are bitwise those of the same rows one by one. ``padded``: rows whose first
    page is 0 are no sequences', and their outputs are not written.
    """
    sizes = _check(inputs, weights, shape, rows)
    if not len(out):
        return
    qkv, a, b, z = inputs.qkv, inputs.a, inputs.b, inputs.z
    kept_keys, kept_values, kept_gates, _ = shape.kept_columns
    table_of_runs, kept = (
        (lengths, qkv[None]) if runs is None else (runs.table, qkv[None] if runs.kept is None else runs.kept)
    )
    _decode_kernel[(len(out), shape.heads)](
        qkv, a, b, z, weights.a_log, weights.dt_bias, weights.norm, pool, table, lengths, table_of_runs, kept, out,
        qkv.stride(0), a.stride(0), z.stride(0), table.stride(0), out.stride(0),
        table_of_runs.stride(0), kept.stride(0), kept.stride(1),
        EPS=shape.eps, BETA_SCALE=shape.beta_scale, SCALE=shape.key_dim**-0.5, RUNS=runs is not None, PADDED=padded,
        KEPT_KEYS=kept_keys, KEPT_VALUES=kept_values, KEPT_GATES=kept_gates,
        num_stages=1 if runs is not None else 3,  # loads do not overtake the stores before
        # Without runs more programs fit beside each other, so that more of the states' bytes are on their way.
        num_warps=8 if runs is not None and sizes["KEY_PAD"] * sizes["VALUE_PAD"] >= 128 * 128 else 4,
        **sizes, **_places(rows),
    )  # fmt: skip


def delta_spans(
    inputs: DeltaInputs,
    weights: DeltaWeights,
    pool: torch.Tensor,
    table: torch.Tensor,
    spans: torch.Tensor,
    chunks: torch.Tensor,
    first_chunks: torch.Tensor,
    rows: StateRows,
    shape: DeltaShape,
    out: torch.Tensor,
) -> None:
    """Process spans of prompts: update each span's state and write its rows of ``out [tokens, heads * value_dim]``.

    ``spans`` and ``chunks`` are those of ``chunk_table``, ``first_chunks [spans]`` int32 the index of each span's first
    chunk, ``table [spans, state pages]`` int32. Where the context is 0 the state counts as zero. Empty spans and chunks
    are padding, whose table rows are not read.
    """
    sizes = _check(inputs, weights, shape, rows)
    if not len(spans):
        return
    qkv, a, b = inputs.qkv, inputs.a, inputs.b
    # Triton 3.6 compiled products of 64 x 64 wrong where keys are narrow: they wrote outside of shared memory.
    halves = qkv.dtype is not torch.float32 and qkv.device.type != "cpu" and sizes["KEY_PAD"] >= 64
    precision = "ieee" if qkv.dtype is torch.float32 else "tf32"  # bfloat16 and float16 are multiplied as they are
    places = len(chunks), shape.heads, CHUNK
    of_keys = len(chunks), shape.key_heads, CHUNK, sizes["KEY_PAD"]
    q = torch.empty(of_keys, dtype=qkv.dtype, device=qkv.device)
    k = torch.empty(of_keys, dtype=qkv.dtype, device=qkv.device)
    w = torch.empty(*places, sizes["KEY_PAD"], dtype=qkv.dtype, device=qkv.device)
    u = torch.empty(*places, sizes["VALUE_PAD"], dtype=qkv.dtype, device=qkv.device)
    scores = torch.empty(*places, CHUNK, dtype=qkv.dtype, device=qkv.device)
    decays = torch.empty(*places, dtype=torch.float32, device=qkv.device)
    _chunk_kernel[(len(chunks), shape.heads)](
        qkv, a, b, weights.a_log, weights.dt_bias, chunks, q, k, w, u, scores, decays, qkv.stride(0), a.stride(0),
        BETA_SCALE=shape.beta_scale, SCALE=shape.key_dim**-0.5, FIELDS=CHUNK_FIELDS, CHUNK=CHUNK, PRECISION=precision,
        HALVES=halves, num_warps=4,
        **sizes,
    )  # fmt: skip
    columns = min(_SCAN_COLUMNS, sizes["VALUE_PAD"])
    _scan_kernel[(len(spans), shape.heads, triton.cdiv(shape.value_dim, columns))](
        q, k, w, u, scores, decays, spans, first_chunks, pool, table, out, table.stride(0), out.stride(0),
        CHUNK=CHUNK, COLUMNS=columns, PRECISION=precision, num_warps=4,
        num_stages=_SCAN_STAGES if is_hopper(qkv.device) else 1,
        **sizes, **_places(rows),
    )  # fmt: skip


def norm_and_gate(
    out: torch.Tensor, z: torch.Tensor, norm: torch.Tensor, spans: torch.Tensor, shape: DeltaShape
) -> None:
    """Compute ``rms_norm(out) * norm * silu(z)`` by head, in place, from the first row of ``spans`` on; both ``[tokens,
    heads * value_dim]``.
    """
    if not len(out):
        return
    value_pad = triton.next_power_of_2(shape.value_dim)
    heads_pad = min(triton.next_power_of_2(shape.heads), max(1, 2048 // value_pad))
    _norm_kernel[(len(out), triton.cdiv(shape.heads, heads_pad))](
        out, z, norm, spans, out.stride(0), z.stride(0),
        HEADS=shape.heads, VALUE_DIM=shape.value_dim, VALUE_PAD=value_pad, HEADS_PAD=heads_pad, EPS=shape.eps,
    )  # fmt: skip
