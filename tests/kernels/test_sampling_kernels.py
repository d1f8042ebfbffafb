"""The choice of tokens against the same in torch's operations, and against the distribution it is meant to follow."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pytest
import torch
from lorikeet_testing.compiled import compiler_process
from lorikeet_testing.grids import grid

from lora_engine.sampling import greedy_tokens, sample_with_torch
from lora_kernels.sampling import BLOCK, SPLIT_SIZE, sample_tokens
from lora_kernels.sampling_parameters import OVERFLOWED, TokenMaskRows, row_parameters, token_mask_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float32] if DEVICE == "cuda" else [torch.float16, torch.float32]
VOCABS = (1, 50, BLOCK, SPLIT_SIZE, SPLIT_SIZE + 1, 2 * SPLIT_SIZE + 300)


def parameters(count: int, **given: float) -> torch.Tensor:
    """``count`` rows at positions 0, 1, ... with the same parameters."""
    every = {"temperatures": 1.0, "top_ps": 1.0, "min_ps": 0.0, "top_ks": 0} | given
    columns = {name: [value] * count for name, value in every.items()}
    return row_parameters(seeds=[7] * count, positions=range(count), **columns)


def choose(logits: torch.Tensor, rows: torch.Tensor, truncated: bool, masks: TokenMaskRows | None = None) -> list[int]:
    there = None if masks is None else masks.to(lambda tensor: tensor.to(DEVICE))
    tokens: list[int] = sample_tokens(logits.to(DEVICE), rows.to(DEVICE), there, truncated=truncated).tolist()
    assert sample_with_torch(logits, rows, masks, truncated=truncated).tolist() == tokens
    return tokens


def mask_of(allowed: Collection[int], vocab: int) -> npt.NDArray[np.int32]:
    bits = np.zeros((vocab + 31) // 32 * 32, dtype=np.uint8)
    bits[list(allowed)] = 1
    return np.packbits(bits, bitorder="little").view(np.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", VOCABS)
def test_greedy_is_the_first_of_the_best(vocab: int, dtype: torch.dtype) -> None:
    logits = torch.randn(4, vocab).to(dtype)
    logits[1, vocab // 2 :] = logits[1].max()
    logits[2] = 0
    wanted = [int((row == row.max()).nonzero()[0]) for row in logits]
    greedy = parameters(4, temperatures=0.0).to(DEVICE)
    assert sample_tokens(logits.to(DEVICE)).tolist() == wanted
    assert sample_tokens(logits.to(DEVICE), greedy).tolist() == wanted


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's numpy says so
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("vocab", "truncated"), [(1, True), (50, True), (2 * SPLIT_SIZE + 300, False)])
def test_a_row_that_is_not_finite_yields_no_token(vocab: int, truncated: bool, dtype: torch.dtype) -> None:
    """Wherever the logit is, however the row is sampled; nothing changes for the rows beside it."""
    logits = torch.randn(6, vocab).to(dtype)
    rows = row_parameters(
        seeds=range(6), positions=range(6), temperatures=[0, 0, 1, 1, 1, 1], min_ps=[0] * 6,
        top_ps=[1, 1, 1, 1, 0.5, 0.5] if truncated else [1] * 6, top_ks=[0, 0, 0, 0, 3, 3] if truncated else [0] * 6,
    )  # fmt: skip
    healthy, healthy_greedy = choose(logits, rows, truncated), sample_tokens(logits.to(DEVICE)).tolist()
    for place in {0, vocab - 1}:
        struck = logits.clone()
        for row, value in ((0, "nan"), (2, "inf"), (4, "-inf")):
            struck[row, place] = float(value)
        greedy = sample_tokens(struck.to(DEVICE)).tolist()
        assert choose(struck, rows, truncated)[::2] == greedy[::2] == [OVERFLOWED] * 3
        assert choose(struck, rows, truncated)[1::2] == healthy[1::2]
        assert greedy[1::2] == healthy_greedy[1::2]
        assert greedy_tokens(struck).tolist() == greedy


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", VOCABS)
def test_random_rows_beside_greedy_ones(vocab: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(6, vocab) * 3).to(dtype)
    rows = row_parameters(
        seeds=[1, 2, 2**63 - 1, -(2**63), 0, 5], positions=[0, 9, 3, 4, 0, 10**6], temperatures=[0, 1, 0.7, 0, 2, 1e-6],
        top_ps=[1] * 6, min_ps=[0] * 6, top_ks=[0] * 6,
    )  # fmt: skip
    tokens = choose(logits, rows, truncated=False)
    best = logits.float().argmax(dim=-1).tolist()
    assert [tokens[row] for row in (0, 3)] == [best[row] for row in (0, 3)]
    assert logits[5, tokens[5]] == logits[5].max()  # in half precision several may be the best


FLAT, PEAKED = 0.1, 3.0


@pytest.mark.parametrize(
    ("dtype", "scale"),
    grid(DTYPES, [FLAT, PEAKED], ordinary=lambda dtype, scale: (dtype == torch.float16) == (scale == FLAT)),
    ids=str,
)
def test_truncated_rows(dtype: torch.dtype, scale: float) -> None:
    rnd, count, vocab = random.Random(3), 12, SPLIT_SIZE + 300
    logits = (torch.randn(count, vocab) * scale).to(dtype)  # in half precision with many equal logits
    rows = row_parameters(
        seeds=[rnd.randrange(2**40) for _ in range(count)],
        positions=list(range(count)),
        temperatures=[rnd.choice((0.0, 0.7, 1.0, 1.5)) for _ in range(count)],
        top_ps=[rnd.choice((1.0, 0.9, 0.5, 0.05, 1e-6)) for _ in range(count)],
        min_ps=[rnd.choice((0.0, 0.0, 0.05, 0.5, 1.0)) for _ in range(count)],
        top_ks=[rnd.choice((0, 0, 1, 5, 40, 10**6)) for _ in range(count)],
    )
    choose(logits, rows, truncated=True)


def test_frequencies_follow_what_is_kept() -> None:
    count = 8000 if DEVICE == "cuda" else 40  # what `choose` compares with has a test of its own
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.1])
    logits = probabilities.log().expand(count, -1).contiguous()
    cases: list[tuple[dict[str, float], int]] = [
        ({"top_ks": 3}, 3), ({"top_ps": 0.69}, 2), ({"min_ps": 0.3}, 3), ({"top_ks": 2, "top_ps": 0.5}, 1)
    ]  # fmt: skip
    for given, kept in cases:
        counts = Counter(choose(logits, parameters(count, **given), truncated=True))
        wanted = probabilities[:kept] / probabilities[:kept].sum()
        assert set(counts) <= set(range(kept))
        for token in range(kept):
            assert counts[token] / count == pytest.approx(float(wanted[token]), abs=2 / count**0.5)


def test_equal_scores_are_kept_together() -> None:
    count = 400 if DEVICE == "cuda" else 40
    logits = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0]).expand(count, -1).contiguous()
    assert set(choose(logits, parameters(count, top_ks=2), truncated=True)) == {0, 1, 2, 3}


def test_a_row_depends_on_nothing_beside_it() -> None:
    logits = torch.randn(4, SPLIT_SIZE + 5)
    rows = parameters(4, top_ps=0.8)
    together = choose(logits, rows, truncated=True)
    assert [choose(logits[i : i + 1], rows[i : i + 1], truncated=True)[0] for i in range(4)] == together


@pytest.mark.parametrize(
    ("vocab", "dtype", "truncated"),
    grid(
        [50, BLOCK, SPLIT_SIZE + 300], DTYPES, [False, True],
        ordinary=lambda vocab, dtype, truncated: dtype == torch.float32 or (vocab == 50 and truncated),
    ),
    ids=str,
)  # fmt: skip
def test_rows_choose_among_what_their_masks_allow(vocab: int, dtype: torch.dtype, truncated: bool) -> None:
    """The others choose as without masks, wherever they are; unused memory beside the masks counts for nothing."""
    rnd, count = random.Random(11), 12
    logits = (torch.randn(count, vocab) * 3).to(dtype)
    rows = row_parameters(
        seeds=range(count), positions=range(count), temperatures=[rnd.choice((0.0, 0.8, 1.5)) for _ in range(count)],
        top_ps=[rnd.choice((1.0, 0.7)) if truncated else 1 for _ in range(count)],
        min_ps=[rnd.choice((0.0, 0.1)) if truncated else 0 for _ in range(count)],
        top_ks=[rnd.choice((0, 3, 10**6)) if truncated else 0 for _ in range(count)],
    )  # fmt: skip
    allowed: list[set[int] | None] = [
        None if row % 3 == 0 else set(rnd.sample(range(vocab), rnd.choice((1, 2, vocab // 2)))) for row in range(count)
    ]
    allowed[-1] = {vocab - 1}
    free = choose(logits, rows, truncated)
    masks = token_mask_rows([None if each is None else mask_of(each, vocab) for each in allowed])
    surrounded = torch.full((len(masks.packed) + 64,), -1, dtype=torch.int32)  # bits that allow everything
    surrounded[32:-32] = masks.packed
    masks = TokenMaskRows(surrounded[32:-32], masks.rows, masks.words)
    tokens = choose(logits, rows, truncated, masks)
    for row, each in enumerate(allowed):
        if each is None:
            assert tokens[row] == free[row]
        else:
            assert tokens[row] in each
        if each is not None and float(rows.view(torch.float32)[row, 4]) == 0:
            assert tokens[row] == max(sorted(each), key=lambda token: float(logits[row, token]))


def test_tokens_beyond_a_mask_are_not_allowed_and_a_masked_row_may_overflow() -> None:
    logits = torch.zeros(3, 100)
    logits[:, 70] = 5.0
    logits[1, 3] = float("inf")
    masks = token_mask_rows([mask_of({1, 2}, 64), mask_of({1}, 64), None])
    assert choose(logits, parameters(3, temperatures=0.0), False, masks) == [1, OVERFLOWED, 70]


def test_masks_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="masks are for 1 rows"):
        sample_tokens(torch.zeros(2, 50, device=DEVICE), None, token_mask_rows([mask_of({1}, 50)]))


@pytest.mark.parametrize("which", [(), pytest.param(("every",), marks=pytest.mark.long)], ids=["pairs", "every"])
def test_the_kernels_compile_for_a_gpu(which: tuple[str, ...]) -> None:
    """The interpreter takes what the compiler does not. In a process of its own, which has no interpreter."""
    compiler_process("compiled_sampling", *which)


def test_shapes_that_do_not_fit_are_refused() -> None:
    logits = torch.randn(3, 50, device=DEVICE)
    with pytest.raises(ValueError, match="contiguous rows"):
        sample_tokens(logits, parameters(2).to(DEVICE))
    with pytest.raises(ValueError, match="contiguous rows"):
        sample_tokens(logits.t())
