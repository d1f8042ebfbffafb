"""The causal depthwise convolution over the last few tokens of a sequence, and its state in pages of the pool.

Output channel c of token t is ``activation(sum_j weight[c, j] * x[t - taps + j, c] + bias[c])`` for j from 0 to
``taps``. The last ``taps`` inputs of a sequence are its state. Before a sequence's first token the inputs are zero.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .state_pages import DecodeRuns, StateRows

# Tokens and channels of a program of the convolution of prompts.
_TOKENS, _CHANNELS = 16, 128
# Channels of a program of the convolution of single tokens.
_DECODE_CHANNELS = 256
# Fields of a chunk in a chunk table, see ``gated_delta.chunk_table``.
CHUNK_FIELDS = 5


@triton.jit
def state_offsets(
    table_ptr, channels, tap, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr,
    PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, SEGMENTS: tl.constexpr, ok,
):  # fmt: skip
    """Return the offsets in the pool of the state of ``channels`` at ``tap``."""
    rows = FIRST_ROW + tap * SEGMENTS + channels // LENGTH
    pages = tl.load(table_ptr + FIRST_PAGE + rows // PER_PAGE, mask=ok, other=0).to(tl.int64)
    return pages * PAGE_ELEMS + (rows % PER_PAGE) * LENGTH + channels % LENGTH


@triton.jit
def _next_token(
    row, channels, ok, has_state, x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, out_ptr, x_stride, out_stride,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr,
    PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, HAS_BIAS: tl.constexpr,
    SILU: tl.constexpr,
):  # fmt: skip
    """Store a token's outputs, and shift its sequence's state; ``has_state``: channels whose state counts."""
    SEGMENTS: tl.constexpr = CHANNELS // LENGTH
    x = tl.load(x_ptr + row * x_stride + channels, mask=ok, other=0.0)
    weight_ptr += channels * (TAPS + 1)
    acc = x.to(tl.float32) * tl.load(weight_ptr + TAPS, mask=ok, other=0.0).to(tl.float32)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channels, mask=ok, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        offsets = state_offsets(
            table_ptr, channels, tap, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS, ok
        )
        # State that no token has written may be another sequence's NaN.
        state = tl.load(pool_ptr + offsets, mask=has_state, other=0.0)
        acc += state.to(tl.float32) * tl.load(weight_ptr + tap, mask=ok, other=0.0).to(tl.float32)
        if tap > 0:
            before = state_offsets(
                table_ptr, channels, tap - 1, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS, ok
            )
            tl.store(pool_ptr + before, state, mask=ok)
    last = state_offsets(
        table_ptr, channels, TAPS - 1, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS, ok
    )
    tl.store(pool_ptr + last, x, mask=ok)
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(out_ptr + row * out_stride + channels, acc.to(out_ptr.dtype.element_ty), mask=ok)


@triton.jit
def _run_input(
    at, replays, row, channels, ok, has_state, x_ptr, kept_ptr, pool_ptr, table_ptr, x_stride, kept_stride,
    TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr,
    PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Return the input of a run's row ``at``; before the first row it is of a replayed row, and before these of the
    state.
    """
    before = at + replays  # rows of the state are below 0
    fresh = tl.load(x_ptr + (row + at) * x_stride + channels, mask=ok & (at >= 0), other=0.0)
    kept = tl.load(kept_ptr + before * kept_stride + channels, mask=ok & (at < 0) & (before >= 0), other=0.0)
    from_state = has_state & (before < 0)
    offsets = state_offsets(
        table_ptr, channels, before + TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS, from_state
    )
    # State that no token has written may be another sequence's NaN.
    state = tl.load(pool_ptr + offsets, mask=from_state, other=0.0)
    return tl.where(at >= 0, fresh, tl.where(before >= 0, kept, state))


@triton.jit
def _next_tokens(
    row, channels, ok, has_state, x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, runs_ptr, kept_ptr, out_ptr,
    x_stride, out_stride, runs_stride, slot_stride, kept_stride,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr,
    PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, HAS_BIAS: tl.constexpr,
    SILU: tl.constexpr,
):  # fmt: skip
    """Store the outputs of a run, and the state after its certain rows, and keep the inputs of its drafts."""
    SEGMENTS: tl.constexpr = CHANNELS // LENGTH
    runs_ptr += row
    rows, drafts = tl.load(runs_ptr), tl.load(runs_ptr + runs_stride)
    replays, slot = tl.load(runs_ptr + 2 * runs_stride), tl.load(runs_ptr + 3 * runs_stride)
    kept_ptr += slot.to(tl.int64) * slot_stride
    weight_ptr += channels * (TAPS + 1)
    for index in range(rows):
        x = tl.load(x_ptr + (row + index) * x_stride + channels, mask=ok, other=0.0)
        acc = x.to(tl.float32) * tl.load(weight_ptr + TAPS, mask=ok, other=0.0).to(tl.float32)
        if HAS_BIAS:
            acc += tl.load(bias_ptr + channels, mask=ok, other=0.0).to(tl.float32)
        for tap in tl.static_range(TAPS):
            x = _run_input(
                index - TAPS + tap, replays, row, channels, ok, has_state, x_ptr, kept_ptr, pool_ptr, table_ptr,
                x_stride, kept_stride, TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS,
            )  # fmt: skip
            acc += x.to(tl.float32) * tl.load(weight_ptr + tap, mask=ok, other=0.0).to(tl.float32)
        if SILU:
            acc = acc * tl.sigmoid(acc)
        tl.store(out_ptr + (row + index) * out_stride + channels, acc.to(out_ptr.dtype.element_ty), mask=ok)
    tl.debug_barrier()  # other threads have read the state
    certain = rows - drafts
    for tap in tl.static_range(TAPS):
        # A row of the state comes from one behind it, which is not overwritten yet.
        x = _run_input(
            certain - TAPS + tap, replays, row, channels, ok, has_state, x_ptr, kept_ptr, pool_ptr, table_ptr,
            x_stride, kept_stride, TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS,
        )  # fmt: skip
        offsets = state_offsets(
            table_ptr, channels, tap, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS, ok
        )
        tl.debug_barrier()
        tl.store(pool_ptr + offsets, x, mask=ok & (certain > 0))
    tl.debug_barrier()  # the replayed rows are read
    first = tl.where(certain > 0, 0, replays)
    for index in range(drafts):
        x = tl.load(x_ptr + (row + certain + index) * x_stride + channels, mask=ok, other=0.0)
        tl.store(kept_ptr + (first + index) * kept_stride + channels, x, mask=ok)


@triton.jit(do_not_specialize=["table_stride", "runs_stride"])
def _decode_kernel(
    x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, lengths_ptr, runs_ptr, kept_ptr, out_ptr, x_stride, table_stride,
    out_stride, runs_stride, slot_stride, kept_stride,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr,
    PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, HAS_BIAS: tl.constexpr,
    SILU: tl.constexpr, BLOCK: tl.constexpr, RUNS: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """Convolve one token of a sequence; with ``RUNS`` the run that begins at this row, if any.

    ``PADDED``: rows without a state, whose first page is 0, are left alone.
    """
    row = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = channels < CHANNELS
    table_ptr += row * table_stride
    if PADDED:
        if tl.load(table_ptr) == 0:
            return
    has_state = ok & (tl.load(lengths_ptr + row) > 1)
    if RUNS:
        _next_tokens(
            row, channels, ok, has_state, x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, runs_ptr, kept_ptr,
            out_ptr, x_stride, out_stride, runs_stride, slot_stride, kept_stride,
            CHANNELS, TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, HAS_BIAS, SILU,
        )  # fmt: skip
    else:
        _next_token(
            row, channels, ok, has_state, x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, out_ptr, x_stride,
            out_stride, CHANNELS, TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, HAS_BIAS, SILU,
        )  # fmt: skip


@triton.jit
def _tap(
    x_ptr, pool_ptr, table_ptr, channels, tokens, first, context, x_stride, ok, ok_state,
    TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr,
    PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """Return the inputs at rows ``tokens [n]`` of a span that begins at row ``first``; earlier ones are its state."""
    inputs = tl.load(
        x_ptr + tokens.to(tl.int64)[:, None] * x_stride + channels[None, :],
        mask=ok & (tokens >= first)[:, None],
        other=0.0,
    )
    behind = tokens - first + TAPS  # row of the state, for tokens before the span
    from_state = ok_state & ((tokens < first) & (behind >= 0) & (context > 0))[:, None]
    offsets = state_offsets(
        table_ptr, tl.broadcast_to(channels[None, :], ok.shape), behind[:, None], FIRST_PAGE, FIRST_ROW, PER_PAGE,
        PAGE_ELEMS, LENGTH, SEGMENTS, from_state,
    )  # fmt: skip
    return tl.where((tokens >= first)[:, None], inputs, tl.load(pool_ptr + offsets, mask=from_state, other=0.0))


@triton.jit(do_not_specialize=["table_stride"])
def _prefill_kernel(
    x_ptr, weight_ptr, bias_ptr, pool_ptr, table_ptr, chunks_ptr, out_ptr, x_stride, table_stride, out_stride,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, FIRST_PAGE: tl.constexpr, FIRST_ROW: tl.constexpr,
    PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr, HAS_BIAS: tl.constexpr,
    SILU: tl.constexpr, FIELDS: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunks_ptr += tl.program_id(0) * FIELDS
    start, stop, first = tl.load(chunks_ptr), tl.load(chunks_ptr + 1), tl.load(chunks_ptr + 2)
    if start >= stop:  # padding
        return
    context, span = tl.load(chunks_ptr + 3), tl.load(chunks_ptr + 4)
    channels = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    tokens = start + tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    channels_ok = channels < CHANNELS
    ok = (tokens < stop)[:, None] & channels_ok[None, :]
    SEGMENTS: tl.constexpr = CHANNELS // LENGTH
    table_ptr += span.to(tl.int64) * table_stride
    acc = tl.zeros((BLOCK_T, BLOCK), dtype=tl.float32)
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channels, mask=channels_ok, other=0.0).to(tl.float32)[None, :]
    weight_ptr += channels * (TAPS + 1)
    if start + tl.program_id(1) * BLOCK_T < first + TAPS:  # the first outputs of a span read its state
        for tap in tl.static_range(TAPS + 1):
            inputs = _tap(
                x_ptr, pool_ptr, table_ptr, channels, tokens - TAPS + tap, first, context, x_stride, ok, ok,
                TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS,
            )  # fmt: skip
            weight = tl.load(weight_ptr + tap, mask=channels_ok, other=0.0).to(tl.float32)
            acc += inputs.to(tl.float32) * weight[None, :]
    else:
        first_inputs = x_ptr + (tokens - TAPS).to(tl.int64)[:, None] * x_stride + channels[None, :]
        for tap in tl.static_range(TAPS + 1):
            inputs = tl.load(first_inputs + tap * x_stride, mask=ok, other=0.0)
            weight = tl.load(weight_ptr + tap, mask=channels_ok, other=0.0).to(tl.float32)
            acc += inputs.to(tl.float32) * weight[None, :]
    if SILU:
        acc = acc * tl.sigmoid(acc)
    tl.store(
        out_ptr + tokens.to(tl.int64)[:, None] * out_stride + channels[None, :],
        acc.to(out_ptr.dtype.element_ty),
        mask=ok,
    )


@triton.jit(do_not_specialize=["table_stride"])
def _state_kernel(
    x_ptr, pool_ptr, table_ptr, spans_ptr, x_stride, table_stride,
    CHANNELS: tl.constexpr, TAPS: tl.constexpr, TAPS_PAD: tl.constexpr, FIRST_PAGE: tl.constexpr,
    FIRST_ROW: tl.constexpr, PER_PAGE: tl.constexpr, PAGE_ELEMS: tl.constexpr, LENGTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the last inputs of each span as the new state."""
    span = tl.program_id(0)
    first, stop, context = (
        tl.load(spans_ptr + span * 3),
        tl.load(spans_ptr + span * 3 + 1),
        tl.load(spans_ptr + span * 3 + 2),
    )
    channels = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    taps = tl.arange(0, TAPS_PAD)
    ok = (taps < TAPS)[:, None] & (channels < CHANNELS)[None, :]
    SEGMENTS: tl.constexpr = CHANNELS // LENGTH
    table_ptr += span.to(tl.int64) * table_stride
    inputs = _tap(
        x_ptr, pool_ptr, table_ptr, channels, stop - TAPS + taps, first, context, x_stride, ok, ok,
        TAPS, FIRST_PAGE, FIRST_ROW, PER_PAGE, PAGE_ELEMS, LENGTH, SEGMENTS,
    )  # fmt: skip
    # All loads of the old state come before the first store: they are of the same addresses in a span shorter than it.
    tl.debug_barrier()
    offsets = state_offsets(
        table_ptr, tl.broadcast_to(channels[None, :], ok.shape), taps[:, None], FIRST_PAGE, FIRST_ROW, PER_PAGE,
        PAGE_ELEMS, LENGTH, SEGMENTS, ok,
    )  # fmt: skip
    tl.store(pool_ptr + offsets, inputs, mask=ok)


def _constants(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rows: StateRows) -> dict[str, int]:
    channels, width = weight.shape
    if x.shape[1] != channels or (bias is not None and bias.shape != (channels,)):
        raise ValueError(f"x has {x.shape[1]} channels, but the convolution's weight is {tuple(weight.shape)}")
    if channels % rows.length or rows.count != (width - 1) * (channels // rows.length):
        raise ValueError(f"{rows.count} rows of {rows.length} are no state of {channels} channels and {width - 1} taps")
    return {
        "CHANNELS": channels, "TAPS": width - 1, "FIRST_PAGE": rows.first_page, "FIRST_ROW": rows.first,
        "PER_PAGE": rows.per_page, "PAGE_ELEMS": rows.page_elems, "LENGTH": rows.length,
    }  # fmt: skip


def convolve_tokens(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    pool: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    rows: StateRows,
    out: torch.Tensor,
    *,
    silu: bool,
    runs: DecodeRuns | None = None,
    padded: bool = False,
) -> None:
    """Convolve one token of each sequence, ``x [sequences, channels]``, and shift their states.

    ``weight [channels, taps + 1]``, ``pool [pages, page_elems]`` of one layer group in ``x``'s dtype, ``table
    [sequences, state pages]`` int32, ``lengths [sequences]`` int32 with this token: at 1 the state counts as zero.
    ``out`` is like x. For ``runs`` and ``padded`` see ``gated_delta.delta_tokens``.
    """
    constants = _constants(x, weight, bias, rows)
    if not len(x):
        return
    block = min(_DECODE_CHANNELS, triton.next_power_of_2(x.shape[1]))
    table_of_runs, kept = (
        (lengths, x[None]) if runs is None else (runs.table, x[None] if runs.kept is None else runs.kept)
    )
    _decode_kernel[(len(x), triton.cdiv(x.shape[1], block))](
        x, weight, weight if bias is None else bias, pool, table, lengths, table_of_runs, kept, out,
        x.stride(0), table.stride(0), out.stride(0), table_of_runs.stride(0), kept.stride(0), kept.stride(1),
        HAS_BIAS=bias is not None, SILU=silu, BLOCK=block, RUNS=runs is not None, PADDED=padded,
        num_stages=1 if runs is not None else 3,  # loads do not overtake the stores before
        num_warps=max(1, min(4, block // 64)), **constants,
    )  # fmt: skip


def convolve_spans(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    pool: torch.Tensor,
    table: torch.Tensor,
    spans: torch.Tensor,
    chunks: torch.Tensor,
    chunk: int,
    rows: StateRows,
    out: torch.Tensor,
    *,
    silu: bool,
) -> None:
    """Convolve spans of prompts, rows of ``x [tokens, channels]``, and write each span's last inputs as its state.

    ``spans [spans, 3]`` int32 has the first and last row (exclusive) and the context of each, ``chunks`` their parts of
    at most ``chunk`` tokens (``gated_delta.chunk_table``), ``table [spans, state pages]`` int32. Where the context is 0
    the state counts as zero. ``out`` is like ``x``; rows outside spans are not written. Empty spans and chunks are
    padding, as in ``gated_delta.delta_spans``.
    """
    constants = _constants(x, weight, bias, rows)
    if not len(spans):
        return
    channels = x.shape[1]
    block, tokens = min(_CHANNELS, triton.next_power_of_2(channels)), min(_TOKENS, chunk)
    _prefill_kernel[(len(chunks), triton.cdiv(chunk, tokens), triton.cdiv(channels, block))](
        x, weight, weight if bias is None else bias, pool, table, chunks, out,
        x.stride(0), table.stride(0), out.stride(0),
        HAS_BIAS=bias is not None, SILU=silu, FIELDS=CHUNK_FIELDS, BLOCK_T=tokens, BLOCK=block, **constants,
    )  # fmt: skip
    _state_kernel[(len(spans), triton.cdiv(channels, block))](
        x, pool, table, spans, x.stride(0), table.stride(0),
        TAPS_PAD=triton.next_power_of_2(weight.shape[1] - 1), BLOCK=block, **constants,
    )  # fmt: skip
