"""Batches run in graphs that cover them until their own are captured, and where there is no memory for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.adapters.targets import EXPERTS_GROUP
from lora_engine.execution.graph_set import GraphSet, free_and_cached
from lora_engine.model.batch import LoraSpan
from lora_engine.model.graph_shapes import (
    GraphShape,
    first_graphs,
    graph_memory,
    graph_shape,
    graph_sizes,
    mixed_graphs,
    usual_graphs,
)
from lora_engine.model.shape import DELTA_IN, DELTA_OUT, GATE_UP, QKV, ROUTER, ModelShape
from lora_engine.model.triton_ops import ALL_GROUPS, MIXERS, covering
from lora_kernels.work_items import tiles_needed

MIB = 1 << 20


class Device:
    """Counts captures and what they keep."""

    def __init__(self, free: int = 1000 * MIB) -> None:
        self.captured: list[GraphShape] = []
        self.free = free

    def capture(self, shape: GraphShape) -> str:
        if self.free < 2 * MIB:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.free -= 2 * MIB
        self.captured.append(shape)
        return f"graph {len(self.captured)}"

    def graphs(self, max_running: int = 256, budget: float = float("inf"), deferred: bool = True) -> GraphSet[str]:
        graphs = GraphSet(max_running, self.capture, lambda: self.free, budget, deferred)
        graphs.capture_first()
        return graphs


def batch(runs: Sequence[tuple[int, int]], groups: frozenset[int] = MIXERS, epilogues: bool = False) -> list[LoraSpan]:
    """Adapters with (rows, rank) each, one after the other."""
    spans, row = [], 0
    for number, (rows, rank) in enumerate(runs, start=1):
        slot = cast(AdapterSlot, SimpleNamespace(rank=rank, table_index=number, groups=groups, has_epilogues=epilogues))
        spans.append(LoraSpan(slot, row, row + rows))
        row += rows
    return spans


def usual_batch(rnd: random.Random) -> tuple[int, list[LoraSpan]]:
    groups = rnd.choice((MIXERS, frozenset({2}), frozenset({0, 3})))
    most = rnd.choice((1, 2, 3, 6, 20))
    runs = [(rnd.randint(1, most), rnd.choice((1, 8, 16, 17, 64))) for _ in range(rnd.randint(0, 12))]
    spans = batch(runs, groups)
    rows = (spans[-1].stop if spans else 0) + rnd.randint(0 if spans else 1, 9)
    return next(size for size in graph_sizes(256) if size >= rows), spans


def test_what_is_captured_first_covers_every_usual_batch() -> None:
    device, rnd = Device(), random.Random(1)
    graphs = device.graphs()
    graphs.steps_between = 1 << 30
    first = len(device.captured)
    assert first <= 27
    for _ in range(300):
        size, spans = usual_batch(rnd)
        shape = graphs.choose(graph_shape(size, spans, merged=False), spans)
        assert shape is not None and size <= shape.size < 2 * size
        assert bool(spans) == (shape.lora is not None)
        if shape.lora:
            assert tiles_needed(covering(spans, shape.size), shape.lora.variant) <= shape.tiles
    assert len(device.captured) == first


def test_a_start_for_which_streams_wait_captures_the_largest_first_and_then_what_steps_need() -> None:
    device, rnd = Device(), random.Random(1)
    graphs = GraphSet(256, device.capture, lambda: device.free, deferred=True)
    graphs.defer_smaller()
    graphs.capture_first()
    assert {shape.size for shape in device.captured} == {256} and len(device.captured) <= 4
    graphs.steps_between = 1 << 30
    for _ in range(50):
        size, spans = usual_batch(rnd)
        shape = graphs.choose(graph_shape(size, spans, merged=False), spans)
        assert shape is not None and shape.size == 256
    wanted, _steps = graphs._wanted.most_common(1)[0]
    graphs.capture_next()
    assert device.captured[-1] == wanted
    while graphs.capture_next():
        pass
    ordinary = Device()
    everything = ordinary.graphs()
    while everything.capture_next():
        pass
    assert set(device.captured) == set(ordinary.captured)


def test_a_batch_asks_only_for_usual_graphs() -> None:
    rnd, usual = random.Random(2), set(usual_graphs(256))
    for _ in range(300):
        size, spans = usual_batch(rnd)
        assert graph_shape(size, spans, merged=False) in usual


def test_graphs_launch_no_kernels_for_groups_that_adapters_leave_alone() -> None:
    """Adapters on gated delta layers and attention, and on experts beside these, are usual."""
    for groups, launched in (
        ({DELTA_IN, DELTA_OUT}, MIXERS),
        ({QKV, DELTA_OUT}, MIXERS),
        ({QKV, EXPERTS_GROUP}, MIXERS | {EXPERTS_GROUP}),
        ({QKV, GATE_UP}, ALL_GROUPS),
        ({ROUTER}, ALL_GROUPS),
    ):
        shape = graph_shape(16, batch([(1, 8)] * 16, frozenset(groups)), merged=False)
        assert shape.groups == launched
    device = Device()
    graphs, spans = device.graphs(), batch([(1, 8)] * 16, frozenset({QKV, EXPERTS_GROUP}))
    wanted = graph_shape(16, spans, merged=False)
    chosen = [graphs.choose(wanted, spans) for _ in range(graphs.steps_between + 2)]
    assert chosen[0] is not None and chosen[0].groups == ALL_GROUPS
    assert chosen[-1] == wanted


def test_the_memory_of_graphs_is_bounded() -> None:
    """By what one was measured to keep, 58 to 62 KiB a layer; the budget leaves room for others."""
    assert len(usual_graphs(256)) + len(mixed_graphs(256)) <= 210, "an H200 kept 564 MiB for 202"
    model = cast(
        ModelShape, SimpleNamespace(num_layers=32, targets={"up": (4096, 14336)}, dtype=torch.bfloat16, experts=None)
    )
    assert 350 * MIB < graph_memory(256, model, invariant=True) < 500 * MIB
    assert 700 * MIB < graph_memory(256, model) < 900 * MIB
    assert 1000 * MIB < graph_memory(1024, model) < 1300 * MIB


def test_while_requests_run_one_graph_is_captured_every_few_steps() -> None:
    device = Device()
    graphs, spans = device.graphs(), batch([(1, 8)] * 20)
    first, wanted = len(device.captured), graph_shape(24, spans, merged=False)
    chosen = [graphs.choose(wanted, spans) for _ in range(graphs.steps_between + 2)]
    assert {shape.size for shape in chosen[:-2] if shape} == {32}
    assert chosen[-1] == wanted and len(device.captured) == first + 1
    assert graphs[wanted] == f"graph {first + 1}"


def test_captures_while_requests_run_take_a_small_share_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("lora_engine.execution.graph_set.time", SimpleNamespace(perf_counter=lambda: now[0]))
    device = Device()
    graphs, rnd = device.graphs(), random.Random(4)
    capture = graphs._capture

    def slowly(shape: GraphShape) -> str:
        now[0] += 0.05
        return capture(shape)

    graphs._capture = slowly
    first = len(device.captured)
    for _ in range(5000):
        size, spans = usual_batch(rnd)
        graphs.choose(graph_shape(size, spans, merged=False), spans)
        now[0] += 0.01
    assert graphs.captured_under_load == len(device.captured) - first
    assert graphs.captured_under_load > 5 and graphs.seconds_under_load < 0.02 * now[0]


def test_what_most_steps_needed_is_captured_first() -> None:
    device = Device()
    graphs, few, many = device.graphs(), batch([(1, 8)] * 20), batch([(1, 8)] * 40)
    graphs.steps_between = 1 << 30
    often, seldom = graph_shape(48, many, merged=False), graph_shape(24, few, merged=False)
    for spans, shape, steps in ((few, seldom, 3), (many, often, 5), (few, seldom, 1)):
        for _ in range(steps):
            graphs.choose(shape, spans)
    first = len(device.captured)
    assert graphs.capture_next() and graphs.capture_next()
    assert device.captured[first:] == [often, seldom]
    assert graphs.captured_under_load == 0


def test_memory_that_torch_caches_for_other_tensors_is_kept_by_no_graph() -> None:
    """A run of the model comes before each capture, and leaves blocks that the next step takes again."""
    segments = [
        {"device": 0, "total_size": 20 * MIB, "active_size": 5 * MIB, "segment_pool_id": (0, 0)},
        {"device": 0, "total_size": 40 * MIB, "active_size": 0, "segment_pool_id": (0, 3)},  # of graphs
        {"device": 1, "total_size": 80 * MIB, "active_size": 0, "segment_pool_id": (0, 0)},
        {"device": 0, "total_size": 2 * MIB, "active_size": 1 * MIB},
    ]
    assert free_and_cached(100 * MIB, 0, segments) == 116 * MIB


def test_while_nothing_runs_all_are_captured_once() -> None:
    device = Device()
    graphs = device.graphs(max_running=24)
    while graphs.capture_next():
        """As the step thread does."""
    assert sorted(map(str, device.captured)) == sorted(map(str, usual_graphs(24)))
    assert not graphs.capture_next()
    assert graphs.kept_bytes == 2 * MIB * len(device.captured)


def test_unless_they_are_deferred_all_are_captured_before_the_first_request() -> None:
    device = Device()
    graphs, spans = device.graphs(max_running=24, deferred=False), batch([(1, 200)])
    assert sorted(map(str, device.captured)) == sorted(map(str, usual_graphs(24)))
    assert not graphs.capture_next()
    wanted = graph_shape(8, spans, merged=False)
    assert graphs.choose(wanted, spans) == wanted == device.captured[-1], "an unusual one, when it is asked for"


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("limit", ["budget", "device"])
def test_without_memory_a_covering_graph_goes_on_serving(limit: str, deferred: bool) -> None:
    first = len(first_graphs(256))
    room = (2 * first + 3) * MIB
    device = Device(free=room if limit == "device" else 1000 * MIB)
    graphs = device.graphs(budget=room if limit == "budget" else float("inf"), deferred=deferred)
    spans = batch([(1, 8)] * 20)
    wanted = graph_shape(24, spans, merged=False)
    while graphs.capture_next():
        """Until all were tried."""
    assert len(graphs) <= first + 1
    chosen = [graphs.choose(wanted, spans) for _ in range(40)]
    # A part of the budget is for graphs that a step needs; then there is no more room.
    assert {shape.size for shape in chosen if shape} == ({32, 24} if limit == "budget" and deferred else {32})
    other = batch([(1, 8)] * 40)
    for _ in range(40):
        shape = graphs.choose(graph_shape(48, other, merged=False), other)
        assert shape is not None and shape.size == 64
    high = batch([(1, 200)])
    assert graphs.choose(graph_shape(1, high, merged=False), high) is None, "no graph covers it: it runs without"
    assert not graphs.failure


def test_without_memory_for_graphs_that_cover_every_batch_there_is_no_start() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        Device(free=7 * MIB).graphs()


def test_a_graph_that_nothing_covers_is_captured_at_once() -> None:
    device = Device()
    graphs, spans = device.graphs(), batch([(1, 200)])
    wanted = graph_shape(1, spans, merged=False)
    assert graphs.choose(wanted, spans) == wanted == device.captured[-1]
    merged = graph_shape(8, batch([(3, 16)]), merged=True)
    assert graphs.choose(merged, batch([(3, 16)])) == merged == device.captured[-1]


def test_after_a_capture_that_failed_none_is_tried_and_the_process_is_to_end() -> None:
    device = Device()
    graphs, spans = device.graphs(), batch([(1, 8)] * 20)
    wanted, captured = graph_shape(24, spans, merged=False), len(device.captured)
    graphs.steps_between = 0

    def fail(shape: GraphShape) -> str:
        raise RuntimeError("operation failed due to a previous error during capture")

    capture, graphs._capture = graphs._capture, fail
    shape = graphs.choose(wanted, spans)
    assert shape is not None and shape.size == 32, "the batch is served"
    assert "previous error during capture" in graphs.failure
    graphs._capture = capture
    assert not graphs.capture_next()
    assert graphs.choose(wanted, spans) == shape
    assert len(device.captured) == captured


def test_errors_before_the_first_request_are_raised() -> None:
    def fail(shape: GraphShape) -> str:
        raise RuntimeError("an illegal memory access was encountered")

    graphs = GraphSet(8, fail, lambda: 0)
    with pytest.raises(RuntimeError, match="illegal"):
        graphs.capture_first()
    assert not graphs.failure


def test_epilogues_have_graphs_of_their_own() -> None:
    """Captured when they first come; what has none never takes one of them."""
    device = Device()
    graphs = device.graphs()
    spans = batch([(1, 8), (1, 16)], epilogues=True)
    wanted = graph_shape(2, spans, merged=False)
    assert wanted.epilogues and wanted not in device.captured
    assert graphs.choose(wanted, spans) == wanted == device.captured[-1]
    plain = batch([(1, 8), (1, 16)])
    assert not graph_shape(2, plain, merged=False).epilogues
    chosen = graphs.choose(graph_shape(2, plain, merged=False), plain)
    assert chosen is not None and not chosen.epilogues
