"""Shrink and expand against their float64 reference: mixed ranks, targets, adapters, tile sizes; poisoned outputs."""

from __future__ import annotations

import random

import pytest
import torch

from lora_kernels.lora import SHARE, Form, LoraShape, Shrunk, lora_expand, lora_shrink
from lora_kernels.reference import lora_delta
from lora_kernels.tables import TARGETS, Group, SlotTables, token_tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 1.5e-2}
KV_DIM, PAGE_CHUNKS, LAYERS = 32, 8, 2
FAST = DEVICE == "cuda"  # the interpreter is slow: there, one of each kind stands for the others
GROUPS = [
    Group("qkv", 0, 96, (64, 32, 32)),
    Group("o", 3, 64, (96,)),
    Group("gate_up", 4, 96, (150, 150)),  # 150 is no multiple of a chunk
    Group("down", 6, 150, (96,)),
]
RANKS = (1, 3, 8, 16, 17, 40, 64)


class Adapters:
    """A poisoned pool with adapters in scattered pages, and the tables that point at them."""

    def __init__(self, count: int, dtype: torch.dtype, rnd: random.Random, ranks: tuple[int, ...] = RANKS) -> None:
        self.pool = torch.full((LAYERS, 4000, PAGE_CHUNKS * KV_DIM), float("nan"), dtype=dtype)
        self.pool[:, 0] = 0
        self.tables = SlotTables(count + 1, LAYERS, 1200, "cpu")
        free = list(range(1, 4000))
        rnd.shuffle(free)
        for slot in range(1, count + 1):
            self._place(slot, free, rnd, ranks)
        self.pool = self.pool.to(DEVICE)
        for name in ("pages", "modules", "scales"):
            setattr(self.tables, name, getattr(self.tables, name).to(DEVICE))
        self.max_rank = max(ranks)

    def _place(self, slot: int, free: list[int], rnd: random.Random, ranks: tuple[int, ...]) -> None:
        modules = torch.zeros(LAYERS, len(TARGETS), 3, dtype=torch.int32)
        scales = torch.zeros(LAYERS, len(TARGETS))
        chunks = 0
        for layer in range(LAYERS):
            cursor = 0
            for group in GROUPS:
                chosen = [rnd.choice((0, *ranks)) for _ in group.out_features]
                a_chunk = cursor
                cursor += sum(chosen) * -(-group.in_features // KV_DIM)
                for index, (rank, features) in enumerate(zip(chosen, group.out_features, strict=True)):
                    before = sum(chosen[:index]) * -(-group.in_features // KV_DIM)
                    modules[layer, group.first_target + index] = torch.tensor([a_chunk + before, cursor, rank])
                    scales[layer, group.first_target + index] = rnd.uniform(0.1, 2)
                    cursor += rank * -(-features // KV_DIM)
            chunks = max(chunks, cursor)
        pages = [free.pop() for _ in range(-(-chunks // PAGE_CHUNKS))]
        for page in pages:
            self.pool[:, page] = torch.randn(LAYERS, PAGE_CHUNKS * KV_DIM) * 0.3
        self.tables.write(slot, pages, modules, scales)


def check(adapters: Adapters, spans: list[tuple[int, int, int]], group: Group, form: Form, dtype: torch.dtype) -> None:
    tokens = spans[-1][2]
    x = torch.randn(tokens, group.in_features, device=DEVICE).to(dtype)
    base = torch.randn(tokens, sum(group.out_features), device=DEVICE).to(dtype)
    tiles = token_tiles(spans, form, 2 + sum(-(-(stop - start) // form) for _, start, stop in spans)).to(DEVICE)
    shape = LoraShape(form, adapters.max_rank)
    for layer in range(LAYERS) if FAST else (LAYERS - 1,):
        h = shape.workspace(tokens, 150, 3, DEVICE, dtype)
        h.partial.fill_(float("nan"))
        h.total.fill_(float("nan"))
        out, alone, biased = base.clone(), torch.full_like(base, float("nan")), torch.full_like(base, float("nan"))
        common = (tiles, adapters.tables, layer, group, KV_DIM, shape)
        lora_shrink(x, adapters.pool[layer], h, *common)
        lora_expand(h, adapters.pool[layer], out, *common, out)
        lora_expand(h, adapters.pool[layer], alone, *common, None)
        lora_expand(h, adapters.pool[layer], biased, *common, base[0])
        slots = torch.tensor([slot for slot, start, stop in spans for _ in range(start, stop)])
        delta = lora_delta(x, adapters.pool[layer], adapters.tables, layer, group, slots, KV_DIM)
        for got, want in ((out, base.double() + delta), (alone, delta), (biased, base[0].double() + delta)):
            assert torch.isfinite(got).all(), "read or left something that was never written"
            assert float((got.double() - want).norm()) <= TOLERANCE[dtype] * float(want.norm())
        untouched = slots.to(DEVICE) == 0
        assert torch.equal(out[untouched], base[untouched])


@pytest.mark.parametrize("dtype", DTYPES if FAST else DTYPES[:1], ids=str)
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
@pytest.mark.parametrize("form", Form, ids=lambda f: f.name)
def test_decode_all_distinct_and_shared_adapters(group: Group, dtype: torch.dtype, form: Form) -> None:
    adapters = Adapters(6, dtype, random.Random(1))
    spans = [(0, 0, 2), *((s, s + 1, s + 2) for s in range(1, 7)), (2, 8, 13), (0, 13, 14), (5, 14, 15)]
    check(adapters, spans, group, form, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
def test_prefill_tiles(group: Group, dtype: torch.dtype) -> None:
    adapters = Adapters(3, dtype, random.Random(2))
    check(adapters, [(1, 0, 70), (2, 70, 71), (0, 71, 90), (3, 90, 130)], group, Form.MANY, dtype)


@pytest.mark.parametrize("form", Form, ids=lambda f: f.name)
def test_the_largest_rank(form: Form) -> None:
    for dtype in DTYPES if FAST else DTYPES[1:]:
        adapters = Adapters(1, dtype, random.Random(3), ranks=(256,))
        for group in GROUPS if FAST else (GROUPS[0], GROUPS[3]):
            check(adapters, [(1, 0, 3)], group, form, dtype)


@pytest.mark.parametrize("form", Form, ids=lambda f: f.name)
def test_an_input_that_several_programs_share(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARE, form, 128)  # as long inputs are; the longest of these has 150 elements
    adapters = Adapters(3, DTYPES[0], random.Random(7))
    for group in GROUPS if FAST else GROUPS[3:]:
        check(adapters, [(0, 0, 1), (1, 1, 2), (2, 2, 5), (3, 5, 25)], group, form, DTYPES[0])


def test_few_tiles_are_shared_by_more_programs() -> None:
    shape = LoraShape(Form.SOME, 64)
    assert [shape.share(4096, programs) for programs in (12, 400, 612, 1248)] == [1024, 1024, 2048, 4096]
    assert [shape.share(14336, programs) for programs in (60, 204, 416)] == [1024, 2048, 4096]
    assert LoraShape(Form.ONE, 64).share(4096, 12) == SHARE[Form.ONE]


@pytest.mark.parametrize("form", Form, ids=lambda f: f.name)
def test_results_do_not_depend_on_the_batch(form: Form) -> None:
    """Bit for bit: what stands beside a token in the batch must not change its delta."""
    adapters, group = Adapters(4, DTYPES[0], random.Random(4)), GROUPS[0]
    x = torch.randn(8, group.in_features, device=DEVICE).to(DTYPES[0])

    def run(rows: torch.Tensor, spans: list[tuple[int, int, int]]) -> torch.Tensor:
        tiles = token_tiles(spans, form, 16).to(DEVICE)
        shape = LoraShape(form, adapters.max_rank)
        h = shape.workspace(len(rows), 150, 3, DEVICE, x.dtype)
        out = torch.zeros(len(rows), sum(group.out_features), device=DEVICE, dtype=x.dtype)
        common = (tiles, adapters.tables, 0, group, KV_DIM, shape)
        lora_shrink(rows, adapters.pool[0], h, *common)
        lora_expand(h, adapters.pool[0], out, *common, out)
        return out

    mixed = run(x, [(1 + i // 2, i, i + 1) for i in range(8)])
    for index in range(8):
        assert torch.equal(run(x[index : index + 1], [(1 + index // 2, 0, 1)])[0], mixed[index])


def test_a_batch_without_adapters_launches_nothing() -> None:
    tiles = token_tiles([(1, 0, 40)], 16, 64)
    adapters = Adapters(1, DTYPES[0], random.Random(5))
    out = torch.randn(40, 128, device=DEVICE).to(DTYPES[0])
    before = out.clone()
    common = (tiles[:0].to(DEVICE), adapters.tables, 0, GROUPS[0], KV_DIM, LoraShape(Form.SOME, 8))
    lora_expand(Shrunk(out, out), adapters.pool[0], out, *common, out)
    assert torch.equal(out, before)


def test_shapes_that_do_not_fit_are_refused() -> None:
    adapters = Adapters(1, DTYPES[0], random.Random(6))
    x = torch.randn(2, 95, device=DEVICE).to(DTYPES[0])
    tiles = token_tiles([(1, 0, 2)], 16, 1).to(DEVICE)
    with pytest.raises(ValueError, match="contiguous rows of 96"):
        common = (tiles, adapters.tables, 0, GROUPS[0], KV_DIM, LoraShape(Form.SOME, 8))
        lora_shrink(x, adapters.pool[0], Shrunk(x, x), *common)
    with pytest.raises(ValueError, match="do not fit into 1"):
        token_tiles([(1, 0, 40)], 16, 1)
