"""``out + factor * out + offset`` of each token's adapter, against float64; poisoned pools, every kind of tile."""

from __future__ import annotations

import random

import pytest
import torch
from lorikeet_testing.grids import grid

from lora_kernels.epilogue import lora_epilogue
from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.reference import epilogue
from lora_kernels.tables import ALL_TARGETS, MODULE_FIELDS, Group, SlotTables
from lora_kernels.work_items import Span, tiles_needed, token_tiles

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
KV_DIM, ROWS_PER_PAGE, LAYERS, PAGES = 32, 4, 2, 200
GROUPS = [Group("qkv", 0, 96, (64, 32, 32)), Group("gate_up", 4, 96, (150, 150)), Group("down", 6, 150, (96,))]
ADAPTERS = 4
ONE, TWO = DTYPES
TILES = {  # of an ordinary run: each group, variant and dtype once
    ("qkv", ONE): KernelVariant.GEMV_1, ("gate_up", ONE): KernelVariant.PREFILL, ("down", ONE): KernelVariant.GROUPED,
    ("qkv", TWO): KernelVariant.GROUPED, ("gate_up", TWO): KernelVariant.GEMV_2, ("down", TWO): KernelVariant.PREFILL,
}  # fmt: skip


class Vectors:
    """A pool full of NaN with vectors of adapters in scattered pages: both, one of them, or none, target by target."""

    def __init__(self, dtype: torch.dtype, rnd: random.Random) -> None:
        self.pool = torch.full((LAYERS, PAGES, ROWS_PER_PAGE * KV_DIM), float("nan"), dtype=dtype)
        self.tables = SlotTables(ADAPTERS + 1, LAYERS, PAGES, "cpu")
        free = rnd.sample(range(1, PAGES), PAGES - 1)
        for slot in range(1, ADAPTERS + 1):
            modules, cursor = torch.zeros(LAYERS, ALL_TARGETS, MODULE_FIELDS, dtype=torch.int32), 0
            for group in GROUPS if slot < ADAPTERS else ():  # the last adapter is a plain one
                for index, features in enumerate(group.out_features):
                    for field in rnd.choice([(3,), (4,), (3, 4), ()]) if slot > 1 else (3, 4):
                        modules[:, group.first_target + index, field] = cursor + 1
                        cursor += -(-features // KV_DIM)
            pages = [free.pop() for _ in range(-(-cursor // ROWS_PER_PAGE))]
            self.pool[:, pages] = torch.randn(LAYERS, len(pages), ROWS_PER_PAGE * KV_DIM).to(dtype)
            self.tables.write(slot, pages, modules, torch.zeros(LAYERS, ALL_TARGETS))
        self.pool = self.pool.to(DEVICE)
        self.tables.pages, self.tables.modules = self.tables.pages.to(DEVICE), self.tables.modules.to(DEVICE)


@pytest.mark.parametrize(
    ("group", "variant", "dtype"),
    grid(GROUPS, KernelVariant, DTYPES, ordinary=lambda group, variant, dtype: variant is TILES[group.name, dtype]),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_it_agrees_with_its_reference(group: Group, variant: KernelVariant, dtype: torch.dtype) -> None:
    made = Vectors(dtype, random.Random(3))
    spans = [Span(1, 0, 1, 8), Span(0, 1, 3, 0), Span(2, 3, 9, 8), Span(3, 9, 11, 8), Span(4, 11, 30, 8)]
    tiles = token_tiles(spans, variant, 2 + tiles_needed(spans, variant)).to(DEVICE)
    slots = torch.tensor([span.slot for span in spans for _ in range(span.start, span.stop)])
    before = torch.randn(30, sum(group.out_features), device=DEVICE).to(dtype)
    for layer in range(LAYERS):
        out = before.clone()
        lora_epilogue(out, made.pool[layer], tiles, made.tables, layer, group, KV_DIM)
        want = epilogue(before, made.pool[layer], made.tables, layer, group, slots, KV_DIM)
        assert torch.isfinite(out).all(), "read what was never written"
        assert float((out.double() - want).norm()) <= TOLERANCE[dtype] * float(want.norm())
        alone = (slots == 0) | (slots == ADAPTERS)
        assert torch.equal(out[alone], before[alone]), "rows of other adapters changed"
        assert not torch.equal(out[~alone], before[~alone])
