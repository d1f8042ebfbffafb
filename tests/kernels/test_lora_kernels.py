"""Shrink and expand against their float64 reference: mixed ranks, targets, adapters, tile sizes; poisoned outputs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from lorikeet_testing.grids import grid

from lora_kernels.expand import lora_expand
from lora_kernels.fp8_tensors import FP8
from lora_kernels.kernel_variants import SHRINK, SPLIT_K, KernelVariant, LoraShape, ShrinkBuffers, SplitK, shrink_launch
from lora_kernels.reference import adapter_rows, lora_delta
from lora_kernels.shrink import lora_shrink
from lora_kernels.tables import ALL_TARGETS, FP8_ROWS, MODULE_FIELDS, MOST_TARGETS, Group, SlotTables
from lora_kernels.work_items import Span, tiles_needed, token_tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 1.5e-2}
KV_DIM, ROWS_PER_PAGE, LAYERS = 32, 8, 2
FAST = DEVICE == "cuda"  # the interpreter is slow: there, one of each kind stands for the others
GROUPS = [
    Group("qkv", 0, 96, (64, 32, 32)),
    Group("o", 3, 64, (96,)),
    Group("gate_up", 4, 96, (150, 150)),  # 150 is no multiple of a pool row
    Group("down", 6, 150, (96,)),
    Group("delta_in", 7, 96, (64, 40, 150, 32, 5, 9)),  # a gated delta layer's, with gates
]
# In the interpreter the sizes that are no multiple of a block stand for all, but for those of `make test-long`.
EDGES = ("delta_in", "down")
EDGES_FIRST = [
    pytest.param(group, id=group.name, marks=() if FAST or group.name in EDGES else pytest.mark.long)
    for group in GROUPS
]
RANKS = (1, 3, 8, 16, 17, 40, 64)


SHIPPED_SHRINK, SHIPPED_SPLIT_K = dict(SHRINK), dict(SPLIT_K)


@pytest.fixture(autouse=True)
def larger_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes its time for every work item, however small; and no input has more than 150 elements."""
    if not FAST:
        for variant in (KernelVariant.GEMV_1, KernelVariant.GEMV_2):
            monkeypatch.setitem(SHRINK, variant, replace(SHRINK[variant], rows=16))
            monkeypatch.setitem(SPLIT_K, variant, SplitK(256))


class Adapters:
    """A poisoned pool with adapters in scattered pages, and the tables that point at them.

    Each slot's ranks go up to another one of ``ranks``, the first slot's up to the last. With ``fp8`` the rows of every
    second slot are in FP8, the first slot's included.
    """

    def __init__(
        self, count: int, dtype: torch.dtype, rnd: random.Random, ranks: tuple[int, ...] = RANKS, *, fp8: bool = False
    ) -> None:
        self.pool = torch.full((LAYERS, 4000, ROWS_PER_PAGE * KV_DIM), float("nan"), dtype=dtype)
        self.tables = SlotTables(count + 1, LAYERS, 2400, "cpu", fp8_rows=dtype.itemsize if fp8 else 0)
        free = list(range(1, 4000))
        rnd.shuffle(free)
        self.ranks = [0]  # largest of each slot's modules
        for slot in range(1, count + 1):
            self._place(slot, free, rnd, ranks[: len(ranks) - (slot - 1) % len(ranks)])
        self.pool = self.pool.to(DEVICE)
        for name in ("pages", "modules", "scales"):
            setattr(self.tables, name, getattr(self.tables, name).to(DEVICE))
        self.max_rank = max(ranks)

    def spans(self, spans: list[tuple[int, int, int]]) -> list[Span]:
        """With each slot's largest rank."""
        return [Span(*span, self.ranks[span[0]]) for span in spans]

    def _place(self, slot: int, free: list[int], rnd: random.Random, ranks: tuple[int, ...]) -> None:
        modules = torch.zeros(LAYERS, ALL_TARGETS, MODULE_FIELDS, dtype=torch.int32)
        scales = torch.zeros(LAYERS, ALL_TARGETS)
        pool_rows, is_fp8 = 0, bool(self.tables.fp8_rows and slot % 2)
        for layer in range(LAYERS):
            cursor = 0
            for group in GROUPS:
                chosen = [rnd.choice((0, *ranks)) for _ in group.out_features]
                a_row = cursor
                cursor += sum(chosen) * -(-group.in_features // KV_DIM)
                flag = FP8_ROWS if is_fp8 else 0
                for index, (rank, features) in enumerate(zip(chosen, group.out_features, strict=True)):
                    before = sum(chosen[:index]) * -(-group.in_features // KV_DIM)
                    modules[layer, group.first_target + index, :3] = torch.tensor(
                        [flag + a_row + before, flag + cursor, rank]
                    )
                    scales[layer, group.first_target + index] = rnd.uniform(0.1, 2)
                    cursor += rank * -(-features // KV_DIM)
            pool_rows = max(pool_rows, cursor)
        per_page = ROWS_PER_PAGE * (self.tables.fp8_rows if is_fp8 else 1)
        pages = [free.pop() for _ in range(-(-pool_rows // per_page))]
        for page in pages:
            values = torch.randn(LAYERS, per_page * KV_DIM) * 0.3
            self.pool[:, page] = values.to(FP8).view(self.pool.dtype) if is_fp8 else values
        self.tables.write(slot, pages, modules, scales)
        self.ranks.append(int(modules[:, :, 2].max()))


def check(
    adapters: Adapters, spans: list[tuple[int, int, int]], group: Group, variant: KernelVariant, dtype: torch.dtype
) -> None:
    tokens = spans[-1][2]
    ranked = adapters.spans(spans)
    x = torch.randn(tokens, group.in_features, device=DEVICE).to(dtype)
    base = torch.randn(tokens, sum(group.out_features), device=DEVICE).to(dtype)
    tiles = token_tiles(ranked, variant, 2 + tiles_needed(ranked, variant)).to(DEVICE)
    shape = LoraShape(variant, adapters.max_rank)
    for layer in range(LAYERS) if FAST else (LAYERS - 1,):
        h = shape.workspace(tokens, max(150, group.in_features), MOST_TARGETS, DEVICE, dtype)
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
@pytest.mark.parametrize("group", EDGES_FIRST)
@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_decode_all_distinct_and_shared_adapters(group: Group, dtype: torch.dtype, variant: KernelVariant) -> None:
    adapters = Adapters(6, dtype, random.Random(1))
    spans = [(0, 0, 2), *((s, s + 1, s + 2) for s in range(1, 7)), (2, 8, 13), (0, 13, 14), (5, 14, 15)]
    check(adapters, spans, group, variant, dtype)


@pytest.mark.parametrize(
    ("group", "dtype"),
    grid(GROUPS, DTYPES, ordinary=lambda group, dtype: dtype == DTYPES[0] or group.name == "qkv"),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_prefill_tiles(group: Group, dtype: torch.dtype) -> None:
    adapters = Adapters(3, dtype, random.Random(2))
    check(adapters, [(1, 0, 70), (2, 70, 71), (0, 71, 75), (3, 75, 95)], group, KernelVariant.PREFILL, dtype)


@pytest.mark.parametrize("dtype", DTYPES if FAST else DTYPES[:1], ids=str)
@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_adapters_in_fp8_beside_others(variant: KernelVariant, dtype: torch.dtype) -> None:
    adapters = Adapters(4, dtype, random.Random(13), ranks=(3, 17, 40), fp8=True)
    spans = [(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 6), (4, 6, 8), (1, 8, 28)]
    for group in GROUPS if FAST else (GROUPS[2], GROUPS[3]):
        check(adapters, spans, group, variant, dtype)


@pytest.mark.parametrize("rank", [256, pytest.param(512, marks=pytest.mark.long)])
@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_the_largest_ranks(variant: KernelVariant, rank: int) -> None:
    for dtype in DTYPES if FAST else DTYPES[1:]:
        adapters = Adapters(1, dtype, random.Random(3), ranks=(rank,))
        for group in GROUPS if FAST else (GROUPS[0], GROUPS[3]):
            check(adapters, [(1, 0, 3)], group, variant, dtype)


@pytest.mark.parametrize("variant", [KernelVariant.GEMV_1, KernelVariant.GEMV_2], ids=lambda f: f.name)
def test_pieces_and_shares_as_they_ship(variant: KernelVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the interpreter runs the other tests with larger ones."""
    monkeypatch.setitem(SHRINK, variant, SHIPPED_SHRINK[variant])
    monkeypatch.setitem(SPLIT_K, variant, SHIPPED_SPLIT_K[variant])
    adapters = Adapters(2, DTYPES[0], random.Random(11), ranks=(3, 17))
    check(adapters, [(0, 0, 1), (1, 1, 2), (2, 2, 5)], GROUPS[0], variant, DTYPES[0])


@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_an_input_that_several_programs_share(variant: KernelVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPLIT_K, variant, SplitK(128))  # as long inputs are; the longest of these has 150 elements
    adapters = Adapters(3, DTYPES[0], random.Random(7))
    for group in GROUPS if FAST else GROUPS[3:]:
        check(adapters, [(0, 0, 1), (1, 1, 2), (2, 2, 5), (3, 5, 25)], group, variant, DTYPES[0])


@pytest.mark.parametrize("row", [512, 1024])
def test_blocks_of_256_columns(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pool rows of many key heads: ``shrink_launch``; inputs of whole blocks, and not."""
    monkeypatch.setattr(f"{__name__}.KV_DIM", row)
    monkeypatch.setattr(f"{__name__}.ROWS_PER_PAGE", 2)
    monkeypatch.setattr(f"{__name__}.LAYERS", 1)
    groups = [Group("o", 3, 2 * row, (96,)), Group("gate_up", 4, row + 150, (96, 150))]
    monkeypatch.setattr(f"{__name__}.GROUPS", groups)
    assert shrink_launch(KernelVariant.GROUPED, row, fp8=False) != SHRINK[KernelVariant.GROUPED]
    adapters = Adapters(3, DTYPES[0], random.Random(17), ranks=(3, 17))
    for group in groups:
        check(adapters, [(0, 0, 1), (1, 1, 2), (2, 2, 5), (3, 5, 25)], group, KernelVariant.GROUPED, DTYPES[0])


@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_an_input_of_whole_shares_whose_number_is_no_power_of_two(
    variant: KernelVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Llama-3.1-8B's down projection has: 7 of 2048. No program may read behind the input."""
    monkeypatch.setitem(SPLIT_K, variant, SplitK(32))
    monkeypatch.setitem(SHRINK, variant, replace(SHRINK[variant], warps=1))  # in GROUPED each has 32 columns
    adapters = Adapters(2, DTYPES[0], random.Random(9), ranks=(3, 8))
    check(adapters, [(0, 0, 1), (1, 1, 2), (2, 2, 5)], GROUPS[0], variant, DTYPES[0])


def test_few_tiles_are_shared_by_more_programs() -> None:
    shape = LoraShape(KernelVariant.GROUPED, 64)
    few = 51 * 12  # tiles that a graph for few adapters of 256 rows has room for, blocks of rank rows
    assert [shape.split_size(4096, programs) for programs in (12, few, few + 1)] == [1024, 1024, 2048]
    assert [shape.split_size(4096, programs) for programs in (1225, 1226, 104 * 12)] == [2048, 4096, 4096]
    assert [shape.split_size(14336, programs) for programs in (60, 51 * 4, 104 * 4)] == [1024, 2048, 4096]
    assert LoraShape(KernelVariant.GEMV_1, 64).split_size(4096, 12) == SPLIT_K[KernelVariant.GEMV_1].most


def shrunk_by(shards: int, x: torch.Tensor, adapters: Adapters, group: Group, slots: list[int]) -> torch.Tensor:
    """What so many ranks make of ``x`` with their rows of A, each target's behind those of the one before; else NaN."""
    rows = torch.full((shards, len(x), adapters.max_rank * len(group.out_features)), float("nan"), device=DEVICE)
    for token, slot in enumerate(slots):
        first = 0
        for target in range(group.first_target, group.first_target + len(group.out_features)):
            a_row, _, rank = adapters.tables.modules[slot, 0, target, :3].tolist()
            pages = adapters.tables.pages[slot]
            a = adapter_rows(adapters.pool[0], pages, KV_DIM, a_row, rank, group.in_features)
            rows[:, token, first : first + rank // shards] = (a.double() @ x[token].double()).view(shards, -1)
            first += rank // shards
    return rows


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_an_input_that_several_ranks_have_shrunk(variant: KernelVariant, shards: int) -> None:
    adapters = Adapters(3, DTYPES[0], random.Random(12), ranks=(4, 8, 20))
    spans = [(0, 0, 2), (1, 2, 3), (2, 3, 5), (3, 5, 9)]
    slots = [slot for slot, start, stop in spans for _ in range(start, stop)]
    tiles = token_tiles(adapters.spans(spans), variant).to(DEVICE)
    for group in GROUPS if FAST else (GROUPS[0], GROUPS[3]):
        x = torch.randn(9, group.in_features, device=DEVICE).to(DTYPES[0])
        base = torch.randn(9, sum(group.out_features), device=DEVICE).to(DTYPES[0])
        delta = lora_delta(x, adapters.pool[0], adapters.tables, 0, group, torch.tensor(slots), KV_DIM)
        exchanged = shrunk_by(shards, x, adapters, group, slots)
        adapters.tables.modules[:, :, :, 2] //= shards  # of A; B has the rows of all ranks
        shape = LoraShape(variant, adapters.max_rank)
        h, out = shape.workspace(9, 150, 4, DEVICE, DTYPES[0]), base.clone()
        lora_expand(h, adapters.pool[0], out, tiles, adapters.tables, 0, group, KV_DIM, shape, out, exchanged)
        adapters.tables.modules[:, :, :, 2] *= shards
        assert float((out.double() - base.double() - delta).norm()) <= TOLERANCE[DTYPES[0]] * float(delta.norm())


@pytest.mark.parametrize("variant", KernelVariant, ids=lambda f: f.name)
def test_results_do_not_depend_on_the_batch(variant: KernelVariant) -> None:
    """Bit for bit: what stands beside a token in the batch must not change its delta."""
    adapters, group = Adapters(4, DTYPES[0], random.Random(4), ranks=(3, 8, 17, 40)), GROUPS[0]
    count = 8 if FAST else 4
    x = torch.randn(count, group.in_features, device=DEVICE).to(DTYPES[0])

    def run(rows: torch.Tensor, spans: list[tuple[int, int, int]]) -> torch.Tensor:
        tiles = token_tiles(adapters.spans(spans), variant, 16).to(DEVICE)
        shape = LoraShape(variant, adapters.max_rank)
        h = shape.workspace(len(rows), 150, 4, DEVICE, x.dtype)
        out = torch.zeros(len(rows), sum(group.out_features), device=DEVICE, dtype=x.dtype)
        common = (tiles, adapters.tables, 0, group, KV_DIM, shape)
        lora_shrink(rows, adapters.pool[0], h, *common)
        lora_expand(h, adapters.pool[0], out, *common, out)
        return out

    mixed = run(x, [(1 + i // 2, i, i + 1) for i in range(count)])
    for index in range(count):
        assert torch.equal(run(x[index : index + 1], [(1 + index // 2, 0, 1)])[0], mixed[index])


@pytest.mark.parametrize(
    "variant", [KernelVariant.GEMV_1, KernelVariant.GEMV_2, KernelVariant.GROUPED], ids=lambda f: f.name
)
def test_a_few_programs_walk_all_work_items(variant: KernelVariant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit what as many programs as work items give; and nothing but the adapters' rows is written."""
    adapters, group = Adapters(4, DTYPES[0], random.Random(8)), GROUPS[0]
    spans = adapters.spans([(3, 4, 5), (0, 6, 8), (1, 0, 3), (2, 3, 4), (0, 8, 9), (4, 5, 6)])
    tiles = token_tiles(spans, variant, 3 + tiles_needed(spans, variant)).to(DEVICE)
    x = torch.randn(9, group.in_features, device=DEVICE).to(DTYPES[0])
    shape = LoraShape(variant, adapters.max_rank)

    def shrunk(programs: int) -> torch.Tensor:
        monkeypatch.setitem(SHRINK, variant, replace(SHRINK[variant], programs=programs))
        h = shape.workspace(9, 150, 4, DEVICE, x.dtype)
        h.partial.fill_(float("nan"))
        h.total.fill_(float("nan"))
        lora_shrink(x, adapters.pool[0], h, tiles, adapters.tables, 0, group, KV_DIM, shape)
        return h.total if variant is KernelVariant.GROUPED else h.partial[0]

    work_items = len(group.out_features) * int(tiles[-1, 3])
    many, few = shrunk(work_items), shrunk(3)
    assert work_items > 3 * 3
    assert torch.equal(many.nan_to_num(9e9), few.nan_to_num(9e9))
    rows = adapters.tables.modules[:, 0, : len(group.out_features), 2].sum(dim=1)
    for slot, start, stop, _ in spans:
        assert torch.isfinite(many[start:stop, : rows[slot]]).all()
        assert torch.isnan(many[start:stop, rows[slot] :]).all()


@pytest.mark.parametrize(
    "variant", [KernelVariant.GEMV_1, KernelVariant.GEMV_2, KernelVariant.GROUPED], ids=lambda f: f.name
)
def test_ranks_from_nothing_to_64_between_empty_tiles(variant: KernelVariant) -> None:
    """Adapters without any module in the group, rows without an adapter, and a graph's room for more tiles."""
    adapters = Adapters(8, DTYPES[0], random.Random(10), ranks=(0, 1, 4, 5, 16, 17, 33, 64))
    spans = [(8, 0, 1), (0, 1, 3), (1, 3, 5), (7, 5, 6), (5, 6, 9), (0, 9, 10), (8, 10, 11), (4, 11, 12), (2, 12, 13)]
    assert adapters.ranks[8] == 0
    check(adapters, spans, GROUPS[0], variant, DTYPES[0])


def test_a_batch_without_adapters_launches_nothing() -> None:
    tiles = token_tiles([Span(1, 0, 40, 8)], KernelVariant.GROUPED, 64)
    adapters = Adapters(1, DTYPES[0], random.Random(5))
    out = torch.randn(40, 128, device=DEVICE).to(DTYPES[0])
    before = out.clone()
    common = (tiles[:0].to(DEVICE), adapters.tables, 0, GROUPS[0], KV_DIM, LoraShape(KernelVariant.GROUPED, 8))
    lora_expand(ShrinkBuffers(out, out), adapters.pool[0], out, *common, out)
    assert torch.equal(out, before)


def test_shapes_that_do_not_fit_are_refused() -> None:
    adapters = Adapters(1, DTYPES[0], random.Random(6))
    x = torch.randn(2, 95, device=DEVICE).to(DTYPES[0])
    tiles = token_tiles([Span(1, 0, 2, 8)], KernelVariant.GROUPED, 1).to(DEVICE)
    with pytest.raises(ValueError, match="contiguous rows of 96"):
        common = (tiles, adapters.tables, 0, GROUPS[0], KV_DIM, LoraShape(KernelVariant.GROUPED, 8))
        lora_shrink(x, adapters.pool[0], ShrinkBuffers(x, x), *common)
