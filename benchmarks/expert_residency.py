"""Time of adapters on experts of which only some are in the pool, and what it costs to give an expert's pages away.

    python benchmarks/expert_residency.py --out benchmarks/results/expert_residency.jsonl

Layers of Qwen3-30B-A3B as in experts_table.py, with one adapter of rank 16 on all experts. A share of the experts is in
the pool, and the others are read from page-locked host memory by the kernels. The router chooses experts by
popularities that fall with a power of their rank (skew 0: all alike). The experts in the pool are the most popular
ones, as after a while of `--expert-residency`, or random ones, as after a load. The floor is the time with all experts
in the pool; bytes are those that were read through the bus.

Then what eviction costs: the host's time to take a frame from a running adapter, its copy back, and the reads of one
expert in a step meanwhile.
"""

from __future__ import annotations

import random as python_random
import time

import torch
from experts_table import EXPERTS, HIDDEN, INNER, KV_DIM, PER_TOKEN, RANK, ROWS_PER_PAGE, random
from kernel_table import LAYERS, measure
from rows import Rows, parser_of

from lora_engine.adapters.device_copies import StreamCopies
from lora_engine.adapters.device_table import DeviceTable
from lora_engine.adapters.expert_residency import Change, ExpertResidency, Move, Residents, write_packed
from lora_engine.adapters.experts import plan_experts
from lora_engine.adapters.layout import AdapterLayout, PackedAdapter
from lora_engine.adapters.targets import ExpertShapes
from lora_engine.memory import PagePool, PoolGeometry
from lora_engine.peft_format import DOWN, GATE_UP, ExpertFactor, FactorForm
from lora_engine.peft_format import ExpertLora as PeftLora
from lora_kernels.expert_lora import ExpertLora
from lora_kernels.experts import Routing, grouped_experts, route
from lora_kernels.tables import ResidencyTables, SlotTables

STEPS = (1, 64, 256, 4096)
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
SKEWS = (0.0, 0.5, 1.0, 1.5)
REPEATS = 50


class PartlyResident:
    """An adapter on the experts of ``LAYERS`` layers, and what of it is in a pool."""

    def __init__(self, device: str = "cuda") -> None:
        geometry = PoolGeometry(LAYERS, ROWS_PER_PAGE // 2, KV_DIM // 128, 128)
        a, b = ExpertFactor(("a",), FactorForm.ROWS), ExpertFactor(("b",), FactorForm.COLUMNS)
        modules = [[PeftLora(layer, m, RANK, (1.0,), a, b) for m in (GATE_UP, DOWN)] for layer in range(LAYERS)]
        shapes = ExpertShapes(EXPERTS, HIDDEN, INNER)
        slots, self.frames, count = plan_experts(modules, [0] * LAYERS, geometry, shapes)
        assert self.frames is not None
        data = (torch.randn(LAYERS, count, geometry.page_elems) * 0.02).to(torch.bfloat16)
        layout = AdapterLayout(((),) * LAYERS, count, experts=slots, frames=self.frames)
        self.packed = PackedAdapter("", RANK, layout, data.pin_memory() if device == "cuda" else data)
        self.pool = PagePool(geometry, count + 1, torch.bfloat16, torch.device(device))
        tables = SlotTables(
            2, LAYERS, count, device, experts=True, residency=ResidencyTables(2, 2, LAYERS, EXPERTS, device)
        )
        self.table = DeviceTable(tables, ())
        self.geometry, self.tables, self.device = geometry, tables, device

    def place(self, share: float, popular: list[list[int]]) -> ExpertResidency:
        """Put the first of ``popular`` experts of each layer into the pool."""
        assert self.frames is not None
        frames = round(share * self.frames.count)
        pages = list(range(1, 1 + self.frames.first_page + frames * self.frames.pages))
        residency = ExpertResidency(self.packed, self.geometry, pages, 1, 1)
        write_packed(self.pool, residency)
        for layer, experts in enumerate(popular):
            for frame in range(frames):
                residency.clear(layer, frame)
            units = list(dict.fromkeys(expert // self.frames.experts for expert in experts))
            for frame, unit in enumerate(units[:frames]):
                start = self.frames.first_page + unit * self.frames.pages
                rows = self.packed.data[layer, start : start + self.frames.pages]
                self.pool.write_pages(layer, residency.pages_of[frame], rows)
                residency.put(Move(layer, unit, frame))
        residency.check()
        self.table.write(1, self.packed.layout, residency.packed_pages)
        self.table.write_residency(residency, self.pool)
        return residency

    def lora(self, tokens: int, layer: int) -> ExpertLora:
        slots = torch.ones(tokens, dtype=torch.int32, device=self.device)
        return ExpertLora(slots, self.pool.layer(layer), self.tables, layer, KV_DIM, RANK)


def routings(tokens: int, skew: float, device: str = "cuda") -> tuple[list[Routing], list[list[int]]]:
    """Return a random routing of each layer, and its experts by popularity."""
    made, popular = [], []
    for _ in range(LAYERS):
        order = torch.randperm(EXPERTS)
        shares = torch.empty(EXPERTS)
        shares[order] = 1.0 / torch.arange(1, EXPERTS + 1).float() ** skew
        drawn = -torch.log(-torch.log(torch.rand(tokens, EXPERTS)))  # the best sums are a draw by popularity
        made.append(route((shares.log() + drawn).to(device), PER_TOKEN, renormalised=True))
        popular.append(order.tolist())
    return made, popular


def from_host(residency: ExpertResidency, routed: list[Routing]) -> float:
    """Return the experts of a layer that are read from host memory, on average."""
    total = 0
    for layer, routing in enumerate(routed):
        units = {int(expert) // residency.frames.experts for expert in routing.experts.unique()}
        total += sum(int(residency.frame_of[layer, unit]) < 0 for unit in units)
    return total / len(routed)


def eviction(rows: Rows, adapter: PartlyResident) -> None:
    """Measure the removal of a frame, and the copy of a unit into one."""
    residency = adapter.place(1.0, [list(range(EXPERTS))] * LAYERS)
    assert adapter.frames is not None
    copies = StreamCopies(torch.device("cuda"))
    residents = Residents(adapter.pool, adapter.table, copies)
    times: dict[str, list[float]] = {"take a frame": [], "begin a copy": [], "copy of a unit of each layer": []}
    for _ in range(REPEATS):
        frame = python_random.choice(sorted(residency.pages_of))
        units = [int(unit) for unit in residency.unit_of[:, frame]]
        torch.cuda.synchronize()
        began = time.perf_counter()
        pages = residents.change(residency, Change(removed=(frame,)))
        times["take a frame"].append(time.perf_counter() - began)
        moves = tuple(Move(layer, unit, frame) for layer, unit in enumerate(units))
        began = time.perf_counter()
        residents.change(residency, Change((), ((frame, tuple(pages)),), moves))
        times["begin a copy"].append(time.perf_counter() - began)
        torch.cuda.synchronize()
        times["copy of a unit of each layer"].append(time.perf_counter() - began)
        residents.settle(residency)
        residency.check()
    for name, seconds in times.items():
        rows.add(name, "median", sorted(seconds)[len(seconds) // 2] * 1e6, "us", settings={"layers": LAYERS})
    bytes_of_unit = adapter.frames.pages * adapter.geometry.page_elems * 2
    rows.add("unit", "size", bytes_of_unit / 1024, "KiB", settings={"experts": adapter.frames.experts})


def main() -> None:
    arguments = parser_of(__doc__, out=True).parse_args()
    rows = Rows(arguments.out, "expert_residency", "qwen3-30b-a3b")
    gate_up = [random(EXPERTS, 2 * INNER, HIDDEN) for _ in range(LAYERS)]
    down = [random(EXPERTS, HIDDEN, INNER) for _ in range(LAYERS)]
    adapter = PartlyResident()
    assert adapter.frames is not None
    bytes_of_unit = adapter.frames.pages * adapter.geometry.page_elems * 2
    for tokens in STEPS:
        x = [random(tokens, HIDDEN) for _ in range(LAYERS)]
        lora = [adapter.lora(tokens, layer) for layer in range(LAYERS)]
        for skew in SKEWS:
            routed, popular = routings(tokens, skew)

            def step(layer: int, x: list = x, routed: list = routed, lora: list = lora) -> object:  # type: ignore[type-arg]
                return grouped_experts(x[layer], gate_up[layer], down[layer], routed[layer], "silu", None, lora[layer])

            floor = 0.0
            for share in SHARES:
                for kind in ("popular", "random") if 0 < share < 1 else ("popular",):
                    chosen = popular if kind == "popular" else [torch.randperm(EXPERTS).tolist() for _ in popular]
                    residency = adapter.place(share, chosen)
                    us, outside = measure(step), from_host(residency, routed)
                    floor = floor or us
                    moved = outside * bytes_of_unit
                    rows.add(
                        f"{tokens} tokens, skew {skew}, {share:.0%} {kind}", "kernel_us", us, "us", floor,
                        settings={"experts_from_host": outside, "bytes": moved, "gb_per_s": moved / us / 1e3},
                    )  # fmt: skip
    eviction(rows, adapter)


if __name__ == "__main__":
    main()
