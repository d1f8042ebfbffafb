"""Paged decode and prefill attention against float64, over scattered pages of a poisoned pool."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lorikeet_testing.grids import grid

from lora_kernels import attention, hopper_prefill, launches
from lora_kernels.attention import (
    LEAST_SPLIT,
    LEAST_SPLIT_KEYS,
    PREFILL_TILE_FIELDS,
    DecodeWorkspace,
    PrefillWorkspace,
    decode_splits,
    key_splits,
    most_key_splits,
    paged_decode,
    paged_prefill,
    prefill_tiles,
)
from lora_kernels.hopper_prefill import TILE_ROWS, can_attend
from lora_kernels.reference import paged_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 1.5e-2}
PAGE_TOKENS = 16
Shape = tuple[int, int, int]
"""Heads, heads of keys and values, elements of a head."""
SHAPES: list[Shape] = [(8, 2, 64), (4, 4, 32), (6, 2, 80), *([(16, 4, 256)] if DEVICE == "cuda" else [])]


def filled_pool(
    lengths: list[int], kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """A pool whose unused slots are NaN, and each sequence's block table; unused table entries point at page 0."""
    width = max(-(-length // PAGE_TOKENS) for length in lengths)
    pages = torch.randperm(200)[: width * len(lengths)].view(len(lengths), width) + 1
    pool = torch.full((201, 2, PAGE_TOKENS, kv_heads * head_dim), float("nan"))
    pool[0] = 0
    table = torch.zeros(len(lengths), width, dtype=torch.int32)
    for row, length in enumerate(lengths):
        for position in range(length):
            pool[pages[row, position // PAGE_TOKENS], :, position % PAGE_TOKENS] = torch.randn(2, kv_heads * head_dim)
        used = -(-length // PAGE_TOKENS)
        table[row, :used] = pages[row, :used].int()
    return pool.to(dtype).view(201, -1).to(DEVICE), table.to(DEVICE)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    assert torch.isfinite(got).all()
    return float((got.double() - want).norm() / want.norm())


def ordinary_decode(shape: Shape, few: bool, splits: int, window: int, dtype: torch.dtype) -> bool:
    """All of one shape; of the others, and in half precision, what has the most branches."""
    return (shape == SHAPES[0] and dtype == DTYPES[0]) or (
        (splits, window) == (4, 20) and (dtype == DTYPES[0] or shape == SHAPES[0])
    )


@pytest.mark.parametrize(
    ("shape", "few", "splits", "window", "dtype"),
    grid(SHAPES, [True, False], [1, 4], [0, 20], DTYPES, ordinary=ordinary_decode),
    ids=str,
)
def test_decode(
    shape: Shape, few: bool, splits: int, window: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, kv_heads, head_dim = shape
    if not few:  # as in a batch of hundreds
        monkeypatch.setattr(attention, "FEW", 0)
    lengths = [1, 16, 17, 100, 65]
    pool, table = filled_pool(lengths, kv_heads, head_dim, dtype)
    qkv = torch.randn(len(lengths), (heads + 2 * kv_heads) * head_dim, device=DEVICE).to(dtype)
    q = qkv[:, : heads * head_dim]  # strided, as the runner has it
    out = torch.full((len(lengths), heads * head_dim), float("nan"), device=DEVICE, dtype=dtype)
    workspace = DecodeWorkspace(8, heads, head_dim, 4, DEVICE)
    paged_decode(
        q,
        pool,
        table,
        torch.tensor(lengths, dtype=torch.int32, device=DEVICE),
        out,
        workspace,
        heads=heads,
        kv_heads=kv_heads,
        page_tokens=PAGE_TOKENS,
        splits=splits,
        window=window,
    )
    for row, length in enumerate(lengths):
        want = paged_attention(
            q[row].view(1, heads, head_dim), pool, table[row], length - 1, PAGE_TOKENS, kv_heads, window
        )
        assert error(out[row], want.flatten()) < TOLERANCE[dtype]


Spans = list[tuple[int, int, int, int]]


def spans_of(chunks: list[tuple[int, int]]) -> Spans:
    """Of chunks (tokens, context), one after another, each of a sequence of its own."""
    rows = [sum(tokens for tokens, _ in chunks[:index]) for index in range(len(chunks))]
    return [(index, row, *chunk) for (index, row), chunk in zip(enumerate(rows), chunks, strict=True)]


def check_prefill(
    spans: Spans,
    shape: Shape,
    window: int,
    dtype: torch.dtype,
    block_m: int,
    split_keys: bool,
    sinks: torch.Tensor | None = None,
    hopper: bool = False,
    softcap: float = 0.0,
) -> None:
    heads, kv_heads, head_dim = shape
    pool, table = filled_pool([tokens + context for _, _, tokens, context in spans], kv_heads, head_dim, dtype)
    visible = table.clone()
    unused = pool.isnan().all(dim=1).nonzero()[0].int()
    for row, (_, _, _, context) in enumerate(spans):  # pages before the window may be another sequence's by now
        visible[row, : max(0, context - window + 1) // PAGE_TOKENS if window else 0] = unused
    tiles = prefill_tiles(spans, heads, kv_heads, block_m, split_keys)
    if split_keys:
        assert (tiles[:, -1] > 1).any() and (tiles[:, -1] == 1).any()
    tiles = torch.cat((tiles, torch.zeros(3, PREFILL_TILE_FIELDS, dtype=torch.int32))).to(DEVICE)  # these do nothing
    q = torch.randn(spans[-1][1] + spans[-1][2], heads * head_dim, device=DEVICE).to(dtype)
    out = torch.full_like(q, float("nan"))
    workspace = PrefillWorkspace(kv_heads, head_dim, DEVICE, block_m) if split_keys else None
    if workspace:
        workspace.partial.fill_(float("nan"))
        workspace.stats.fill_(float("nan"))
    paged_prefill(
        q, pool, visible, tiles, out, heads=heads, kv_heads=kv_heads, page_tokens=PAGE_TOKENS, window=window,
        block_m=block_m, workspace=workspace, split_keys=split_keys, sinks=sinks, hopper=hopper, softcap=softcap,
    )  # fmt: skip
    for sequence, first, tokens, context in spans:
        queries = q[first : first + tokens].view(tokens, heads, head_dim)
        want = paged_attention(
            queries, pool, table[sequence], context, PAGE_TOKENS, kv_heads, window, softcap=softcap, sinks=sinks
        )
        assert error(out[first : first + tokens], want.flatten(1)) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("shape", "long", "window", "dtype"),
    grid(
        SHAPES, [True, False], [0, 20], DTYPES,
        ordinary=lambda shape, long, window, dtype: dtype == DTYPES[0] or (shape == SHAPES[0] and window > 0),
    ),
    ids=str,
)  # fmt: skip
def test_prefill_chunks(
    shape: Shape, long: bool, window: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if long:  # as with thousands of tokens
        monkeypatch.setattr(attention, "LONG", 0)
    check_prefill(spans_of([(1, 0), (40, 0), (17, 33), (70, 5)]), shape, window, dtype, 64, False)


@pytest.mark.parametrize(
    ("shape", "most", "window", "dtype"),
    grid(
        SHAPES, [8, 200], [0, 20], DTYPES,
        ordinary=lambda shape, most, window, dtype: (
            (dtype == DTYPES[0]) == (most == 200) and (window > 0 or shape == SHAPES[1])
        ),
    ),
    ids=str,
)  # fmt: skip
def test_prefill_chunks_whose_keys_are_split(
    shape: Shape, most: int, window: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window, some splits see no key of any row, and others none of some."""
    monkeypatch.setattr(attention, "PREFILL_PROGRAMS", most * shape[1])
    monkeypatch.setattr(attention, "LEAST_SPLIT", 33)
    monkeypatch.setattr(attention, "LEAST_SPLIT_KEYS", 66)
    check_prefill(spans_of([(1, 0), (4, 300), (1, 128), (18, 90), (2, 511)]), shape, window, dtype, 16, True)


HOPPER_CHUNKS = spans_of([(1, 0), (300, 213), (1, 128), (40, 87), (2, 511)])


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(32, 8, 128), (8, 8, 64), (12, 4, 128), (16, 1, 64)], ids=str)
@pytest.mark.parametrize(("window", "softcap", "has_sinks"), [(0, 0.0, False), (100, 0.0, True), (0, 20.0, False)])
@pytest.mark.parametrize("split_keys", [False, True])
def test_prefill_chunks_on_hopper(
    shape: Shape, window: int, softcap: float, has_sinks: bool, split_keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of query heads that divide a tile's rows, and one that does not; prompts that end within a page."""
    monkeypatch.setattr(attention, "HOPPER_PREFILL_PROGRAMS", 200 * shape[1])
    monkeypatch.setattr(attention, "LEAST_SPLIT", 100)
    monkeypatch.setattr(attention, "LEAST_SPLIT_KEYS", 200)
    if not can_attend(*shape, PAGE_TOKENS, torch.bfloat16, torch.bfloat16, torch.device("cuda")):
        pytest.skip("for GPUs of compute capability 9.0")
    sinks = torch.linspace(-3, 6, shape[0], device=DEVICE) if has_sinks else None
    check_prefill(HOPPER_CHUNKS, shape, window, torch.bfloat16, TILE_ROWS, split_keys, sinks, True, softcap)


def test_tiles_of_the_kernel_for_hopper_are_checked() -> None:
    pool, table = filled_pool([20], 2, 64, torch.float32)
    q, tiles = torch.zeros(20, 8 * 64, device=DEVICE), prefill_tiles([(0, 0, 20, 0)], 8, 2).to(DEVICE)
    sizes = {"heads": 8, "kv_heads": 2, "page_tokens": PAGE_TOKENS, "hopper": True}
    for more in ({}, {"block_m": TILE_ROWS, "invariant": True}):
        with pytest.raises(ValueError, match="hopper needs tiles of 192 rows"):
            paged_prefill(q, pool, table, tiles, q, **sizes, **more)


@pytest.mark.parametrize(
    ("change", "supported"),
    [
        ({}, True), ({"head_dim": 80}, False), ({"kv_dtype": torch.float8_e4m3fn}, False), ({"page_tokens": 24}, False),
        ({"dtype": torch.float32, "kv_dtype": torch.float32}, False), ({"heads": 2048}, False),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_kernel_for_hopper_supports(
    change: dict[str, Any], supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hopper_prefill, "is_hopper", lambda device: True)
    sizes = {"heads": 32, "kv_heads": 8, "head_dim": 128, "page_tokens": 16, "dtype": torch.bfloat16}
    sizes |= {"kv_dtype": torch.bfloat16, "device": torch.device("cuda")}
    assert can_attend(**(sizes | change)) == supported


def test_no_other_gpu_takes_the_kernel_for_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability in ((8, 0), (9, 0), (10, 0), (12, 0)):
        monkeypatch.setattr(launches, "capability", capability)
        assert hopper_prefill.is_hopper(torch.device("meta")) == (capability == (9, 0))
    assert not hopper_prefill.is_hopper(torch.device("cpu"))


@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("window", [0, 20])
def test_sinks_of_decodes_count_once(splits: int, window: int) -> None:
    """However many splits there are; most of the shortest sequences' see no key."""
    heads, kv_heads, head_dim = SHAPES[2]
    lengths, dtype = [1, 17, 300], DTYPES[0]
    pool, table = filled_pool(lengths, kv_heads, head_dim, dtype)
    q = torch.randn(len(lengths), heads * head_dim, device=DEVICE).to(dtype)
    sinks = torch.linspace(-3, 6, heads, device=DEVICE)
    seq_lens = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    sizes = {"heads": heads, "kv_heads": kv_heads, "page_tokens": PAGE_TOKENS, "window": window, "sinks": sinks}
    out = torch.full_like(q, float("nan"))
    paged_decode(q, pool, table, seq_lens, out, DecodeWorkspace(3, heads, head_dim, 4, DEVICE), splits=splits, **sizes)
    for row, length in enumerate(lengths):
        queries = q[row].view(1, heads, head_dim)
        want = paged_attention(queries, pool, table[row], length - 1, PAGE_TOKENS, kv_heads, window, sinks=sinks)
        assert error(out[row], want.flatten()) < TOLERANCE[dtype]


@pytest.mark.parametrize("split_keys", [False, True])
@pytest.mark.parametrize("window", [0, 20])
def test_sinks_of_prompts_count_once(split_keys: bool, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "PREFILL_PROGRAMS", 8 * SHAPES[2][1])
    monkeypatch.setattr(attention, "LEAST_SPLIT", 33)
    monkeypatch.setattr(attention, "LEAST_SPLIT_KEYS", 66)
    sinks = torch.linspace(-3, 6, SHAPES[2][0], device=DEVICE)
    check_prefill(spans_of([(1, 0), (4, 300), (18, 90)]), SHAPES[2], window, DTYPES[0], 16, split_keys, sinks)


def test_sinks_of_another_number_of_heads_are_refused() -> None:
    pool, table = filled_pool([20], 2, 64, torch.float32)
    q, tiles = torch.zeros(20, 8 * 64, device=DEVICE), prefill_tiles([(0, 0, 20, 0)], 8, 2).to(DEVICE)
    sizes = {"heads": 8, "kv_heads": 2, "page_tokens": PAGE_TOKENS, "sinks": torch.zeros(4, device=DEVICE)}
    with pytest.raises(ValueError, match=r"sinks are \(4,\), but there are 8 heads"):
        paged_prefill(q, pool, table, tiles, q, **sizes)


def test_keys_of_prompts_are_split_where_few_programs_read_many() -> None:
    assert most_key_splits(8) == 33
    assert key_splits([16, LEAST_SPLIT_KEYS - 1], 8) == [1, 1] and key_splits([LEAST_SPLIT_KEYS], 8) == [3]
    assert key_splits([16_400], 8) == [32] and key_splits([131_000], 8) == [32]
    assert key_splits([20, 16_400, 300], 8) == [1, 32, 1]  # one that is far longer than what is beside it
    assert key_splits([16_384] * 64, 8) == [1] * 64  # enough of them
    assert key_splits([16_400], 512) == [1]  # heads enough
    for keys in ([9000] * 20, [100_000, 4_000, 600, 2], [5_000] * 7 + [40_000] * 3):
        splits = [count for count in key_splits(keys, 8) if count > 1]
        assert sum(splits) <= most_key_splits(8)
    tiles = prefill_tiles([(0, 0, 20, 0), (1, 20, 2, 3 * LEAST_SPLIT)], 4, 1, split_keys=True)
    assert tiles[:3].tolist() == [[1, 20, 2, 1536, split, 3] for split in range(3)]
    assert tiles[3:].tolist() == [[0, 16, 4, 16, 0, 1], [0, 0, 16, 0, 0, 1]]  # the longest first
    assert most_key_splits(8, TILE_ROWS) == 16 and key_splits([16_400], 8, TILE_ROWS) == [16]


def test_tiles_whose_keys_are_split_need_room_for_them() -> None:
    pool, table = filled_pool([20], 2, 64, torch.float32)
    q = torch.zeros(20, 8 * 64, device=DEVICE)
    tiles = prefill_tiles([(0, 0, 20, 0)], 8, 2).to(DEVICE)
    sizes = {"heads": 8, "kv_heads": 2, "page_tokens": PAGE_TOKENS, "split_keys": True}
    for more in ({}, {"workspace": PrefillWorkspace(2, 64, DEVICE), "invariant": True}):
        with pytest.raises(ValueError, match="needs a workspace and excludes invariant"):
            paged_prefill(q, pool, table, tiles, q, **sizes, **more)
    with pytest.raises(ValueError, match="the workspace was made for"):
        paged_prefill(q, pool, table, tiles, q, workspace=PrefillWorkspace(4, 64, DEVICE), **sizes)


def test_keys_are_split_for_few_sequences_only() -> None:
    assert [decode_splits(sequences, 8) for sequences in (1, 2, 16, 64, 256)] == [32, 32, 4, 1, 1]


def test_shapes_that_do_not_fit_are_refused() -> None:
    pool = torch.zeros(4, 100, device=DEVICE)
    q = torch.zeros(1, 64, device=DEVICE)
    with pytest.raises(ValueError, match="pages of 100 elements"):
        paged_decode(
            q,
            pool,
            q.int(),
            q.int(),
            q,
            DecodeWorkspace(1, 4, 16, 1, DEVICE),
            heads=4,
            kv_heads=2,
            page_tokens=16,
            splits=1,
        )
