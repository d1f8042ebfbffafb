"""FP8: what quantises activations, and products, against float64 of the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lorikeet_testing.grids import grid
from lorikeet_testing.quantising_ops import quantised

from lora_kernels import fp8, reference
from lora_kernels.elementwise import add_norm, add_norm_and_quantise
from lora_kernels.fp8 import activate_and_quantise, fp8_linear, quantise_rows
from lora_kernels.fp8_tensors import BLOCK, FP8, LARGEST, Fp8Matrix, Fp8Rows, concatenated, quantise
from lora_kernels.hopper_fp8 import fitting, hopper_fp8_linear, takes, tiles_of
from lora_kernels.hopper_fp8_wide import hopper_fp8_wide_linear, splits_of, takes_wide
from lora_kernels.pdl import pdl_options

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
KINDS = ("channel", "block", "static")


@pytest.fixture(autouse=True)
def _poisoned_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not written is NaN."""
    empty = Fp8Rows.empty

    def poisoned(tokens: int, matrix: Fp8Matrix, full: torch.Tensor | None) -> Fp8Rows:
        rows = empty(tokens, matrix, full)
        rows.data.view(torch.uint8).fill_(0x7F)
        rows.scale.fill_(float("nan"))
        return rows

    monkeypatch.setattr(Fp8Rows, "empty", poisoned)


def matrix_of(kind: str, outputs: int, inputs: int) -> Fp8Matrix:
    weight = torch.randn(outputs, inputs, device=DEVICE)
    if kind != "block":
        quantised = quantise(weight)
        static = torch.tensor([2.0 / LARGEST], device=DEVICE) if kind == "static" else None
        return Fp8Matrix(quantised.data, quantised.scale, static)
    scale = torch.rand(-(-outputs // BLOCK), -(-inputs // BLOCK), device=DEVICE) + 0.5
    return Fp8Matrix(weight.to(FP8), scale)


def dequantised(rows: Fp8Rows) -> torch.Tensor:
    scale = rows.scale.double().repeat_interleave(rows.group, 1)[:, : rows.shape[1]]
    return rows.data.float().double() * scale


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 150, 1536])
def test_rows_are_quantised(kind: str, size: int) -> None:
    x, matrix = torch.randn(5, 2 * size, device=DEVICE).to(DTYPE)[:, :size], matrix_of(kind, 32, size)
    rows = quantise_rows(x, matrix)
    assert rows.full is x
    assert error(dequantised(rows), quantised(x, matrix)) < 1e-3
    assert error(dequantised(rows), x) < 0.04 or kind == "static"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("full", [True, False])
def test_norms_quantise(kind: str, full: bool) -> None:
    x, residual = (torch.randn(3, 150, device=DEVICE).to(DTYPE) for _ in range(2))
    weight, matrix = torch.randn(150, device=DEVICE).to(DTYPE), matrix_of(kind, 32, 150)
    added, want = residual.clone(), torch.empty_like(x)
    add_norm(x, added, weight, 1e-5, want)
    rows = add_norm_and_quantise(x, residual, weight, 1e-5, matrix, full)
    assert torch.equal(residual, added)
    assert error(dequantised(rows), quantised(want, matrix)) < 1e-3
    assert (rows.full is not None) == full
    assert rows.full is None or torch.equal(rows.full, want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("full", [True, False])
def test_activations_quantise(kind: str, full: bool) -> None:
    gate_up, matrix = torch.randn(3, 600, device=DEVICE).to(DTYPE), matrix_of(kind, 32, 300)
    rows = activate_and_quantise(gate_up, matrix, "silu", full)
    want = reference.silu_mul(gate_up).to(DTYPE)
    assert error(dequantised(rows), quantised(want, matrix)) < 1e-2
    assert (rows.full is not None) == full
    assert rows.full is None or error(rows.full, want) < 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_what_overflows_is_seen(kind: str) -> None:
    x = torch.ones(3, 256, device=DEVICE, dtype=DTYPE)
    x[0, 3], x[1, 200] = float("inf"), float("nan")
    scales = quantise_rows(x, matrix_of(kind, 32, 256)).scale
    assert scales.isfinite().all(dim=1).tolist() == [False, False, True]


def test_a_row_of_zeros() -> None:
    rows = quantise_rows(torch.zeros(2, 128, device=DEVICE, dtype=DTYPE), matrix_of("channel", 32, 128))
    assert torch.equal(dequantised(rows), torch.zeros(2, 128, device=DEVICE, dtype=torch.float64))


Onto = Callable[[int, int], torch.Tensor | None]
ONTO: dict[str, Onto] = {
    "nothing": lambda tokens, outputs: None,
    "bias": lambda tokens, outputs: torch.randn(outputs, device=DEVICE).to(DTYPE),
    "rows": lambda tokens, outputs: torch.randn(tokens, outputs, device=DEVICE).to(DTYPE),
}


# One row, whose sum has parts; some rows; and many. No side is a multiple of a block.
ONE, SOME, MANY = (1, 80, 2064), (19, 272, 304), (70, 144, 640)


@pytest.mark.parametrize(
    ("shape", "kind", "onto"),
    grid(
        [ONE, SOME, MANY], ["channel", "block"], ONTO,
        ordinary=lambda shape, kind, onto: shape == SOME or onto == ("bias" if kind == "block" else "rows"),
    ),
    ids=str,
)  # fmt: skip
def test_products(shape: tuple[int, int, int], kind: str, onto: str) -> None:
    tokens, outputs, inputs = shape
    matrix = matrix_of(kind, outputs, inputs)
    rows = quantise_rows(torch.randn(tokens, inputs, device=DEVICE).to(DTYPE), matrix)
    added = ONTO[onto](tokens, outputs)
    want = dequantised(rows) @ matrix.dequantised(torch.float64).t()
    want = want if added is None else want + added
    assert error(fp8_linear(rows, matrix, DTYPE, added), want) < 5e-3
    wide = torch.full((tokens, outputs + 16), float("nan"), device=DEVICE, dtype=DTYPE)  # rows of a larger matrix
    out = wide[:, :outputs]
    if onto == "rows":
        assert added is not None
        out.copy_(added)
    product = fp8_linear(rows, matrix, DTYPE, out if onto == "rows" else added, out)
    assert product.data_ptr() == wide.data_ptr() and error(out, want) < 5e-3
    assert bool(wide[:, outputs:].isnan().all())


def test_parts_of_a_sum_are_added_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "tiling", lambda *sizes: (16, 64, 128, 4, 4, 3))
    matrix = matrix_of("channel", 96, 1300)
    rows = quantise_rows(torch.randn(20, 1300, device=DEVICE).to(DTYPE), matrix)
    first = fp8_linear(rows, matrix, DTYPE)
    assert error(first, dequantised(rows) @ matrix.dequantised(torch.float64).t()) < 5e-3
    for _ in range(3):  # the counts of programs that arrived are zero again
        assert torch.equal(fp8_linear(rows, matrix, DTYPE), first)


def test_shapes_that_do_not_fit() -> None:
    matrix = matrix_of("channel", 32, 64)
    with pytest.raises(ValueError, match="x has 32 columns"):
        quantise_rows(torch.zeros(1, 32, device=DEVICE), matrix)
    with pytest.raises(ValueError, match="gate_up is"):
        activate_and_quantise(torch.zeros(1, 64, device=DEVICE), matrix, "silu", False)
    with pytest.raises(ValueError, match="has no kernel"):
        activate_and_quantise(torch.zeros(1, 128, device=DEVICE), matrix, "relu", False)
    with pytest.raises(ValueError, match="in groups of"):
        fp8_linear(quantise_rows(torch.zeros(1, 64, device=DEVICE), matrix), matrix_of("block", 32, 256), DTYPE)


def test_matrices_side_by_side() -> None:
    parts = [matrix_of("block", rows, 256) for rows in (128, 256, 40)]
    joined = concatenated(parts)
    assert joined is not None
    assert torch.equal(joined.dequantised(DTYPE), torch.cat([part.dequantised(DTYPE) for part in parts]))
    assert concatenated(parts[::-1]) is None, "a block would be of two matrices"
    assert concatenated([parts[0], matrix_of("channel", 128, 256)]) is None


@pytest.mark.parametrize("tokens", [1, 16, 33, 64, 128])
@pytest.mark.parametrize(("outputs", "inputs"), [(80, 304), (4096, 14336), (28672, 4096), (8192, 4096), (2560, 9728)])
def test_tiles_of_products_on_hopper(tokens: int, outputs: int, inputs: int) -> None:
    """Tiles fit into shared memory, and no program of a split sum is without work."""
    assert takes(tokens, outputs) == (tokens <= 64 or outputs <= 8448)
    block_m, splits, stages = tiles_of(tokens, outputs, inputs)
    steps = -(-inputs // 256)
    assert tokens <= block_m
    assert (splits - 1) * -(-steps // splits) < steps
    assert stages >= 2 and stages * (64 + block_m) * 256 <= 220 * 1024


@pytest.mark.gpu
@pytest.mark.parametrize("onto", ONTO)
@pytest.mark.parametrize("shape", [(1, 80, 2064), (19, 272, 304), (64, 8208, 1040), (100, 1024, 8192)], ids=str)
@pytest.mark.parametrize("splits", [1, 3])
def test_products_on_hopper(shape: tuple[int, int, int], onto: str, splits: int) -> None:
    """Sides that no tile divides, sums in parts, again and again."""
    tokens, outputs, inputs = shape
    matrix = matrix_of("channel", outputs, inputs)
    rows = quantise_rows(torch.randn(tokens, inputs, device=DEVICE).to(DTYPE), matrix)
    added = ONTO[onto](tokens, outputs)
    want = dequantised(rows) @ matrix.dequantised(torch.float64).t()
    want = want if added is None else want + added
    block_m = tiles_of(tokens, outputs, inputs).block_m
    tiles = fitting(block_m, splits, inputs, 128 << 10)
    first = None
    for _ in range(3):
        out = torch.full((tokens, outputs), float("nan"), device=DEVICE, dtype=DTYPE)
        hopper_fp8_linear(rows, matrix, added, out, tiles, pdl_options(out))
        assert error(out, want) < 5e-3
        first = out if first is None else first
        assert torch.equal(out, first)


@pytest.mark.parametrize(
    ("outputs", "inputs", "splits"), [(5120, 8192, 3), (8192, 4096, 2), (28672, 8192, 1), (80, 304, 1), (128, 2560, 2)]
)
def test_parts_of_sums_of_many_tokens_on_hopper(outputs: int, inputs: int, splits: int) -> None:
    """They fill the multiprocessors, and none is short or empty."""
    assert splits_of(outputs, inputs) == splits
    taken = [tokens for tokens in (128, 129, 192, 193) if takes_wide(tokens, outputs, inputs)]
    assert taken == ([129, 192] if outputs * inputs >= 4096 * 8192 else [])


@pytest.mark.gpu
@pytest.mark.parametrize("onto", ONTO)
@pytest.mark.parametrize("shape", [(129, 80, 2064), (160, 272, 304), (192, 8208, 1040), (192, 1024, 8192)], ids=str)
@pytest.mark.parametrize("splits", [1, 3])
def test_products_of_many_tokens_on_hopper(shape: tuple[int, int, int], onto: str, splits: int) -> None:
    """Sides that no tile divides, sums in parts, again and again."""
    tokens, outputs, inputs = shape
    matrix = matrix_of("channel", outputs, inputs)
    rows = quantise_rows(torch.randn(tokens, inputs, device=DEVICE).to(DTYPE), matrix)
    added = ONTO[onto](tokens, outputs)
    want = dequantised(rows) @ matrix.dequantised(torch.float64).t()
    want = want if added is None else want + added
    first = None
    for _ in range(3):
        out = torch.full((tokens, outputs), float("nan"), device=DEVICE, dtype=DTYPE)
        hopper_fp8_wide_linear(rows, matrix, added, out, splits, pdl_options(out))
        assert error(out, want) < 5e-3
        first = out if first is None else first
        assert torch.equal(out, first)
