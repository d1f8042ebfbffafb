"""Kernels whose rows do not depend on the batch: against plain torch, and each row alone against the same among others.

In the interpreter with products that add up in order (`ordered_dots.py`); what a GPU's own products do is asked in
`tests/engine/test_deterministic.py`, where they are run at the sizes of real layers.
"""

from __future__ import annotations

import pytest
import torch
from lorikeet_testing import interpreted  # noqa: F401
from lorikeet_testing.ordered_dots import add_in_order

from lora_kernels import attention, invariant_decode, invariant_linear
from lora_kernels.attention import DecodeWorkspace, paged_prefill, prefill_tiles
from lora_kernels.invariant_linear import LinearConfig
from lora_kernels.reference import paged_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAGE_TOKENS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 16


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, keys in splits and several programs to them, with few numbers."""
    if DEVICE == "cpu":
        add_in_order(monkeypatch)
    tiles = (LinearConfig(16, 64, 16, 4, 4), LinearConfig(32, 64, 32, 4, 4), LinearConfig(64, 128, 16, 8, 4))
    monkeypatch.setattr(invariant_linear, "CONFIGS", tiles)
    monkeypatch.setattr(invariant_decode, "LEAST_SPLIT", 32)
    monkeypatch.setattr(invariant_decode, "FEW_DECODES", (16, 4, 3))
    monkeypatch.setattr(attention, "LONG_CONTEXT", (16, 4, 2))
    monkeypatch.setattr(attention, "FEW", 16)


@pytest.mark.parametrize(("outputs", "inputs"), [(100, 40), (70, 300)])
def test_rows_of_products(outputs: int, inputs: int) -> None:
    x, weight = torch.randn(90, inputs, device=DEVICE), torch.randn(outputs, inputs, device=DEVICE)
    bias = torch.randn(outputs, device=DEVICE) if inputs < outputs else None
    whole = invariant_linear.invariant_linear(x, weight, bias)
    torch.testing.assert_close(whole, torch.nn.functional.linear(x, weight, bias), rtol=1e-4, atol=1e-3)
    for first, count in ((0, 1), (3, 16), (5, 17), (7, 33), (1, 65)):
        rows, out = slice(first, first + count), torch.full((count, outputs), float("nan"), device=DEVICE)
        assert torch.equal(invariant_linear.invariant_linear(x[rows], weight, bias, out), whole[rows])


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="the matrix"):
        invariant_linear.invariant_linear(torch.zeros(1, 5), torch.zeros(3, 4))


def filled_pool(lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages with NaN behind each sequence's end, in no order; the block table."""
    needed = [-(-length // PAGE_TOKENS) for length in lengths]
    order, table = torch.randperm(sum(needed)) + 1, torch.zeros(len(lengths), max(needed), dtype=torch.int32)
    pool, first = torch.randn(sum(needed) + 1, 2, PAGE_TOKENS, KV_HEADS * HEAD_DIM), 0
    for row, (length, pages) in enumerate(zip(lengths, needed, strict=True)):
        table[row, :pages] = order[first : first + pages]
        pool[table[row, pages - 1].long(), :, (length - 1) % PAGE_TOKENS + 1 :] = float("nan")
        first += pages
    return pool.flatten(1).to(DEVICE), table.to(DEVICE)


@pytest.mark.parametrize(
    ("window", "softcap", "with_sinks"), [(0, 0.0, False), (37, 0.0, False), (0, 2.0, False), (37, 0.0, True)]
)
def test_rows_of_decode_attention(window: int, softcap: float, with_sinks: bool) -> None:
    sinks = torch.linspace(-3, 6, HEADS, device=DEVICE) if with_sinks else None
    lengths = [1, 31, 33, 150]
    pool, table = filled_pool(lengths)
    q = torch.randn(len(lengths), HEADS * HEAD_DIM, device=DEVICE)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)

    def decode(rows: slice) -> torch.Tensor:
        out = torch.full_like(q[rows], float("nan"))
        workspace = DecodeWorkspace(len(lengths), HEADS, HEAD_DIM, 4, DEVICE)
        invariant_decode.invariant_decode(
            q[rows], pool, table[rows], seq_lens[rows], out, workspace, heads=HEADS, kv_heads=KV_HEADS,
            page_tokens=PAGE_TOKENS, window=window, softcap=softcap, sinks=sinks,
        )  # fmt: skip
        return out

    together = decode(slice(None))
    for row, length in enumerate(lengths):
        assert torch.equal(decode(slice(row, row + 1))[0], together[row])
        if not softcap:
            queries = q[row].view(1, HEADS, HEAD_DIM)
            want = paged_attention(queries, pool, table[row], length - 1, PAGE_TOKENS, KV_HEADS, window, sinks=sinks)
            torch.testing.assert_close(together[row], want.float().flatten(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [0, 21])
def test_rows_of_a_prompt_in_any_chunks(window: int) -> None:
    tokens = 75
    pool, table = filled_pool([tokens])
    q = torch.randn(tokens, HEADS * HEAD_DIM, device=DEVICE)

    def attend(*cuts: int) -> torch.Tensor:
        out = torch.full_like(q, float("nan"))
        for first, stop in zip((0, *cuts), (*cuts, tokens), strict=True):
            tiles = prefill_tiles([(0, first, stop - first, first)], HEADS, KV_HEADS).to(DEVICE)
            paged_prefill(q, pool, table, tiles, out, heads=HEADS, kv_heads=KV_HEADS, page_tokens=PAGE_TOKENS,
                          window=window, invariant=True)  # fmt: skip
        return out

    whole = attend()
    want = paged_attention(q.view(tokens, HEADS, HEAD_DIM), pool, table[0], 0, PAGE_TOKENS, KV_HEADS, window)
    torch.testing.assert_close(whole, want.float().flatten(1), rtol=1e-4, atol=1e-4)
    for cuts in ((17, 18), (5, 40, 74)):
        assert torch.equal(attend(*cuts), whole), cuts
