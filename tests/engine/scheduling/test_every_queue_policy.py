"""What holds under every order: no idle step beside work, nobody waits for ever, same input, same schedule."""

from __future__ import annotations

import random

import pytest
from lorikeet_testing.traffic import Trace, machine, request

from lora_engine.scheduling.queue_policies import queue_policies
from lora_engine.scheduling.sequence import Outcome
from lora_engine.simulation import SimulatedEngine

ORDERS = queue_policies.names()


def play(order: str, seed: int) -> SimulatedEngine:
    rnd = random.Random(seed)
    engine = SimulatedEngine(
        machine(rnd.randint(14, 90), 6, rnd, copy_page_s=rnd.choice([0.0, 0.01])),
        order=order,
        step_tokens=rnd.choice([8, 64, 256]),
        max_running=rnd.randint(1, 12),
        prefetch=rnd.choice([0, 4]),
    )
    for chunks in Trace(engine, rnd, {"a": 1.0, "b": 2.0, "c": 1.0}).play(200):
        engine.core.allocator.check()
        idle = sum(c.tokens for c in chunks.values()) < engine.config.step_tokens
        if idle and len(chunks) < engine.config.max_running and len(engine.core.queue):
            held = [s.last_outcome for s in engine.core.forecast.waiting()]
            assert set(held) & {Outcome.NO_ROOM, Outcome.LOADING}, "there was work, and nothing held it back"
    while engine.has_work():
        engine.step()
        engine.core.allocator.check()
    return engine


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 30))])
def test_no_work_is_left_lying_and_every_request_ends_once(order: str, seed: int) -> None:
    engine = play(order, seed)
    ids = [e.request.request_id for e in engine.ended]
    assert len(ids) == len(set(ids)) == engine.core.arrivals
    assert all(e.outcome == "finished" for e in engine.ended)


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_arrivals_give_the_same_schedule(order: str) -> None:
    first, second = (
        [(e.request.request_id, e.first_token, e.ended) for e in play(order, 5).ended] for _ in range(2)
    )  # fmt: skip
    assert first == second


@pytest.mark.parametrize("order", ORDERS)
def test_nobody_is_starved_by_a_steady_stream(order: str) -> None:
    """Arrivals at 150 % of what the engine can do; one early request of another tenant, with an adapter of its own."""
    engine = SimulatedEngine(machine(60, 6), order=order, max_running=4, starvation_s=1.0, step_tokens=64)
    arrivals = [(0.02 * n, request(n, "many", adapter=f"a{n % 3}")) for n in range(3000)]
    arrivals.insert(20, (0.39, request("lonely", "one", 40, 10, "a5")))
    ended = {e.request.request_id: e for e in engine.run(arrivals, until=50.0)}
    lonely = ended.get("lonely")
    assert lonely is not None and lonely.first_token is not None
    older = sum(1 for at, _ in arrivals if at < 0.39)
    assert lonely.first_token - 0.39 < 1.0 + 2 * older * 0.15
