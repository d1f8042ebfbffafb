"""Admission: predictions come true, what cannot be in time is refused early, and deadlines hold."""

from __future__ import annotations

import dataclasses
import random

import pytest
from lorikeet_testing.traffic import machine, request

from lora_engine.request import ChoiceSoFar
from lora_engine.scheduling.admissions import admissions
from lora_engine.scheduling.registry import UnknownPolicy
from lora_engine.scheduling.step_cost import StepCost, Work
from lora_engine.simulation import SimulatedEngine


def arrivals(rate: float, seconds: float, seed: int = 0, **slo: int) -> list[tuple[float, object]]:
    rnd, now, out = random.Random(seed), 0.0, []
    while now < seconds:
        now += rnd.expovariate(rate)
        number = len(out)
        out.append((now, request(number, f"t{number % 5}", rnd.randint(10, 60), rnd.randint(5, 60), **slo)))
    return out


def test_a_wrong_name_lists_the_right_ones() -> None:
    with pytest.raises(UnknownPolicy, match="all, early_abort, slo"):
        admissions.create("sol")


def test_step_times_are_learned_and_followed_when_they_change() -> None:
    rnd, cost = random.Random(1), StepCost()

    def truth(work: Work, factor: float) -> float:
        return factor * (0.005 + 4e-5 * work.decoding + 2e-5 * work.prompt_tokens + 1e-8 * work.context_tokens)

    for factor in (1.0, 2.0):
        for _ in range(3000):
            decoding = rnd.randint(0, 256)
            work = Work(decoding, rnd.choice([0, 0, 256, 1024]), decoding * rnd.randint(100, 2000))
            cost.observe(work, truth(work, factor) * rnd.uniform(0.97, 1.03))
        for work in (Work(1, 0, 100), Work(256, 0, 200_000), Work(100, 1000, 50_000)):
            assert cost.seconds(work) == pytest.approx(truth(work, factor), rel=0.1)


@pytest.mark.parametrize("order", ["fair", "fcfs"])
@pytest.mark.parametrize("rate", [20.0, 40.0])
def test_first_token_times_under_overload_are_predicted(order: str, rate: float) -> None:
    engine = SimulatedEngine(machine(400), order=order, max_running=16, prefix_cache=False)
    engine.run(arrivals(rate, 60.0, first_token_ms=3000))
    accuracy = engine.core.forecast.accuracy
    assert accuracy.requests > 400
    assert accuracy.p90 < 0.35 and accuracy.median < 0.12


def test_what_is_admitted_is_in_time_and_the_rest_is_refused_at_once() -> None:
    engine = SimulatedEngine(machine(400), max_running=16, prefix_cache=False)
    ended = engine.run(arrivals(60.0, 60.0, first_token_ms=2000))
    refused = [e for e in ended if e.outcome == "refused"]
    served = [e for e in ended if e.outcome == "finished"]
    late = [e for e in served if e.first_token is not None and e.first_token - e.submitted > 2.0]
    assert len(refused) > 500 and len(late) < 0.05 * len(served)
    assert all(e.error is not None and e.error.code == "slo_unattainable" for e in refused)
    assert all(e.error is not None and e.error.retry_after_ms >= 100 for e in refused)
    at_once = [e for e in refused if e.ended - e.submitted < 0.1]
    assert len(at_once) > 0.7 * len(refused)


def test_without_a_target_nothing_is_refused() -> None:
    engine = SimulatedEngine(machine(400), max_running=16, prefix_cache=False)
    assert {e.outcome for e in engine.run(arrivals(60.0, 20.0))} == {"finished"}


@pytest.mark.parametrize("admission", ["all", "slo", "early_abort"])
def test_a_deadline_ends_the_wait(admission: str) -> None:
    engine = SimulatedEngine(machine(), max_running=1, admission=admission)
    engine.submit(request("long", output=200))
    engine.step()
    engine.submit(request("short", deadline_ms=500))
    ended = {e.request.request_id: e for e in engine.run([])}
    error = ended["short"].error
    assert error is not None and error.code == "deadline_exceeded"
    assert ended["short"].ended == pytest.approx(0.5, abs=0.05)
    assert ended["long"].outcome == "finished"


def test_early_abort_gives_up_half_a_second_before_the_target() -> None:
    engine = SimulatedEngine(machine(), max_running=1, admission="early_abort", order="early_abort")
    engine.submit(request("long", output=1000))
    engine.step()
    engine.submit(request("waits"))
    engine.submit(request("hurries", first_token_ms=2000))
    ended = {e.request.request_id: e.ended for e in engine.run([]) if e.outcome == "refused"}
    assert ended["waits"] == pytest.approx(5.5, abs=0.05) and ended["hurries"] == pytest.approx(1.5, abs=0.05)


@pytest.mark.parametrize("admission", ["slo", "early_abort"])
def test_an_answer_that_another_host_began_is_not_refused(admission: str) -> None:
    """Its first token has come: no target can be missed any more."""
    engine = SimulatedEngine(machine(), max_running=1, admission=admission)
    engine.run(arrivals(20.0, 5.0))
    engine.submit(request("long", output=1000))
    engine.step()
    late = {"first_token_ms": 600, "deadline_ms": 700}
    engine.submit(dataclasses.replace(request("resumed", **late), so_far=(ChoiceSoFar(0, [5, 6]),)))
    engine.submit(request("new", **late))
    ended = {e.request.request_id: e.outcome for e in engine.run([])}
    assert (ended["resumed"], ended["new"]) == ("finished", "refused")
