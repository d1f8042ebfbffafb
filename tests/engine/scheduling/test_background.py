"""Background requests: after everybody else's, and out of the way of those that come."""

from __future__ import annotations

import random

import pytest
from lorikeet_testing.traffic import Trace, machine, request

from lora_engine.scheduling.queue_policies import queue_policies
from lora_engine.scheduling.sequence import Sequence
from lora_engine.simulation import SimulatedEngine

ORDERS = queue_policies.names()


def running(engine: SimulatedEngine) -> list[Sequence]:
    return list(engine.core.scheduler.running)


@pytest.mark.parametrize("order", ORDERS)
def test_it_makes_way_for_a_request_that_comes(order: str) -> None:
    """All places are taken by the background: the newcomer runs in the next step, and everything ends once."""
    engine = SimulatedEngine(machine(400), order=order, max_running=4)
    for number in range(8):
        engine.submit(request(f"b{number}", "batcher", output=200, background=True))
    for _ in range(20):
        engine.step()
    assert len(running(engine)) == 4
    engine.submit(request("now", "other"))
    engine.step()
    assert "now" in {sequence.request.request_id for sequence in running(engine)}
    while engine.has_work():
        engine.step()
        engine.core.allocator.check()
    ended = [e.request.request_id for e in engine.ended]
    assert ended[0] == "now"
    assert sorted(ended) == sorted([f"b{n}" for n in range(8)] + ["now"])


@pytest.mark.parametrize("order", ORDERS)
def test_memory_is_given_up_too(order: str) -> None:
    engine = SimulatedEngine(machine(12), order=order, max_running=16)
    for number in range(6):
        engine.submit(request(f"b{number}", "batcher", prompt=30, output=40, background=True))
    for _ in range(6):
        engine.step()
    engine.submit(request("now", "other", prompt=100, output=20))
    for _ in range(3):
        engine.step()
    assert "now" in {sequence.request.request_id for sequence in running(engine)}
    while engine.has_work():
        engine.step()
    assert len(engine.ended) == 7


def test_it_costs_its_tenant_nothing_of_its_share() -> None:
    """A tenant that used an idle engine in the background goes first like anybody when it asks for more."""
    engine = SimulatedEngine(machine(400), order="fair", max_running=2)
    for number in range(4):
        engine.submit(request(f"b{number}", "batcher", output=100, background=True))
    for _ in range(30):
        engine.step()
    foreground = engine.core.queue.foreground
    assert "batcher" not in {account.tenant for account in foreground.accounts}  # type: ignore[attr-defined]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 30))])
def test_random_traffic_of_both_classes(order: str, seed: int) -> None:
    rnd = random.Random(seed)
    engine = SimulatedEngine(
        machine(rnd.randint(14, 90), 6, rnd),
        order=order,
        step_tokens=rnd.choice([8, 64]),
        max_running=rnd.randint(1, 9),
    )
    trace, sent = Trace(engine, rnd, {"a": 1.0, "b": 2.0}), 0
    for _ in trace.play(150):
        if rnd.random() < 0.2:
            sent += 1
            engine.submit(
                request(f"b{sent}", rnd.choice("ab"), rnd.randint(1, 50), rnd.randint(1, 30), background=True)
            )
        engine.core.allocator.check()
    while engine.has_work():
        engine.step()
        engine.core.allocator.check()
    ids = [e.request.request_id for e in engine.ended]
    assert len(ids) == len(set(ids)) == engine.core.arrivals
    assert all(e.outcome == "finished" for e in engine.ended)


def test_it_waits_while_a_foreground_prompt_fills_steps() -> None:
    """A long prompt takes no more steps beside background sequences than alone, and these then go on."""
    steps = []
    for background in (0, 8):
        engine = SimulatedEngine(machine(400), max_running=16, step_tokens=32)
        for number in range(background):
            engine.submit(request(f"b{number}", "batcher", output=200, background=True))
        for _ in range(20):
            engine.step()
        engine.submit(request("now", "other", prompt=32 * 5, output=4))
        before, state = engine.steps, engine.core.requests["now"]
        while state.first_token is None:
            engine.step()
            engine.core.check()
        steps.append(engine.steps - before)
        while engine.has_work():
            engine.step()
        assert len(engine.ended) == background + 1
    assert steps[0] == steps[1]
