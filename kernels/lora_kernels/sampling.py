"""Sampling of one token for each row of the logits: greedy, or at random with top-k, top-p and min-p.

A row samples the token with the largest sum of tempered logit and Gumbel noise; the noise is a function of (seed,
position, token). So the vocabulary can be split between programs, nothing is sorted, and no state is kept. Truncated
distributions are sampled by rejection. The best of all tokens is the best of the kept ones if it is one of them. If
not, no token with as low a logit is kept either, and the next attempt is among the tokens above it. Whether a token is
kept takes one sum over the tokens with higher logits. Tokens with the same logit are kept or dropped together.

A row with a logit that is not finite yields ``OVERFLOWED`` instead of a token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .sampling_parameters import OVERFLOWED, ROW_WORDS, TokenMaskRows, place

# Tokens of the vocabulary that one program reads.
SPLIT_SIZE = 8192
# Tokens that a program reads at once.
BLOCK = 2048
# Stands for no token: larger than any token id.
NONE = tl.constexpr(2**31 - 1)
_OVERFLOWED = tl.constexpr(OVERFLOWED)
# Offsets of a row's fields, in elements of each field's size (64 bits, then 32).
_SEED, _POSITION = tl.constexpr(place("seed")), tl.constexpr(place("position"))
_TEMPERATURE, _TOP_P = tl.constexpr(place("temperature")), tl.constexpr(place("top_p"))
_MIN_P, _TOP_K = tl.constexpr(place("min_p")), tl.constexpr(place("top_k"))


@triton.jit
def _mix(z):
    """Apply splitmix64's finaliser to unsigned 64-bit integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit
def _gumbel(state, tokens):
    """Return standard Gumbel noise for ``tokens``, by the formula of the engine's ``sampling.gumbel``."""
    bits = _mix(state + tokens.to(tl.uint64) * 0x9E3779B97F4A7C15) >> 32
    uniform = tl.minimum((bits.to(tl.float32) + 0.5) * (2.0**-32), 1 - 2.0**-24)
    small = uniform * (1 + uniform * (0.5 + uniform * (1.0 / 3 + uniform * 0.25)))
    exponential = tl.where(uniform < 2.0**-6, small, -tl.log(1 - uniform))
    return -tl.log(exponential)


@triton.jit
def _keep_best(best, best_tokens, values, tokens):
    """Return the elementwise larger of two values with its token; the earlier one if they are equal."""
    better = values > best
    return tl.where(better, values, best), tl.where(better, tokens, best_tokens)


@triton.jit
def _best_of(best, best_tokens):
    """Return the largest value, and the smallest token that has it."""
    value = tl.max(best)
    return value, tl.min(tl.where(best == value, best_tokens, NONE))


@triton.jit
def _mask_of(packed_ptr, row, rows, words, MASKED: tl.constexpr):
    """Return a pointer to a row's mask (``TokenMaskRows``), and whether the row has one."""
    masks_ptr = packed_ptr
    has_mask = False
    if MASKED:
        index = tl.load(packed_ptr + row)
        has_mask = index >= 0
        masks_ptr = packed_ptr + rows + tl.maximum(index, 0).to(tl.int64) * words
    return masks_ptr, has_mask


@triton.jit
def _masked(logits, mask_ptr, has_mask, tokens, words, MASKED: tl.constexpr):
    """Return the logits, with -inf for tokens that the row's mask does not allow."""
    if MASKED:
        word = tokens >> 5
        bits = tl.load(mask_ptr + word, mask=has_mask & (word < words), other=0)
        allowed = ((bits >> (tokens & 31)) & 1) != 0
        logits = tl.where(allowed | (has_mask == 0), logits, float("-inf"))
    return logits


@triton.jit
def _load(logits_ptr, mask_ptr, has_mask, tokens, vocab, words, MASKED: tl.constexpr):
    """Load a block of logits, with -inf beyond the vocabulary and for tokens that the row's mask does not allow."""
    logits = tl.load(logits_ptr + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
    return _masked(logits, mask_ptr, has_mask, tokens, words, MASKED)


@triton.jit
def _noisy(logits, temperature, state, tokens):
    """Return the tempered logits plus noise, or the logits unchanged for temperature 0."""
    if temperature > 0:
        logits = tl.div_rn(logits, tl.maximum(temperature, 1e-5)) + _gumbel(state, tokens)
    return logits


@triton.jit
def _state(words_ptr):
    """Return the initial state of a row's noise, from its seed and position."""
    seed = tl.load(words_ptr + _SEED).to(tl.uint64, bitcast=True)
    return _mix(_mix(seed) + tl.load(words_ptr + _POSITION).to(tl.uint64, bitcast=True))


@triton.jit
def _partial_argmax_kernel(
    logits_ptr,
    words_ptr,
    floats_ptr,
    masks_ptr,
    values_ptr,
    tokens_ptr,
    logits_stride,
    vocab,
    words,
    WORDS: tl.constexpr,
    MASKED: tl.constexpr,
    RANDOM: tl.constexpr,
    SPLIT_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the argmax over one split of the vocabulary, for one row."""
    split, row = tl.program_id(0), tl.program_id(1)
    logits_ptr += row.to(tl.int64) * logits_stride
    state = tl.zeros((), dtype=tl.uint64)
    temperature = 0.0
    if RANDOM:
        state = _state(words_ptr + row * WORDS)
        temperature = tl.load(floats_ptr + row * WORDS * 2 + _TEMPERATURE)
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    best_tokens = tl.full((BLOCK,), NONE, dtype=tl.int32)
    mask_ptr, has_mask = _mask_of(masks_ptr, row, tl.num_programs(1), words, MASKED)
    finite = tl.full((BLOCK,), True, dtype=tl.int1)
    for start in range(split * SPLIT_SIZE, split * SPLIT_SIZE + SPLIT_SIZE, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + tokens, mask=tokens < vocab, other=float("-inf")).to(tl.float32)
        finite = finite & ((tl.abs(logits) < float("inf")) | (tokens >= vocab))
        logits = _masked(logits, mask_ptr, has_mask, tokens, words, MASKED)
        best, best_tokens = _keep_best(best, best_tokens, _noisy(logits, temperature, state, tokens), tokens)
    value, token = _best_of(best, best_tokens)
    if tl.min(finite.to(tl.int32)) == 0:  # wins over all other splits: the largest value with the smallest token id
        value = float("inf")
        token = _OVERFLOWED
    place = row * tl.num_programs(0) + split
    tl.store(values_ptr + place, value)
    tl.store(tokens_ptr + place, token)


@triton.jit
def _above(
    logits_ptr, mask_ptr, has_mask, floor, top, temperature, vocab, words, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the number of tokens with logits above ``floor``, and the sum of their tempered ``exp(logit - top)``."""
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        logits = _load(logits_ptr, mask_ptr, has_mask, tokens, vocab, words, MASKED)
        above = logits > floor
        count += above.to(tl.int32)
        mass += tl.where(above, tl.exp(tl.div_rn(logits - top, temperature)), 0.0)
    return tl.sum(count), tl.sum(mass)


@triton.jit
def _top(logits_ptr, mask_ptr, has_mask, vocab, words, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    """Return the row's largest logit."""
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        logits = _load(logits_ptr, mask_ptr, has_mask, tokens, vocab, words, MASKED)
        top = tl.maximum(top, logits)
    return tl.max(top)


@triton.jit
def _top_k_mass(
    logits_ptr, mask_ptr, has_mask, top_k, top, temperature, vocab, words, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the sum of ``exp(logit - top)`` over the ``top_k`` best tokens and ties with the last, by bisection."""
    # Invariant: at least `top_k` tokens are above `low`, fewer than `top_k` above `high`.
    low, high = top - 1024.0, top
    _count, mass = _above(logits_ptr, mask_ptr, has_mask, low, top, temperature, vocab, words, MASKED, BLOCK)
    for _ in range(48):
        middle = 0.5 * (low + high)
        if (middle > low) & (middle < high):
            count, above = _above(logits_ptr, mask_ptr, has_mask, middle, top, temperature, vocab, words, MASKED, BLOCK)
            if count >= top_k:
                low, mass = middle, above
                if count == top_k:
                    high = middle
            else:
                high = middle
    return mass


@triton.jit
def _resample_above(
    logits_ptr, mask_ptr, has_mask, floor, temperature, state, vocab, words, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the token with the largest sum of tempered logit and noise among those with logits above ``floor``."""
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    best_tokens = tl.full((BLOCK,), NONE, dtype=tl.int32)
    for start in range(0, vocab, BLOCK):
        tokens = start + tl.arange(0, BLOCK)
        logits = _load(logits_ptr, mask_ptr, has_mask, tokens, vocab, words, MASKED)
        if tl.max(logits) > floor:
            noisy = tl.where(logits > floor, _noisy(logits, temperature, state, tokens), float("-inf"))
            best, best_tokens = _keep_best(best, best_tokens, noisy, tokens)
    _best, token = _best_of(best, best_tokens)
    return token


@triton.jit
def _rejection_kernel(
    logits_ptr,
    words_ptr,
    floats_ptr,
    masks_ptr,
    values_ptr,
    tokens_ptr,
    out_ptr,
    logits_stride,
    vocab,
    words,
    num_splits,
    WORDS: tl.constexpr,
    MASKED: tl.constexpr,
    TRUNCATED: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Choose the best token of all splits; for a truncated row, resample above it until a kept token results."""
    row = tl.program_id(0)
    index = tl.arange(0, NUM_SPLITS)
    values = tl.load(values_ptr + row * num_splits + index, mask=index < num_splits, other=float("-inf"))
    tokens = tl.load(tokens_ptr + row * num_splits + index, mask=index < num_splits, other=NONE)
    _best, token = _best_of(values, tokens)
    token = tl.minimum(token, vocab - 1)  # also for a row whose tempered logits are all -inf
    if TRUNCATED:
        logits_ptr += row.to(tl.int64) * logits_stride
        mask_ptr, has_mask = _mask_of(masks_ptr, row, tl.num_programs(0), words, MASKED)
        floats_ptr += row * WORDS * 2
        temperature = tl.load(floats_ptr + _TEMPERATURE)
        top_p = tl.load(floats_ptr + _TOP_P)
        min_p = tl.load(floats_ptr + _MIN_P)
        top_k = tl.load(floats_ptr + _TOP_K).to(tl.int32, bitcast=True)
        if (token >= 0) & (temperature > 0) & ((top_p < 1) | (min_p > 0) | (top_k > 0)):
            temperature = tl.maximum(temperature, 1e-5)
            state = _state(words_ptr + row * WORDS)
            top = _top(logits_ptr, mask_ptr, has_mask, vocab, words, MASKED, BLOCK)
            top_p_mass = float("inf")
            if top_p < 1:
                if (top_k > 0) & (top_k < vocab):
                    top_p_mass = top_p * _top_k_mass(
                        logits_ptr, mask_ptr, has_mask, top_k, top, temperature, vocab, words, MASKED, BLOCK
                    )
                else:
                    _count, all_mass = _above(
                        logits_ptr, mask_ptr, has_mask, float("-inf"), top, temperature, vocab, words, MASKED, BLOCK
                    )
                    top_p_mass = top_p * all_mass
            if top_k == 0:
                top_k += vocab
            tried = 1
            while tried > 0:
                floor = tl.load(logits_ptr + token).to(tl.float32)
                count, mass = _above(
                    logits_ptr, mask_ptr, has_mask, floor, top, temperature, vocab, words, MASKED, BLOCK
                )
                kept = (count < top_k) & (mass < top_p_mass)
                kept = kept & (tl.exp(tl.div_rn(floor - top, temperature)) >= min_p)
                if kept | (count == 0):
                    tried = 0
                else:
                    token = tl.minimum(
                        _resample_above(
                            logits_ptr, mask_ptr, has_mask, floor, temperature, state, vocab, words, MASKED, BLOCK
                        ),
                        vocab - 1,
                    )
    tl.store(out_ptr + row, token.to(tl.int64))


def sample_tokens(
    logits: torch.Tensor,
    rows: torch.Tensor | None = None,
    masks: TokenMaskRows | None = None,
    *,
    truncated: bool = False,
) -> torch.Tensor:
    """Sample one token per row of ``logits [rows, vocab]``: ``[rows]`` int64, without waiting for the device.

    Gumbel-max sampling, with rejection of truncated tokens. ``logits`` are float32, bfloat16 or float16, with
    contiguous rows. ``rows`` come from ``row_parameters``, on the logits' device; None: all rows are greedy. ``masks``
    come from ``token_mask_rows``, on the same device, and allow each row at least one token; None: any token.
    ``truncated``: some row has a top-k, top-p or min-p. Among equal logits a greedy row takes the smallest id; a row
    whose logits are not all finite gets ``OVERFLOWED``. Raises ``ValueError`` for shapes that do not fit.
    """
    count, vocab = logits.shape
    if logits.stride(1) != 1 or (rows is not None and (rows.shape != (count, ROW_WORDS) or not rows.is_contiguous())):
        raise ValueError(
            f"logits are {tuple(logits.shape)} with strides {logits.stride()}, their parameters "
            f"{None if rows is None else tuple(rows.shape)}; needs contiguous rows of logits, and of {ROW_WORDS} words"
        )
    if masks is not None and masks.rows != count:
        raise ValueError(f"masks are for {masks.rows} rows, the logits have {count}")
    num_splits = triton.cdiv(vocab, SPLIT_SIZE)
    values = torch.empty(count, num_splits, dtype=torch.float32, device=logits.device)
    tokens = torch.empty(count, num_splits, dtype=torch.int32, device=logits.device)
    out = torch.empty(count, dtype=torch.int64, device=logits.device)
    words = tokens if rows is None else rows
    floats = values if rows is None else rows.view(torch.float32)
    packed, mask_words = (tokens, 0) if masks is None else (masks.packed, masks.words)
    _partial_argmax_kernel[num_splits, count](
        logits, words, floats, packed, values, tokens, logits.stride(0), vocab, mask_words,
        WORDS=ROW_WORDS, MASKED=masks is not None, RANDOM=rows is not None, SPLIT_SIZE=SPLIT_SIZE, BLOCK=BLOCK,
        num_warps=8,
    )  # fmt: skip
    _rejection_kernel[count,](
        logits, words, floats, packed, values, tokens, out, logits.stride(0), vocab, mask_words, num_splits,
        WORDS=ROW_WORDS, MASKED=masks is not None, TRUNCATED=truncated and rows is not None,
        NUM_SPLITS=triton.next_power_of_2(num_splits), BLOCK=BLOCK, num_warps=16 if truncated else 1,
    )  # fmt: skip
    return out
