"""LoRA on experts in pool pages against a loop over tokens in float64."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lorikeet_testing.ordered_dots import add_in_order

from lora_engine.adapters.expert_residency import ExpertResidency, Move
from lora_engine.adapters.experts import MODULES, ExpertFactors, plan_experts, read_slot
from lora_engine.adapters.layout import AdapterLayout, PackedAdapter
from lora_engine.adapters.targets import ExpertShapes
from lora_engine.adapters.tensors import factor_rows
from lora_engine.memory import PagePool, PoolGeometry
from lora_engine.peft_format import DOWN, GATE, GATE_UP, UP, ExpertFactor, ExpertLora, FactorForm
from lora_kernels import expert_lora
from lora_kernels import experts as kernels
from lora_kernels.expert_lora import ExpertLora as StepLora
from lora_kernels.experts import ExpertsConfig, config_of, form_of, grouped_experts, invariant_configs, route
from lora_kernels.tables import FP8_ROWS, ResidencyTables, SlotTables

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
KV_DIM, ROWS_PER_PAGE, LAYER = 32, 8, 1
GEOMETRY = PoolGeometry(LAYER + 1, ROWS_PER_PAGE // 2, 1, KV_DIM)
# Packed adapters of which kernels read a part.
KEPT: list[torch.Tensor] = []
# Modules of each adapter, with their ranks, and which factor all experts share.
ADAPTERS: tuple[tuple[tuple[str, int, str], ...], ...] = (
    ((GATE_UP, 5, ""), (DOWN, 16, "")),
    ((GATE, 20, ""), (UP, 3, ""), (DOWN, 1, "b")),
    ((GATE, 4, "a"), (UP, 4, "a"), (DOWN, 4, "b")),
    ((UP, 7, ""),),
    (),
)


def place(
    pool: PagePool, tables: SlotTables, shapes: ExpertShapes, in_fp8: Sequence[int] = (), partial: Sequence[int] = ()
) -> list[dict[str, ExpertFactors]]:
    """Write random adapters into scattered pages, some of them in FP8; return their factors in float64.

    Of ``partial`` ones, random experts lie in the pool. What is not to be read there or in host memory is NaN.
    """
    free = torch.randperm(pool.num_pages).tolist()
    placed = []
    for slot, modules in enumerate(ADAPTERS, start=1):
        lora = [_lora(module, rank, shared) for module, rank, shared in modules]
        fp8_rows = tables.fp8_rows if slot in in_fp8 else 0
        planned, frames, count = plan_experts([(), lora], [0, 3], GEOMETRY, shapes, fp8_rows)
        data = torch.full((2, count, pool.geometry.page_elems), torch.nan, dtype=pool.data.dtype)
        data = data.pin_memory() if DEVICE == "cuda" else data
        entries = torch.zeros(tables.num_layers, len(MODULES), 5, dtype=torch.int32)
        scales = torch.zeros(tables.num_layers, len(MODULES))
        factors = {}
        for each in planned[LAYER]:
            read = read_slot(factor_rows(data[LAYER], KV_DIM, fp8=fp8_rows > 0), each)
            if each.module != UP or modules[0][0] != GATE_UP:  # up has gate's A there
                read.a.copy_(torch.randn(read.a.shape) * 0.3)
            read.b.copy_(torch.randn(read.b.shape) * 0.3)
            entry, first = MODULES.index(each.module), FP8_ROWS if fp8_rows else 0
            starts = first + each.a_row, each.a_step, first + each.b_row, each.b_step
            entries[LAYER, entry] = torch.tensor([*starts, each.rank])
            scales[LAYER, entry] = 0.5 * slot
            factors[each.module] = ExpertFactors(read.a.to(DEVICE).double(), read.b.to(DEVICE).double(), 0.5 * slot)
        none = torch.zeros(tables.num_layers, tables.modules.shape[2], 5, dtype=torch.int32)
        described = none, torch.zeros(none.shape[:2]), (entries, scales)
        if slot not in partial or frames is None:
            pages = [free.pop() for _ in range(count)]
            pool.layer(LAYER)[pages] = data[LAYER].to(DEVICE)
            tables.write(slot, pages, *described)
        else:
            layout = AdapterLayout(((), ()), count, experts=planned, fp8_rows=fp8_rows, frames=frames)
            pages = [free.pop() for _ in range(frames.first_page + random.randint(0, frames.count) * frames.pages)]
            residency = ExpertResidency(PackedAdapter("", 1, layout, data), GEOMETRY, pages, slot, slot)
            _place_partly(pool, residency)
            tables.write(slot, residency.packed_pages, *described)
            where = residency.places(), residency.host_distances(pool), residency.kernel_pages
            tables.write_residency(slot, slot, *where)
            KEPT.append(data)  # kernels read it later
        placed.append(factors)
    return placed


def _place_partly(pool: PagePool, residency: ExpertResidency) -> None:
    """Copy random units into the frames, and take them out of host memory."""
    frames, data, rows = residency.frames, residency.packed.data[LAYER], pool.layer(LAYER)
    units = random.sample(range(frames.units[LAYER]), len(residency.pages_of))
    for frame in residency.pages_of:
        residency.clear(LAYER, frame)
    rows[residency.fixed_pages] = data[: frames.first_page].to(DEVICE)
    data[: frames.first_page] = torch.nan
    for frame, unit in zip(residency.pages_of, units, strict=True):
        if random.random() < 0.9:  # others are being copied
            residency.put(Move(LAYER, unit, frame))
            start = frames.first_page + unit * frames.pages
            rows[residency.pages_of[frame]] = data[start : start + frames.pages].to(DEVICE)
            data[start : start + frames.pages] = torch.nan
    residency.check()


def _lora(module: str, rank: int, shared: str) -> ExpertLora:
    a, b = (ExpertFactor(("",), FactorForm.STACKED_ROWS, side in shared) for side in "ab")
    return ExpertLora(LAYER, module, rank, (1.0,), a, b)


def delta(factors: ExpertFactors | None, expert: int, x: torch.Tensor) -> torch.Tensor | float:
    if factors is None:
        return 0.0
    a, b = (each[expert if len(each) > 1 else 0] for each in (factors.a, factors.b))
    return factors.scale * (a @ x) @ b


def by_token(
    x: torch.Tensor, weights: Sequence[torch.Tensor], routing: Any, slots: torch.Tensor,
    placed: Sequence[dict[str, ExpertFactors]],
) -> torch.Tensor:  # fmt: skip
    gate_up, down = (each.double() for each in weights)
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token, row in enumerate(x.double()):
        factors = placed[int(slots[token]) - 1] if slots[token] else {}
        for weight, expert in zip(routing.weights[token].tolist(), routing.experts[token].tolist(), strict=True):
            gate, up = (gate_up[expert] @ row).chunk(2)
            gate, up = (part + delta(factors.get(module), expert, row) for part, module in ((gate, GATE), (up, UP)))
            inner = F.silu(gate) * up
            out[token] += weight * (down[expert] @ inner + delta(factors.get(DOWN), expert, inner))
    return out


def _memory(experts: int, fp8_rows: int, *, partial: bool = False, pages: int = 700) -> tuple[PagePool, SlotTables]:
    """Return a pool full of NaN, and tables."""
    rows = len(ADAPTERS) + 1
    residency = ResidencyTables(rows, rows, LAYER + 1, experts, DEVICE) if partial else None
    tables = SlotTables(rows, LAYER + 1, 900, DEVICE, experts=True, fp8_rows=fp8_rows, residency=residency)
    pool = PagePool(GEOMETRY, pages, DTYPE, torch.device(DEVICE))
    pool.data.fill_(torch.nan)
    return pool, tables


@pytest.mark.parametrize("in_fp8", [(), (1, 2, 4)], ids=["plain", "some in FP8"])
@pytest.mark.parametrize(("tokens", "experts", "seed"), [(1, 4, 0), (5, 4, 1), (9, 5, 2), (40, 4, 3), (35, 3, 4)])
def test_experts_outside_the_pool_are_read_from_host_memory(
    tokens: int, experts: int, seed: int, in_fp8: tuple[int, ...]
) -> None:
    """Random experts of some adapters lie in the pool, and all pairs of these adapters are counted."""
    random.seed(seed)
    hidden, inner, partial = 80, 40, (1, 2, 4)
    shapes = ExpertShapes(experts, hidden, inner)
    pool, tables = _memory(experts, DTYPE.itemsize if in_fp8 else 0, partial=True)
    placed = place(pool, tables, shapes, in_fp8, partial)
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    routing = route(torch.randn(tokens, experts, device=DEVICE), 2, renormalised=True)
    slots = torch.randint(0, len(ADAPTERS) + 1, (tokens,), dtype=torch.int32, device=DEVICE)
    slots[0] = 1
    lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, 32)
    run = lambda: grouped_experts(x, gate_up, down, routing, "silu", None, lora)  # noqa: E731
    got = run()
    want = by_token(x, (gate_up, down), routing, slots, placed)
    assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[DTYPE]
    assert tables.residency is not None
    for slot in range(1, len(ADAPTERS) + 1):
        chosen = routing.experts[slots == slot].flatten().long().bincount(minlength=experts)
        counted = chosen if slot in partial else torch.zeros_like(chosen)
        assert torch.equal(tables.residency.counts[slot, LAYER].long(), counted)
    if DEVICE == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = run()
        graph.replay()
        torch.testing.assert_close(captured, got, rtol=0, atol=0)


@pytest.mark.parametrize("in_fp8", [(), (1, 2, 4)], ids=["plain", "some in FP8"])
@pytest.mark.parametrize(
    ("tokens", "experts", "hidden", "inner"), [(1, 4, 48, 40), (9, 5, 64, 75), (35, 3, 80, 33), (100, 3, 32, 16)]
)
def test_each_pair_has_its_own_adapter_and_expert(
    tokens: int, experts: int, hidden: int, inner: int, in_fp8: tuple[int, ...]
) -> None:
    """A program for each pair, and blocks of 64 and 128 pairs with several adapters; other pool rows hold NaN."""
    assert config_of(2 * tokens, experts).pairs == {1: 16, 9: 16, 35: 64, 100: 128}[tokens]
    shapes = ExpertShapes(experts, hidden, inner)
    pool, tables = _memory(experts, DTYPE.itemsize if in_fp8 else 0)
    placed = place(pool, tables, shapes, in_fp8)
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    routing = route(torch.randn(tokens, experts, device=DEVICE), 2, renormalised=True)
    slots = torch.randint(0, len(ADAPTERS) + 1, (tokens,), dtype=torch.int32, device=DEVICE)
    slots[0] = 2
    for rank in (32, 64):
        lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, rank)
        got = grouped_experts(x, gate_up, down, routing, "silu", None, lora)
        want = by_token(x, (gate_up, down), routing, slots, placed)
        assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[DTYPE]
    none = StepLora(torch.zeros_like(slots), pool.layer(LAYER), tables, LAYER, KV_DIM, 32)
    plain = grouped_experts(x, gate_up, down, routing, "silu")
    torch.testing.assert_close(grouped_experts(x, gate_up, down, routing, "silu", None, none), plain)


@pytest.mark.parametrize(
    ("tokens", "hidden", "inner", "in_fp8"), [(35, 80, 33, (1, 2, 4)), (100, 32, 16, ())], ids=["some in FP8", "plain"]
)
def test_blocks_whose_pairs_have_one_adapter(tokens: int, hidden: int, inner: int, in_fp8: tuple[int, ...]) -> None:
    """Blocks of 64 and 128 pairs of one expert, beside those of another that have several adapters."""
    experts = 3
    assert config_of(2 * tokens, experts).pairs == {35: 64, 100: 128}[tokens]
    pool, tables = _memory(experts, DTYPE.itemsize if in_fp8 else 0)
    placed = place(pool, tables, ExpertShapes(experts, hidden, inner), in_fp8)
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    logits = torch.randn(tokens, experts, device=DEVICE)
    logits[0, 0], logits[1:, 0] = 9.0, -9.0  # only the first token has expert 0, beside one of the others
    routing = route(logits, 2, renormalised=True)
    for slot in range(len(ADAPTERS) + 1):
        slots = torch.full((tokens,), slot, dtype=torch.int32, device=DEVICE)
        for first in (slot, 3):  # of which one expert's block has another adapter, too
            slots[0] = first
            lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, 32)
            got = grouped_experts(x, gate_up, down, routing, "silu", None, lora)
            want = by_token(x, (gate_up, down), routing, slots, placed)
            assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[DTYPE], (slot, first)


def test_a_large_scale_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The products with A times the scale are beyond float16; what is added to the experts' is not."""
    monkeypatch.setitem(globals(), "DTYPE", torch.float16)
    experts, hidden, inner, tokens = 3, 32, 16, 100
    pool, tables = _memory(experts, 0)
    placed = place(pool, tables, ExpertShapes(experts, hidden, inner))
    scale, small = 2.0**17, 2.0**-10
    rows = pool.layer(LAYER)[tables.pages[1].long().unique()[1:]]
    pool.layer(LAYER)[tables.pages[1].long().unique()[1:]] = (rows * small).to(torch.float16)
    tables.expert_scales[1] = 0.5 * scale
    for each in placed[0].values():
        each.a.mul_(small)
        each.b.mul_(small)
    placed[0] = {name: replace(each, scale=0.5 * scale) for name, each in placed[0].items()}
    x = torch.randn(tokens, hidden, device=DEVICE).to(torch.float16) * 400
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden).to(torch.float16) / 100
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(torch.float16)
    routing = route(torch.randn(tokens, experts, device=DEVICE), 2, renormalised=True)
    slots = torch.ones(tokens, dtype=torch.int32, device=DEVICE)
    lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, 32)
    got = grouped_experts(x, gate_up, down, routing, "silu", None, lora)
    want = by_token(x, (gate_up, down), routing, slots, placed)
    largest = max(float((x.double() @ each.a[0].T).abs().max()) * each.scale for each in placed[0].values()
                  if each.a.shape[-1] == hidden)  # fmt: skip
    assert largest > torch.finfo(torch.float16).max > float(want.abs().max())
    assert float((got.double() - want).norm() / want.norm()) < 2e-2


@pytest.mark.parametrize(
    ("dtype", "config"),
    [  # in an ordinary run each type with one of the configurations
        pytest.param(dtype, config, id=f"{dtype}-{name}", marks=() if ordinary else pytest.mark.long)
        for name, config in zip(("decodes", "prompts"), invariant_configs(form_of(torch.empty(0))), strict=True)
        for dtype, ordinary in ((DTYPE, name == "decodes"), (torch.float16, name == "prompts"))
    ],
)
def test_with_a_fixed_configuration_rows_do_not_depend_on_others(
    config: ExpertsConfig, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on their number nor on their adapters."""
    monkeypatch.setitem(globals(), "DTYPE", dtype)
    if DEVICE == "cpu":
        add_in_order(monkeypatch)
    experts, hidden, inner, tokens = 4, 48, 40, 24
    pool, tables = _memory(experts, 0)
    place(pool, tables, ExpertShapes(experts, hidden, inner))
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    logits = torch.randn(tokens, experts, device=DEVICE)
    slots = torch.arange(tokens, dtype=torch.int32, device=DEVICE) % (len(ADAPTERS) + 1)
    fixed = config._replace(outputs=min(config.outputs, KV_DIM))

    def mixed(rows: torch.Tensor, *, adapted: bool = True, fixed: ExpertsConfig | None = fixed) -> torch.Tensor:
        lora = StepLora(slots[rows], pool.layer(LAYER), tables, LAYER, KV_DIM, 32) if adapted else None
        routing = route(logits[rows], 2, renormalised=True)
        return grouped_experts(x[rows], gate_up, down, routing, "silu", None, lora, fixed=fixed)

    everything = torch.arange(tokens, device=DEVICE)
    together = mixed(everything)
    for rows in (everything[:1], everything[1:2], everything[3:8], everything[5:].flip(0)):
        assert torch.equal(mixed(rows), together[rows]), rows
    of_base = everything[slots == 0]
    assert torch.equal(mixed(of_base, adapted=False), together[of_base])
    torch.testing.assert_close(together, mixed(everything, fixed=None), rtol=2e-2, atol=2e-2)
    if DEVICE == "cpu" and dtype == torch.float32:
        assert not torch.equal(mixed(everything[:5], fixed=None), together[:5]), "the default depends on the number"


@pytest.mark.parametrize("tokens", [9, 35, 100])
def test_an_adapter_that_is_not_finite_changes_no_pair_of_another(tokens: int) -> None:
    hidden, inner, experts = 80, 56, 3
    pool, tables = _memory(experts, 0)
    placed = place(pool, tables, ExpertShapes(experts, hidden, inner))
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    slots = torch.arange(tokens, dtype=torch.int32, device=DEVICE) % (len(placed) + 1)
    routing = route(torch.randn(tokens, experts, device=DEVICE), 2, renormalised=True)
    lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, 20)
    want = grouped_experts(x, gate_up, down, routing, "silu", None, lora)
    pool.layer(LAYER)[tables.pages[1].long().unique()[1:]] = torch.inf  # all but page 0, which nothing reads
    got = grouped_experts(x, gate_up, down, routing, "silu", None, lora)
    assert torch.equal(got[slots != 1], want[slots != 1]) and want.isfinite().all()
    assert not got[slots == 1].isfinite().any()


def test_launches_grow_with_the_pairs_and_not_with_adapters_times_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decode step in which every row has an adapter of its own, of a random rank, on eight experts."""
    rnd, tokens, experts, hidden, inner, per_token = random.Random(7), 64, 8, 32, 16, 4
    ranks = [rnd.randint(1, 20) for _ in range(tokens)]
    adapters = tuple(((GATE_UP, rank, ""), (DOWN, rnd.randint(1, rank), "")) for rank in ranks)
    monkeypatch.setattr(f"{__name__}.ADAPTERS", adapters)
    programs: dict[str, int] = {}

    class Counted:
        def __init__(self, kernel: Any, name: str) -> None:
            self.kernel, self.name = kernel, name

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            programs[self.name] = programs.get(self.name, 0) + math.prod(grid)
            return self.kernel[grid]

    for module, name in (
        (expert_lora, "_shrink_pairs_kernel"), (expert_lora, "_shrink_blocks_kernel"), (kernels, "_gate_up_kernel"),
        (kernels, "_down_kernel"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, Counted(getattr(module, name), name))
    pool, tables = _memory(experts, 0, pages=30_000)
    placed = place(pool, tables, ExpertShapes(experts, hidden, inner))
    x = torch.randn(tokens, hidden, device=DEVICE).to(DTYPE)
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE)
    slots = torch.randperm(tokens).to(DEVICE, torch.int32) + 1
    slots[::9] = 0
    for rows, by_pair in ((8, True), (32 if DEVICE == "cuda" else 24, False)):
        programs.clear()
        routing = route(torch.randn(rows, experts, device=DEVICE), per_token, renormalised=True)
        lora = StepLora(slots[:rows], pool.layer(LAYER), tables, LAYER, KV_DIM, 32)
        got = grouped_experts(x[:rows], gate_up, down, routing, "silu", None, lora)
        want = by_token(x[:rows], (gate_up, down), routing, slots[:rows], placed)
        assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[DTYPE]
        pairs = rows * per_token
        blocks = pairs // 16 + min(pairs, experts)
        shrinks = 3 * 2 * pairs if by_pair else 3 * 4 * blocks  # modules, blocks of 16 ranks or shares of adapters
        assert programs == {
            f"_shrink_{'pairs' if by_pair else 'blocks'}_kernel": shrinks, "_gate_up_kernel": blocks,
            "_down_kernel": blocks,
        }  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="only GPUs start a kernel before the last one has ended")
@pytest.mark.parametrize("tokens", [3, 40, 90])
def test_kernels_that_start_early_read_what_those_before_have_written(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers behind one another in a graph, whose buffers are those of earlier layers, against one kernel at a time."""
    experts, hidden, inner, layers = 16, 128, 64, 6
    pool, tables = _memory(experts, 0, pages=4000)
    place(pool, tables, ExpertShapes(experts, hidden, inner))
    weights = [
        ((torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(DTYPE),
         (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(DTYPE),
         torch.randn(experts, hidden, device=DEVICE).to(DTYPE)) for _ in range(layers)
    ]  # fmt: skip
    x = torch.zeros(tokens, hidden, device=DEVICE, dtype=DTYPE)
    slots = torch.zeros(tokens, dtype=torch.int32, device=DEVICE)
    lora = StepLora(slots, pool.layer(LAYER), tables, LAYER, KV_DIM, 32)

    def captured() -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        def run() -> torch.Tensor:
            out = x
            for gate_up, down, router in weights:
                normed = F.rms_norm(out, (hidden,))
                routing = route(normed @ router.T, 2, renormalised=True)
                out = grouped_experts(normed, gate_up, down, routing, "silu", None, lora)
            return out

        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run()
        return graph, out

    early, got = captured()
    for module in (kernels, expert_lora):
        monkeypatch.setattr(module, "pdl_options", lambda x: {"PDL": False})
    single, want = captured()
    for number in range(200):
        x.copy_(torch.randn(tokens, hidden, device=DEVICE))
        slots.copy_(torch.randint(0, len(ADAPTERS) + 1, (tokens,)) if number % 8 else torch.zeros(tokens))
        got.fill_(torch.nan)
        early.replay()
        single.replay()
        torch.testing.assert_close(got, want, rtol=0, atol=0)
