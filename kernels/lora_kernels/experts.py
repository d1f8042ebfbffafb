"""A mixture of experts: the products of pairs of a token and one of its experts, sorted by expert.

Nothing is read on the host, and the launches depend only on the number of tokens, so a CUDA graph can capture them
with any routing: there are as many programs as the worst routing needs, and programs without a block of pairs return.
Each token's experts are summed in order of their weights, so the result does not vary between runs.

Experts in FP8 (``Fp8Stack``) are multiplied by activations in FP8, quantised token by token as for matrices
(``fp8.py``). Converting the experts to 16 bits instead takes longer than reading them (docs/LOG.md). Sums are
multiplied by the scales, in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .expert_lora import (
    MANY,
    ExpertLora,
    add_expert_lora,
    add_lora_of_block,
    block_of_pairs,
    expand_experts,
    factor_of,
    have_one_slot,
    range_of_slots,
    shrink_experts,
)
from .fp8 import quantise_rows
from .fp8_tensors import BLOCK, Fp8Rows, Fp8Stack
from .kernel_variants import block_columns
from .mxfp4 import MXFP4_BLOCK, PLACES, Mxfp4Stack, ptx_of_part
from .pdl import grid_dependency_wait, has_sm90, launch_dependents, pdl_options


class Routing(NamedTuple):
    """The experts of each token and their weights, best first, and the pairs of both sorted by expert.

    ``experts`` int32 and ``weights`` float32 are ``[tokens, per_token]``. ``order [pairs]`` int32 holds the index of
    each sorted pair, ``starts [experts + 1]`` int32 the first sorted pair of each expert.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    order: torch.Tensor
    starts: torch.Tensor


class SigmoidScores(NamedTuple):
    """Weights that are sigmoids of the router's scores, times ``scale``.

    Experts are chosen by the sigmoids plus ``correction [experts]`` float32, in the ``kept_groups`` of ``groups`` equal
    groups whose two best sums are largest.
    """

    correction: torch.Tensor
    groups: int
    kept_groups: int
    scale: float


class ExpertsConfig(NamedTuple):
    """A program's tile (pairs, outputs, inputs of 16 bits or of 8), its warps, and the stages of the loop's pipeline.

    It is for up to ``most`` pairs per expert, on average.
    """

    pairs: int
    outputs: int
    inputs: int
    warps: int
    stages: int
    most: float = float("inf")


class ClampedSwiglu(NamedTuple):
    """The activation ``g * sigmoid(slope * g) * (1 + u)``, with gate ``g`` at most, and up ``u`` within, ``limit``."""

    slope: float
    limit: float


# Scales of the experts' matrices.
_PLAIN, _BY_ROW, _IN_BLOCKS, _MXFP4 = 0, 1, 2, 3
# Configurations by form of the scales, and by increasing pairs per expert, of which an expert has more than the
# average. Converting MXFP4 takes longer for each tile of pairs, so that its tiles hold more pairs (docs/LOG.md).
_FP8_CONFIGS = (
    ExpertsConfig(16, 64, 128, 4, 3, 8), ExpertsConfig(32, 64, 128, 4, 3, 32), ExpertsConfig(64, 64, 128, 4, 4, 64),
    ExpertsConfig(128, 64, 128, 4, 3),
)  # fmt: skip
CONFIGS = {
    _PLAIN: (
        ExpertsConfig(16, 64, 128, 4, 3, 16), ExpertsConfig(64, 64, 64, 4, 3, 64), ExpertsConfig(128, 128, 64, 8, 4),
    ),
    _BY_ROW: _FP8_CONFIGS,
    _IN_BLOCKS: _FP8_CONFIGS,
    _MXFP4: (
        ExpertsConfig(16, 128, 128, 4, 3, 8), ExpertsConfig(32, 128, 128, 4, 3, 32),
        ExpertsConfig(64, 128, 128, 4, 3, 128), ExpertsConfig(128, 128, 64, 8, 3),
    ),
}  # fmt: skip
# Pairs that a program sorts, of few and of many pairs, and blocks of such pairs whose counts it reads at a time.
_SORTED, _SORTED_OF_MANY, _BLOCKS = 64, 128, 16
# Pairs up to which each such program counts all of them itself, so many at a time.
_COUNTED_BY_ALL, _COUNTED = 2048, 1024
# Features of a program that combines the experts of a token.
_COMBINED = 1024
_SCALE_BLOCK = tl.constexpr(BLOCK)
_MXFP4_BLOCK = tl.constexpr(MXFP4_BLOCK)
_PLACES = tl.constexpr(PLACES)


_PART_0, _PART_1, _PART_2, _PART_3 = (tl.constexpr(ptx_of_part(part, wide=False)) for part in range(4))
_WIDE_0, _WIDE_1, _WIDE_2, _WIDE_3 = (tl.constexpr(ptx_of_part(part, wide=True)) for part in range(4))


@triton.jit
def _of_best_groups(
    sums, EXPERTS: tl.constexpr, GROUPS: tl.constexpr, KEPT: tl.constexpr, EXPERTS_PAD: tl.constexpr,
    GROUPS_PAD: tl.constexpr,
):  # fmt: skip
    """Return ``sums`` of experts with those of all but the ``KEPT`` best groups replaced by minus infinity."""
    experts, groups = tl.arange(0, EXPERTS_PAD), tl.arange(0, GROUPS_PAD)
    group_of = experts // (EXPERTS // GROUPS)
    best_two = tl.full((GROUPS_PAD,), -float("inf"), dtype=tl.float32)
    for group in tl.static_range(GROUPS):
        members = tl.where(group_of == group, sums, -float("inf"))
        best = tl.max(members, axis=0)
        first = tl.min(tl.where(members == best, experts, EXPERTS_PAD), axis=0)
        second = tl.max(tl.where(experts == first, -float("inf"), members), axis=0)
        best_two = tl.where(groups == group, best + second, best_two)
    kept = tl.zeros((EXPERTS_PAD,), dtype=tl.int32)
    for _ in tl.static_range(KEPT):
        best = tl.max(best_two, axis=0)
        group = tl.min(tl.where(best_two == best, groups, GROUPS), axis=0)
        kept = tl.where(group_of == group, 1, kept)
        best_two = tl.where(groups == group, -float("inf"), best_two)
    return tl.where(kept > 0, sums, -float("inf"))


@triton.jit
def _route_kernel(
    logits_ptr, correction_ptr, experts_ptr, weights_ptr, stride, EXPERTS: tl.constexpr, PER_TOKEN: tl.constexpr,
    RENORMALISED: tl.constexpr, SIGMOID: tl.constexpr, GROUPS: tl.constexpr, KEPT: tl.constexpr, SCALE: tl.constexpr,
    EXPERTS_PAD: tl.constexpr, PER_TOKEN_PAD: tl.constexpr, GROUPS_PAD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Choose the experts of a token; of equal ones the first."""
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    row = tl.program_id(0).to(tl.int64)
    experts, places = tl.arange(0, EXPERTS_PAD), tl.arange(0, PER_TOKEN_PAD)
    logits = tl.load(logits_ptr + row * stride + experts, mask=experts < EXPERTS, other=-float("inf")).to(tl.float32)
    if SIGMOID:
        scores = tl.sigmoid(logits)
        remaining = scores + tl.load(correction_ptr + experts, mask=experts < EXPERTS, other=0.0)
        if GROUPS > 1:
            remaining = _of_best_groups(remaining, EXPERTS, GROUPS, KEPT, EXPERTS_PAD, GROUPS_PAD)
        remaining = tl.where(experts < EXPERTS, remaining, -float("inf"))
    else:
        scores = tl.exp(logits - tl.max(logits, axis=0))
        scores = scores / tl.sum(scores, axis=0)
        remaining = tl.where(experts < EXPERTS, scores, -float("inf"))
    chosen = tl.zeros((PER_TOKEN_PAD,), dtype=tl.int32)
    weights = tl.zeros((PER_TOKEN_PAD,), dtype=tl.float32)
    for place in tl.static_range(PER_TOKEN):
        best = tl.max(remaining, axis=0)
        # Rows of padding may be NaN, which equals nothing: the index must stay in range.
        expert = tl.minimum(tl.min(tl.where(remaining == best, experts, EXPERTS), axis=0), EXPERTS - 1)
        chosen = tl.where(places == place, expert, chosen)
        weight = tl.sum(tl.where(experts == expert, scores, 0.0), axis=0)
        weights = tl.where(places == place, weight, weights)
        remaining = tl.where(experts == expert, -float("inf"), remaining)
    if RENORMALISED:
        weights = weights / (tl.sum(weights, axis=0) + (1e-20 if SIGMOID else 0.0))
    weights *= SCALE
    tl.store(experts_ptr + row * PER_TOKEN + places, chosen, mask=places < PER_TOKEN)
    tl.store(weights_ptr + row * PER_TOKEN + places, weights, mask=places < PER_TOKEN)


@triton.jit(do_not_specialize=["pairs"])
def _count_kernel(
    experts_ptr, counts_ptr, pairs, EXPERTS: tl.constexpr, EXPERTS_PAD: tl.constexpr, SORTED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Count the pairs of each expert among ``SORTED`` pairs."""
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    block, bounds = tl.program_id(0), tl.arange(0, EXPERTS_PAD)
    pair = block * SORTED + tl.arange(0, SORTED)
    expert = tl.load(experts_ptr + pair, mask=pair < pairs, other=EXPERTS)
    counts = tl.sum((expert[None, :] == bounds[:, None]).to(tl.int32), axis=1)
    tl.store(counts_ptr + block * EXPERTS_PAD + bounds, tl.where(bounds < EXPERTS, counts, 0))


@triton.jit(do_not_specialize=["pairs", "blocks"])
def _sort_kernel(
    experts_ptr, counts_ptr, order_ptr, starts_ptr, pairs, blocks, EXPERTS: tl.constexpr, EXPERTS_PAD: tl.constexpr,
    SORTED: tl.constexpr, BLOCKS: tl.constexpr, COUNTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Place ``SORTED`` pairs behind all of smaller experts and all earlier ones of the same.

    ``counts [blocks, EXPERTS_PAD]`` are those of ``_count_kernel``, which are read ``BLOCKS`` at a time. ``COUNTED``
    above 0: the program counts instead, so many pairs at a time.
    """
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    block, bounds = tl.program_id(0), tl.arange(0, EXPERTS_PAD)
    total = tl.zeros((EXPERTS_PAD,), dtype=tl.int32)
    earlier = tl.zeros((EXPERTS_PAD,), dtype=tl.int32)
    if COUNTED > 0:
        for first in range(0, pairs, COUNTED):
            others = first + tl.arange(0, COUNTED)
            # What is not to be counted goes behind the experts, where nothing is read.
            expert = tl.load(experts_ptr + others, mask=others < pairs, other=EXPERTS)
            total += tl.histogram(expert, EXPERTS_PAD)
            earlier += tl.histogram(tl.where(others < block * SORTED, expert, EXPERTS), EXPERTS_PAD)
    else:
        for first in range(0, blocks, BLOCKS):
            rows = first + tl.arange(0, BLOCKS)
            place = counts_ptr + rows[:, None] * EXPERTS_PAD + bounds[None, :]
            counts = tl.load(place, mask=(rows < blocks)[:, None], other=0)
            total += tl.sum(counts, axis=0)
            earlier += tl.sum(tl.where((rows < block)[:, None], counts, 0), axis=0)
    starts = tl.cumsum(total, axis=0) - total
    if block == 0:
        tl.store(starts_ptr + bounds, starts, mask=bounds < EXPERTS)
        tl.store(starts_ptr + EXPERTS, pairs)
    indices = tl.arange(0, SORTED)
    pair = block * SORTED + indices
    expert = tl.load(experts_ptr + pair, mask=pair < pairs, other=EXPERTS)
    offset = tl.sum(tl.where(expert[:, None] == bounds[None, :], (starts + earlier)[None, :], 0), axis=1)
    before = (expert[None, :] == expert[:, None]) & (indices[None, :] < indices[:, None])
    tl.store(order_ptr + offset + tl.sum(before.to(tl.int32), axis=1), pair, mask=pair < pairs)


@triton.jit
def _add_product(acc, x, w_place, ok, scale, x_scale, SCALES: tl.constexpr):
    """Add the product of ``x [BLOCK_M, BLOCK_K]`` and loaded weights ``[BLOCK_K, BLOCK_N]``.

    In FP8, ``acc`` is ``[BLOCK_N, BLOCK_M]``: pairs are the columns of the matrix instruction, so that few of them pad
    little. Blocks are multiplied by their ``scale`` and by ``x_scale [BLOCK_M]``. Tensor cores add FP8 products up with
    14 bits, therefore not into ``acc``.
    """
    w = tl.load(w_place, mask=ok, other=0.0)
    if SCALES == 0:
        acc = tl.dot(x, w, acc, input_precision="ieee")
    elif SCALES == 1:
        acc += tl.dot(tl.trans(w), tl.trans(x))
    else:
        acc += tl.dot(tl.trans(w), tl.trans(x)) * (scale * x_scale)[None, :]
    return acc


@triton.jit
def _scales_of_x(scale_ptr, rows, rows_ok, k, IN: tl.constexpr, SCALES: tl.constexpr, IN_LOOP: tl.constexpr):
    """Return the scales of activations in ``rows`` at input ``k``, where they are used; otherwise a placeholder.

    Scales in blocks are used ``IN_LOOP`` over the inputs, those of rows behind it.
    """
    scales = 1.0
    if SCALES == 2 and IN_LOOP:
        GROUPS: tl.constexpr = (IN + _SCALE_BLOCK - 1) // _SCALE_BLOCK
        scales = tl.load(scale_ptr + rows * GROUPS + k // _SCALE_BLOCK, mask=rows_ok, other=0.0)
    elif SCALES == 1 and not IN_LOOP:
        scales = tl.load(scale_ptr + rows, mask=rows_ok, other=0.0)
    return scales


@triton.jit
def _block_scale(
    scale_ptr, matrix, column, k, OUT: tl.constexpr, IN: tl.constexpr, SCALES: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    """Return the scale of a matrix's block at output ``column`` and input ``k``; 1 for scales that are not in blocks.

    A program's outputs lie within a block.
    """
    tl.static_assert(SCALES != 2 or 128 % BLOCK_N == 0)
    scale = 1.0
    if SCALES == 2:
        ROWS: tl.constexpr = (OUT + _SCALE_BLOCK - 1) // _SCALE_BLOCK
        COLUMNS: tl.constexpr = (IN + _SCALE_BLOCK - 1) // _SCALE_BLOCK
        row = matrix * ROWS + column // _SCALE_BLOCK
        scale = tl.load(scale_ptr + row * COLUMNS + k // _SCALE_BLOCK)
    return scale


@triton.jit
def _from_mxfp4(
    words, scales, PART: tl.constexpr, dtype: tl.constexpr, PACKED: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """Return a part of four of the values in ``words [rows, 32]``, times ``scales [rows]`` (E8M0), in ``dtype``.

    The bits of E2M1 in their places of a wider format are a number that is smaller by a power of two. ``PACKED``: two
    at a time, in bfloat16; scales that are not ``WIDE`` are multiplied by that power first.
    """
    if PACKED:
        # Factors are bfloat16 in both halves of a register.
        NARROW_ASM: tl.constexpr = _PART_0 if PART == 0 else _PART_1 if PART == 1 else _PART_2 if PART == 2 else _PART_3
        WIDE_ASM: tl.constexpr = _WIDE_0 if PART == 0 else _WIDE_1 if PART == 1 else _WIDE_2 if PART == 2 else _WIDE_3
        ASM: tl.constexpr = WIDE_ASM if WIDE else NARROW_ASM
        if WIDE:
            bits = tl.where(scales == 0, 1 << 6, scales << 7)
            bits |= bits << 16
        else:
            bits = scales * 0x00800080 + 126 * 0x00800080
        values = tl.inline_asm_elementwise(
            ASM, "=r,r,r,r", [words, bits[:, None]], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        LOW: tl.constexpr = _PLACES[PART][0]
        SIGN: tl.constexpr = _PLACES[PART][1]
        wide = words.to(tl.int32)
        bits = (((wide >> LOW) & 7) << 22) | (((wide >> SIGN) & 1) << 31)
        values = bits.to(tl.float32, bitcast=True) * 8.507059173023462e37
        bits = tl.where(scales == 0, 1 << 22, scales << 23)
        values = (values * bits.to(tl.float32, bitcast=True)[:, None]).to(dtype)
    return values


@triton.jit
def _x_of_part(x_place, k, PART: tl.constexpr, IN: tl.constexpr):
    """Load the inputs ``[BLOCK_M, 32]`` of a part of the 128 from ``k`` on.

    Those behind the last one are multiplied by zeros: they are its own row's last ones again.
    """
    return tl.load(x_place + tl.multiple_of(tl.minimum(k + PART * _MXFP4_BLOCK, IN - _MXFP4_BLOCK), _MXFP4_BLOCK))


@triton.jit
def _add_mxfp4(
    acc, xs, w_ptr, scale_ptr, row, k, ROWS: tl.constexpr, PACKED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add products with 128 inputs from ``k`` on to ``acc [BLOCK_N, BLOCK_M]``; ``row [BLOCK_N]`` are an expert's.

    ``xs`` are the inputs of the four parts, each ``[BLOCK_M, 32]``; ``w_ptr`` and ``scale_ptr`` are the expert's.
    """
    first = k // (4 * _MXFP4_BLOCK) * ROWS
    words = tl.load(w_ptr + first * _MXFP4_BLOCK + row[:, None] * _MXFP4_BLOCK + tl.arange(0, _MXFP4_BLOCK)[None, :])
    scales = tl.load(scale_ptr + first + row)
    for part in tl.static_range(4):
        x = xs[part]
        w = _from_mxfp4(words, (scales >> 8 * part) & 255, part, x.dtype, PACKED, WIDE)
        acc = tl.dot(w, tl.trans(x), acc, input_precision="ieee")
    return acc


@triton.jit
def _by_pair(acc, scale_ptr, x_scales, matrix, n, n_ok, OUT: tl.constexpr, SCALES: tl.constexpr):
    """Return sums of ``_add_product`` as ``[BLOCK_M, BLOCK_N]``, times the scales of rows."""
    if SCALES != 0:
        acc = tl.trans(acc)
    if SCALES == 1:
        scales = tl.load(scale_ptr + matrix.to(tl.int64) * OUT + n, mask=n_ok, other=0.0)
        acc = acc * x_scales[:, None] * scales[None, :]
    return acc


@triton.jit(do_not_specialize=["layer"])
def _gate_up_kernel(
    x_ptr, x_scale_ptr, w_ptr, scale_ptr, bias_ptr, order_ptr, starts_ptr, out_ptr, x_stride, delta_ptr, h_ptr,
    pool_ptr, fp8_pool_ptr, slots_ptr, pages_ptr, modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, layer,
    pages_stride, slot_stride, INNER: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr,
    PER_TOKEN: tl.constexpr, BIASED: tl.constexpr, SILU: tl.constexpr, SLOPE: tl.constexpr, LIMIT: tl.constexpr,
    EXPERTS_PAD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr, MAX_RANK: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr,
    DELTAS: tl.constexpr, SCALES: tl.constexpr, PACKED: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute ``activation(gate) * up`` of a block of sorted pairs, for ``BLOCK_N`` inner features.

    ``LIMIT`` above 0: that of ``ClampedSwiglu``. ``MAX_RANK`` 0: without adapters. ``DELTAS``: blocks with
    several adapters have those of ``expand_experts``.

    With adapters, the kernel before is ``shrink_experts``, which lets this one start only when all before itself is
    complete: the products with the experts need no wait. What comes next, too, starts when the routing is complete.
    """
    if MAX_RANK == 0:
        grid_dependency_wait(PDL)
    launch_dependents(PDL)
    expert, start, stop = block_of_pairs(starts_ptr, tl.program_id(0), EXPERTS, EXPERTS_PAD, BLOCK_M)
    if expert >= EXPERTS:
        grid_dependency_wait(PDL)
        return
    rows, n = start + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows_ok, n_ok, columns = rows < stop, n < INNER, tl.arange(0, BLOCK_K)
    tokens = tl.load(order_ptr + rows, mask=rows_ok, other=0, cache_modifier=".cg").to(tl.int64) // PER_TOKEN
    x_place = x_ptr + tokens[:, None] * x_stride + columns[None, :]
    w_place = w_ptr + (expert.to(tl.int64) * 2 * INNER + n)[None, :] * HIDDEN + columns[:, None]
    column = tl.program_id(1) * BLOCK_N
    if MAX_RANK > 0:
        slots = tl.load(slots_ptr + tokens, mask=rows_ok, other=0)
        lowest, highest = range_of_slots(slots)
    if DELTAS:
        # The adapter's entries in the tables arrive during the products, behind which they would be waited for.
        one_slot = have_one_slot(slots, rows_ok)
        of_gate = factor_of(
            modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, highest, layer, expert, column, slot_stride, 0,
            0, KV_DIM, RESIDENCY, EXPERTS,
        )  # fmt: skip
        of_up = factor_of(
            modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, highest, layer, expert, column, slot_stride, 1,
            0, KV_DIM, RESIDENCY, EXPERTS,
        )  # fmt: skip
    gate = tl.zeros((BLOCK_N, BLOCK_M) if SCALES else (BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_N, BLOCK_M) if SCALES else (BLOCK_M, BLOCK_N), dtype=tl.float32)
    if SCALES == 3:
        # Rows and outputs that are not stored are those of others.
        row, first = tl.minimum(n, INNER - 1), expert.to(tl.int64) * 2 * INNER * tl.cdiv(HIDDEN, 4 * _MXFP4_BLOCK)
        w_place, scale_place = w_ptr + first * _MXFP4_BLOCK, scale_ptr + first
        x_place = x_ptr + tokens[:, None] * x_stride + tl.arange(0, _MXFP4_BLOCK)[None, :]
        for k in range(0, HIDDEN, 4 * _MXFP4_BLOCK):
            x0, x1 = _x_of_part(x_place, k, 0, HIDDEN), _x_of_part(x_place, k, 1, HIDDEN)
            x2, x3 = _x_of_part(x_place, k, 2, HIDDEN), _x_of_part(x_place, k, 3, HIDDEN)
            xs = x0, x1, x2, x3
            gate = _add_mxfp4(gate, xs, w_place, scale_place, row, k, 2 * INNER, PACKED, WIDE)
            up = _add_mxfp4(up, xs, w_place, scale_place, row + INNER, k, 2 * INNER, PACKED, WIDE)
    else:
        for k in range(0, HIDDEN, BLOCK_K):
            k_ok = k + columns < HIDDEN
            x = tl.load(x_place + k, mask=rows_ok[:, None] & k_ok[None, :], other=0.0)
            ok = k_ok[:, None] & n_ok[None, :]
            gate_scale = _block_scale(scale_ptr, 2 * expert, column, k, INNER, HIDDEN, SCALES, BLOCK_N)
            up_scale = _block_scale(scale_ptr, 2 * expert + 1, column, k, INNER, HIDDEN, SCALES, BLOCK_N)
            x_scale = _scales_of_x(x_scale_ptr, tokens, rows_ok, k, HIDDEN, SCALES, True)
            gate = _add_product(gate, x, w_place + k, ok, gate_scale, x_scale, SCALES)
            up = _add_product(up, x, w_place + k + INNER * HIDDEN, ok, up_scale, x_scale, SCALES)
    x_scales = _scales_of_x(x_scale_ptr, tokens, rows_ok, 0, HIDDEN, SCALES, False)
    gate = _by_pair(gate, scale_ptr, x_scales, 2 * expert, n, n_ok, INNER, SCALES)
    up = _by_pair(up, scale_ptr, x_scales, 2 * expert + 1, n, n_ok, INNER, SCALES)
    if BIASED:
        bias_place = bias_ptr + expert.to(tl.int64) * 2 * INNER + n
        gate += tl.load(bias_place, mask=n_ok, other=0.0).to(tl.float32)[None, :]
        up += tl.load(bias_place + INNER, mask=n_ok, other=0.0).to(tl.float32)[None, :]
    if MAX_RANK > 0:
        if not DELTAS:
            gate, up = add_expert_lora(
                gate, up, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, modules_ptr, scales_ptr, row_of_ptr, places_ptr,
                host_ptr, slots, lowest, highest, rows, expert, column, n_ok, layer, pages_stride, slot_stride, 0, 2, 0,
                2, INNER, KV_DIM, ROWS_PER_PAGE, MAX_RANK, FP8, RESIDENCY, EXPERTS, BLOCK_M, BLOCK_N, 16, PDL,
            )  # fmt: skip
        elif not one_slot:
            ok = rows_ok[:, None] & n_ok[None, :]
            place = delta_ptr + rows.to(tl.int64)[:, None] * (2 * INNER) + n[None, :]
            gate += tl.load(place, mask=ok, other=0.0).to(tl.float32)
            up += tl.load(place + INNER, mask=ok, other=0.0).to(tl.float32)
        elif highest > 0:
            gate = add_lora_of_block(
                gate, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, of_gate, highest, rows, rows_ok, column, n_ok,
                pages_stride, 2, INNER, KV_DIM, ROWS_PER_PAGE, MAX_RANK, FP8, RESIDENCY, BLOCK_N, 16,
            )  # fmt: skip
            up = add_lora_of_block(
                up, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, of_up, highest, rows, rows_ok, column, n_ok,
                pages_stride, 2, INNER, KV_DIM, ROWS_PER_PAGE, MAX_RANK, FP8, RESIDENCY, BLOCK_N, 16,
            )  # fmt: skip
        grid_dependency_wait(PDL)  # a block without adapters, too
    if LIMIT > 0:
        gate = tl.minimum(gate, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        up = 1.0 + tl.clamp(up, -LIMIT, LIMIT, propagate_nan=tl.PropagateNan.ALL)
        gate = gate * tl.sigmoid(SLOPE * gate)
    elif SILU:
        gate = gate * tl.sigmoid(gate)
    else:
        cubic = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        gate = gate * tl.sigmoid(2 * cubic)  # 0.5 * (1 + tanh(y)) is sigmoid(2 y)
    out_place = out_ptr + rows.to(tl.int64)[:, None] * INNER + n[None, :]
    tl.store(out_place, (gate * up).to(out_ptr.dtype.element_ty), mask=rows_ok[:, None] & n_ok[None, :])


@triton.jit(do_not_specialize=["layer"])
def _down_kernel(
    inner_ptr, x_scale_ptr, w_ptr, scale_ptr, bias_ptr, order_ptr, starts_ptr, weights_ptr, out_ptr, delta_ptr, h_ptr,
    pool_ptr, fp8_pool_ptr, slots_ptr, pages_ptr, modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, layer,
    pages_stride, slot_stride, INNER: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr,
    PER_TOKEN: tl.constexpr, BIASED: tl.constexpr, EXPERTS_PAD: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr,
    MAX_RANK: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr, DELTAS: tl.constexpr, SCALES: tl.constexpr,
    PACKED: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Compute ``BLOCK_N`` outputs of a block of sorted pairs times their weights, and store them by token.

    ``MAX_RANK``, ``DELTAS``, and when a kernel starts, are those of ``_gate_up_kernel``. Without adapters, the routing
    alone is read ahead of the wait.
    """
    launch_dependents(PDL)
    expert, start, stop = block_of_pairs(starts_ptr, tl.program_id(0), EXPERTS, EXPERTS_PAD, BLOCK_M)
    if expert >= EXPERTS:
        grid_dependency_wait(PDL)
        return
    rows, n = start + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows_ok, n_ok, columns = rows < stop, n < HIDDEN, tl.arange(0, BLOCK_K)
    x_place = inner_ptr + rows.to(tl.int64)[:, None] * INNER + columns[None, :]
    w_place = w_ptr + (expert.to(tl.int64) * HIDDEN + n)[None, :] * INNER + columns[:, None]
    pairs = tl.load(order_ptr + rows, mask=rows_ok, other=0, cache_modifier=".cg").to(tl.int64)
    if MAX_RANK > 0:
        slots = tl.load(slots_ptr + pairs // PER_TOKEN, mask=rows_ok, other=0)
        lowest, highest = range_of_slots(slots)
    else:
        grid_dependency_wait(PDL)
    column = tl.program_id(1) * BLOCK_N
    if DELTAS:
        one_slot = have_one_slot(slots, rows_ok)
        factor = factor_of(
            modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, highest, layer, expert, column, slot_stride, 0,
            2, KV_DIM, RESIDENCY, EXPERTS,
        )  # fmt: skip
    acc = tl.zeros((BLOCK_N, BLOCK_M) if SCALES else (BLOCK_M, BLOCK_N), dtype=tl.float32)
    if SCALES == 3:
        row, first = tl.minimum(n, HIDDEN - 1), expert.to(tl.int64) * HIDDEN * tl.cdiv(INNER, 4 * _MXFP4_BLOCK)
        w_place, scale_place = w_ptr + first * _MXFP4_BLOCK, scale_ptr + first
        read = tl.minimum(rows, stop - 1).to(tl.int64)[:, None] * INNER
        x_place = inner_ptr + read + tl.arange(0, _MXFP4_BLOCK)[None, :]
        for k in range(0, INNER, 4 * _MXFP4_BLOCK):
            x0, x1 = _x_of_part(x_place, k, 0, INNER), _x_of_part(x_place, k, 1, INNER)
            x2, x3 = _x_of_part(x_place, k, 2, INNER), _x_of_part(x_place, k, 3, INNER)
            acc = _add_mxfp4(acc, (x0, x1, x2, x3), w_place, scale_place, row, k, HIDDEN, PACKED, WIDE)
    else:
        for k in range(0, INNER, BLOCK_K):
            k_ok = k + columns < INNER
            x = tl.load(x_place + k, mask=rows_ok[:, None] & k_ok[None, :], other=0.0)
            scale = _block_scale(scale_ptr, expert, column, k, HIDDEN, INNER, SCALES, BLOCK_N)
            x_scale = _scales_of_x(x_scale_ptr, rows, rows_ok, k, INNER, SCALES, True)
            acc = _add_product(acc, x, w_place + k, k_ok[:, None] & n_ok[None, :], scale, x_scale, SCALES)
    x_scales = _scales_of_x(x_scale_ptr, rows, rows_ok, 0, INNER, SCALES, False)
    acc = _by_pair(acc, scale_ptr, x_scales, expert, n, n_ok, HIDDEN, SCALES)
    if BIASED:
        acc += tl.load(bias_ptr + expert.to(tl.int64) * HIDDEN + n, mask=n_ok, other=0.0).to(tl.float32)[None, :]
    if MAX_RANK > 0:
        if not DELTAS:
            acc, _ = add_expert_lora(
                acc, 0, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, modules_ptr, scales_ptr, row_of_ptr, places_ptr,
                host_ptr, slots, lowest, highest, rows, expert, column, n_ok, layer, pages_stride, slot_stride, 0, 1, 2,
                1, HIDDEN, KV_DIM, ROWS_PER_PAGE, MAX_RANK, FP8, RESIDENCY, EXPERTS, BLOCK_M, BLOCK_N, 16, PDL,
            )  # fmt: skip
        elif not one_slot:
            place = delta_ptr + rows.to(tl.int64)[:, None] * HIDDEN + n[None, :]
            acc += tl.load(place, mask=rows_ok[:, None] & n_ok[None, :], other=0.0).to(tl.float32)
        elif highest > 0:
            acc = add_lora_of_block(
                acc, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, factor, highest, rows, rows_ok, column, n_ok,
                pages_stride, 1, HIDDEN, KV_DIM, ROWS_PER_PAGE, MAX_RANK, FP8, RESIDENCY, BLOCK_N, 16,
            )  # fmt: skip
        grid_dependency_wait(PDL)
    acc *= tl.load(weights_ptr + pairs, mask=rows_ok, other=0.0)[:, None]
    out_place = out_ptr + pairs[:, None] * HIDDEN + n[None, :]
    tl.store(out_place, acc.to(out_ptr.dtype.element_ty), mask=rows_ok[:, None] & n_ok[None, :])


@triton.jit
def _combine_kernel(
    parts_ptr, score_ptr, out_ptr, score_stride, HIDDEN: tl.constexpr, PER_TOKEN: tl.constexpr, ONTO: tl.constexpr,
    WEIGHTED: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up the outputs of a token's experts, best first.

    ``ONTO``: and what ``out`` has, which is ``WEIGHTED`` by a sigmoid or not.
    """
    launch_dependents(PDL)
    grid_dependency_wait(PDL)
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for place in tl.static_range(PER_TOKEN):
        acc += tl.load(parts_ptr + (row * PER_TOKEN + place) * HIDDEN + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
    if ONTO:
        before = tl.load(out_ptr + row * HIDDEN + n, mask=n < HIDDEN, other=0.0).to(tl.float32)
        if WEIGHTED:
            before *= tl.sigmoid(tl.load(score_ptr + row * score_stride).to(tl.float32))
        acc += before
    tl.store(out_ptr + row * HIDDEN + n, acc.to(out_ptr.dtype.element_ty), mask=n < HIDDEN)


def route(logits: torch.Tensor, per_token: int, *, renormalised: bool, sigmoid: SigmoidScores | None = None) -> Routing:
    """Choose each token's best ``per_token`` experts by ``logits [tokens, experts]``, and sort the pairs by expert.

    A weight is the softmax over all experts, or as ``sigmoid`` says; ``renormalised``: divided by the sum of the
    token's weights. Raises ``ValueError`` for more experts of a token than there are.
    """
    tokens, experts = logits.shape
    if sigmoid is not None and (sigmoid.correction.shape != (experts,) or experts % sigmoid.groups):
        raise ValueError(f"corrections are {tuple(sigmoid.correction.shape)}, {sigmoid.groups} groups of {experts}")
    if not 0 < per_token <= experts or logits.stride(1) != 1:
        raise ValueError(f"logits are {tuple(logits.shape)} with strides {logits.stride()} for {per_token} experts")
    pairs = tokens * per_token
    chosen = torch.empty(tokens, per_token, dtype=torch.int32, device=logits.device)
    weights = torch.empty(tokens, per_token, dtype=torch.float32, device=logits.device)
    order = torch.empty(pairs, dtype=torch.int32, device=logits.device)
    starts = torch.empty(experts + 1, dtype=torch.int32, device=logits.device)
    if not tokens:
        return Routing(chosen, weights, order, starts.zero_())
    _route_kernel[(tokens,)](
        logits, logits if sigmoid is None else sigmoid.correction, chosen, weights, logits.stride(0), EXPERTS=experts,
        PER_TOKEN=per_token, RENORMALISED=renormalised, SIGMOID=sigmoid is not None,
        GROUPS=sigmoid.groups if sigmoid else 1, KEPT=sigmoid.kept_groups if sigmoid else 1,
        SCALE=sigmoid.scale if sigmoid else 1.0, EXPERTS_PAD=triton.next_power_of_2(experts),
        PER_TOKEN_PAD=triton.next_power_of_2(per_token),
        GROUPS_PAD=triton.next_power_of_2(sigmoid.groups) if sigmoid else 1, num_warps=1, **pdl_options(logits),
    )  # fmt: skip
    many = pairs > _COUNTED_BY_ALL
    in_block = _SORTED_OF_MANY if many else _SORTED
    blocks, pad = triton.cdiv(pairs, in_block), triton.next_power_of_2(experts if many else experts + 1)
    common = {"EXPERTS": experts, "EXPERTS_PAD": pad, "SORTED": in_block, **pdl_options(logits)}
    counts, counted = chosen, _COUNTED  # nothing is read there
    if many:
        counts, counted = torch.empty(blocks, pad, dtype=torch.int32, device=logits.device), 0
        _count_kernel[(blocks,)](chosen, counts, pairs, **common)
    _sort_kernel[(blocks,)](
        chosen, counts, order, starts, pairs, blocks, BLOCKS=_BLOCKS, COUNTED=counted, **common
    )  # fmt: skip
    return Routing(chosen, weights, order, starts)


def packs_two(x: torch.Tensor) -> bool:
    """Return whether values in MXFP4 are converted two at a time, by instructions of compute capability 9.0."""
    return x.dtype == torch.bfloat16 and has_sm90(x.device)


def config_of(pairs: int, experts: int, form: int = _PLAIN) -> ExpertsConfig:
    """Return the configuration of the products of so many pairs with experts of a ``form_of``."""
    return next(config for config in CONFIGS[form] if pairs <= config.most * experts)


def invariant_configs(form: int) -> tuple[ExpertsConfig, ExpertsConfig]:
    """Return the configurations of decode rows and of prompts for sums that do not depend on the number of pairs."""
    return CONFIGS[form][0], CONFIGS[form][-1]


def least_tokens(experts: int, per_token: int, form: int = _PLAIN) -> list[int]:
    """Return the smallest number of tokens that has each configuration of experts of a ``form_of``."""
    return [1, *(int(config.most * experts // per_token) + 1 for config in CONFIGS[form][:-1])]


def form_of(matrices: torch.Tensor | Fp8Stack | Mxfp4Stack) -> int:
    """Return the form of the experts' scales, for ``config_of`` and ``least_tokens``."""
    if isinstance(matrices, torch.Tensor):
        return _PLAIN
    if isinstance(matrices, Mxfp4Stack):
        return _MXFP4
    return _IN_BLOCKS if matrices.in_blocks else _BY_ROW


def grouped_experts(
    activations: torch.Tensor | Fp8Rows,
    gate_up: torch.Tensor | Fp8Stack | Mxfp4Stack,
    down: torch.Tensor | Fp8Stack | Mxfp4Stack,
    routing: Routing,
    activation: str | ClampedSwiglu,
    out: torch.Tensor | None = None,
    lora: ExpertLora | None = None,
    gate_up_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    fixed: ExpertsConfig | None = None,
    onto: bool = False,
    score: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the sum of each token's experts, times their weights: ``[tokens, hidden]`` of x, ``activations [tokens,
    hidden]``.

    ``gate_up [experts, 2 * inner, hidden]`` (rows of gate first) and ``down [experts, hidden, inner]`` are contiguous
    and of ``x``'s dtype: float32, bfloat16 or float16; or both are in FP8, with scales of the same form, or in MXFP4.
    For experts in FP8, inputs of both products are rounded to it, and x may have been, with ``full``.
    ``activation`` is "silu", "gelu_tanh" or a ``ClampedSwiglu``. Sums are in float32. The result goes into ``out``
    unless that is None. ``onto``: it is added to what ``out`` has, which counts times the sigmoid of the token's
    ``score [tokens]``, unless that is None. ``lora``: the adapters of the tokens; None: none. The biases, if there are
    any, are ``[experts, 2 * inner]`` and ``[experts, hidden]``.

    With ``fixed``, a configuration for any number of pairs, a token's row is bitwise the same among any others.

    Raises ``ValueError`` for shapes that do not fit.
    """
    rounded, x = (activations, activations.full) if isinstance(activations, Fp8Rows) else (None, activations)
    if x is None:
        raise ValueError("activations are in FP8 without full; set full to the values before they were rounded")
    (tokens, hidden), (experts, rows, _), per_token = x.shape, gate_up.shape, routing.experts.shape[1]
    inner = rows // 2
    if gate_up.shape != (experts, 2 * inner, hidden) or down.shape != (experts, hidden, inner):
        raise ValueError(f"experts are {tuple(gate_up.shape)} and {tuple(down.shape)} for x of {tuple(x.shape)}")
    if routing.experts.shape != (tokens, per_token) or routing.starts.shape != (experts + 1,):
        raise ValueError(f"the routing is of {len(routing.experts)} tokens, but x is {tuple(x.shape)}")
    form = form_of(gate_up)
    if form != form_of(down):
        raise ValueError("gate_up and down are stored in different ways; quantise both in one way, or neither")
    stacks = gate_up, down
    (gate_up, gate_up_scale), (down, down_scale) = _stored(gate_up), _stored(down)
    if x.stride(1) != 1 or not gate_up.is_contiguous() or not down.is_contiguous():
        raise ValueError("rows of x, and the experts' matrices, must be contiguous")
    for bias, width in ((gate_up_bias, rows), (down_bias, hidden)):
        if bias is not None and (bias.shape != (experts, width) or not bias.is_contiguous()):
            raise ValueError(f"a bias is {tuple(bias.shape)}, but must be {(experts, width)}")
    clamped = activation if isinstance(activation, ClampedSwiglu) else None
    if clamped is None and activation not in ("silu", "gelu_tanh"):
        raise ValueError(f"activation {activation!r} has no kernel; use silu, gelu_tanh or a ClampedSwiglu")
    if out is None:
        if onto:
            raise ValueError("onto adds to out, but out is None; give out, or leave onto False")
        out = torch.empty(tokens, hidden, dtype=x.dtype, device=x.device)
    elif out.shape != x.shape or not out.is_contiguous():
        raise ValueError(f"out is {tuple(out.shape)} with strides {out.stride()}, but x is {tuple(x.shape)}")
    if not tokens:
        return out
    pairs = tokens * per_token
    config = fixed or config_of(pairs, experts, form)
    # Deltas that were computed before are rounded, and which ones are depends on the other pairs of a block.
    before = lora is not None and config.pairs >= MANY and fixed is None
    outputs = config.outputs if lora is None else block_columns(lora.kv_dim, config.outputs)
    blocks = pairs // config.pairs + min(pairs, experts)
    tile = {
        "BLOCK_M": config.pairs, "BLOCK_N": outputs,
        "BLOCK_K": config.inputs if form in (_BY_ROW, _IN_BLOCKS) else max(16, config.inputs * 2 // x.element_size()),
        "num_warps": config.warps, "num_stages": config.stages, "INNER": inner, "HIDDEN": hidden, "EXPERTS": experts,
        "EXPERTS_PAD": triton.next_power_of_2(experts), "PER_TOKEN": per_token,
        "KV_DIM": lora.kv_dim if lora else 1, "ROWS_PER_PAGE": lora.pool.shape[1] // lora.kv_dim if lora else 1,
        "MAX_RANK": lora.max_rank if lora else 0, "SCALES": form, "DELTAS": before,
        "FP8": lora.tables.fp8_rows if lora else 0, "PACKED": packs_two(x),
        "WIDE": any(isinstance(stack, Mxfp4Stack) and stack.wide for stack in stacks),
        "RESIDENCY": lora is not None and lora.tables.residency is not None,
        **({"PDL": False} if before else pdl_options(x)),
    }  # fmt: skip
    activated = torch.empty(pairs, inner, dtype=x.dtype, device=x.device)
    parts = torch.empty(pairs, hidden, dtype=x.dtype, device=x.device)

    def adapters(x: torch.Tensor, first: int, modules: int, width: int) -> tuple[object, ...]:
        if lora is None:
            return (x,) * 11 + (0, 0, 0)  # nothing is read
        h = shrink_experts(x, lora, routing, first, modules, config.pairs, by_pair=fixed is None, overlapped=not before)
        deltas = expand_experts(h, lora, routing, first, width, config.pairs) if before else h
        tables = lora.tables
        pointers = h, *lora.pools, lora.slots, tables.pages, tables.experts, tables.expert_scales, *lora.residency[:3]
        return (deltas, *pointers, lora.layer, tables.pages.stride(0), tables.experts.stride(0))

    read, read_scale = _readable(x, stacks[0], rounded)
    _gate_up_kernel[(blocks, triton.cdiv(inner, outputs))](
        read, read_scale, gate_up, gate_up_scale, x if gate_up_bias is None else gate_up_bias, routing.order,
        routing.starts, activated, read.stride(0), *adapters(x, 0, 2, inner), BIASED=gate_up_bias is not None,
        SILU=activation == "silu", SLOPE=clamped.slope if clamped else 0.0,
        LIMIT=clamped.limit if clamped else 0.0, **tile,
    )  # fmt: skip
    read, read_scale = _readable(activated, stacks[1])
    _down_kernel[(blocks, triton.cdiv(hidden, outputs))](
        read, read_scale, down, down_scale, x if down_bias is None else down_bias, routing.order, routing.starts,
        routing.weights, parts, *adapters(activated, 2, 1, hidden), BIASED=down_bias is not None, **tile,
    )  # fmt: skip
    block = min(_COMBINED, triton.next_power_of_2(hidden))
    _combine_kernel[(tokens, triton.cdiv(hidden, block))](
        parts, out if score is None else score, out, 0 if score is None else score.stride(0), HIDDEN=hidden,
        PER_TOKEN=per_token, ONTO=onto, WEIGHTED=score is not None, BLOCK=block, **pdl_options(x),
    )  # fmt: skip
    return out


def _readable(
    x: torch.Tensor, matrices: torch.Tensor | Fp8Stack | Mxfp4Stack, rounded: Fp8Rows | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return activations as products with ``matrices`` read them, and their scales; those that nothing reads are x.

    ``rounded``: x for products with some matrix in FP8, which is used if it is the same for these.
    """
    if not isinstance(matrices, Fp8Stack):
        return x, x
    first = matrices.first
    rows = rounded if rounded is not None and rounded.made_for(first) else quantise_rows(x, first)
    return rows.data, rows.scale


def _stored(matrices: torch.Tensor | Fp8Stack | Mxfp4Stack) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the data and the scales; without any, the data again, which nothing reads as such."""
    if isinstance(matrices, torch.Tensor):
        return matrices, matrices
    if isinstance(matrices, Mxfp4Stack):
        return matrices.data, matrices.scale.view(torch.int32)  # the four scales of a word's values in one
    return matrices.data, matrices.scale
