"""Products of few tokens against plain torch: odd sizes, sums in parts, a bias or an earlier output."""

from __future__ import annotations

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401

from lora_kernels import skinny_linear as module
from lora_kernels.skinny_linear import FEW_TOKENS, skinny_linear, tiling

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32


def matrices(tokens: int, outputs: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows that are a part of wider ones, and a matrix."""
    x = torch.full((tokens, inputs + 8), float("nan"), device=DEVICE, dtype=DTYPE)[:, :inputs]
    return x.copy_(torch.randn(tokens, inputs)), torch.randn(outputs, inputs, device=DEVICE).to(DTYPE)


def assert_product(got: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, onto: torch.Tensor | float) -> None:
    want = x.double() @ weight.double().t() + onto
    assert ((got.double() - want).norm() / want.norm()).item() < (4e-3 if torch.bfloat16 == DTYPE else 1e-5)


# One token, whose sum has two parts; some outputs in several tiles; sizes that no tile divides; a router's product of
# several blocks of tokens, with sums in two parts.
@pytest.mark.parametrize(
    ("tokens", "outputs", "inputs"), [(1, 64, 1024), (7, 200, 512), (32, 72, 1304), (17, 8, 40), (71, 72, 1304)]
)
@pytest.mark.parametrize("onto", ["nothing", "bias", "output"])
def test_products(tokens: int, outputs: int, inputs: int, onto: str) -> None:
    x, weight = matrices(tokens, outputs, inputs)
    if onto == "nothing":
        assert_product(skinny_linear(x, weight), x, weight, 0.0)
        return
    shape = (outputs,) if onto == "bias" else (tokens, outputs)
    added = torch.randn(*shape, device=DEVICE).to(DTYPE)
    before = added.double()
    out = added if onto == "output" else torch.full((tokens, outputs), float("nan"), device=DEVICE, dtype=DTYPE)
    assert skinny_linear(x, weight, added, out) is out
    assert_product(out, x, weight, before)


def test_sums_in_parts_are_added_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "tiling", lambda *sizes: (16, 64, 128, 4, 3))
    x, weight = matrices(5, 96, 1304)
    first = skinny_linear(x, weight)
    assert_product(first, x, weight, 0.0)
    for _ in range(3):  # the counts of programs that arrived are zero again
        assert torch.equal(skinny_linear(x, weight), first)


def test_columns_of_a_wider_output() -> None:
    x, weight = matrices(3, 40, 64)
    out = torch.full((3, 64), 7.0, device=DEVICE, dtype=DTYPE)
    skinny_linear(x, weight, None, out[:, 8:48])
    assert_product(out[:, 8:48], x, weight, 0.0)
    assert (out[:, :8] == 7).all() and (out[:, 48:] == 7).all()


def test_values_that_are_not_finite_stay_in_their_row() -> None:
    x, weight = matrices(4, 64, 256)
    x[1] = float("inf")
    got = skinny_linear(x, weight)
    assert not got[1].isfinite().all() and got[[0, 2, 3]].isfinite().all()


def test_tiles_of_large_and_small_matrices() -> None:
    assert tiling(1, 4096, 14336) == (16, 64, 256, 2, 3)
    assert tiling(32, 28672, 4096) == (32, 128, 128, 1, 4)
    assert tiling(16, 128, 512)[3] == 1, "a part of a sum must not be empty"
    for outputs in (8, 1000, 6144, 200_000):
        for inputs in (64, 1024, 3584, 18944):
            _, block_n, block_k, splits, _ = tiling(4, outputs, inputs)
            assert splits == 1 or -(-outputs // block_n) * splits <= module.PROGRAMS
            assert splits <= -(-inputs // block_k)


def test_shapes_that_do_not_fit() -> None:
    x, weight = matrices(2, 16, 64)
    with pytest.raises(ValueError, match="the matrix"):
        skinny_linear(x[:, :32], weight)
    for tokens, outputs in ((module.NARROW_TOKENS + 1, 16), (FEW_TOKENS + 1, module.NARROW + 8)):
        with pytest.raises(ValueError, match="the matrix"):
            skinny_linear(*matrices(tokens, outputs, 64))
