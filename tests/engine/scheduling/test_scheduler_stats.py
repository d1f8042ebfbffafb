"""Operators see who gets what, and why a request waits."""

from __future__ import annotations

import pytest
from lorikeet_testing.traffic import machine, request

from lora_engine.scheduling.scheduler_stats import QueueReport, SchedulerStats
from lora_engine.simulation import SimulatedAdapter, SimulatedEngine


def reasons(engine: SimulatedEngine) -> dict[str, str]:
    stats = SchedulerStats(engine.core.scheduler, engine.clock)
    return {w.request_id: w.reason.code for w in stats.waiting("", 100)}


def test_each_reason_to_wait_has_its_name() -> None:
    small = machine(40)
    small.adapters = [SimulatedAdapter("far", 8, 2, on_disk=True), SimulatedAdapter("huge", 8, 30)]
    small.disk_s = 5.0
    engine = SimulatedEngine(small, max_running=6, prefetch=0)
    engine.submit(request("runs", "a", 60, 100, max_running=1))
    engine.submit(request("capped", "a", max_running=1))
    engine.submit(request("loading", "b", adapter="far"))
    engine.submit(request("large", "c", 160, 20, adapter="huge"))
    engine.step()
    assert reasons(engine) == {"capped": "tenant_cap", "loading": "adapter_loading", "large": "no_room"}
    (loading,) = SchedulerStats(engine.core.scheduler, engine.clock).waiting("b", 10)
    assert loading.reason.text == "adapter loading from disk, 0.5 s"


def test_a_full_batch_tells_quota_from_queue() -> None:
    engine = SimulatedEngine(machine(), max_running=2, guaranteed_share=0.0)  # nobody gives way
    for number in range(4):
        engine.submit(request(f"much{number}", "much", output=100))
    engine.step()
    engine.step()
    engine.submit(request("little", "little", 1, 100))
    engine.step()
    assert reasons(engine) == {"much2": "own_quota", "much3": "own_queue", "little": "batch_full"}


@pytest.mark.parametrize("order", ["fcfs", "lorax"])
def test_other_orders_tell_the_place_in_the_queue(order: str) -> None:
    engine = SimulatedEngine(machine(), max_running=1, order=order)
    for number in range(3):
        engine.submit(request(number))
    engine.step()
    stats = SchedulerStats(engine.core.scheduler, engine.clock)
    assert [w.reason.text for w in stats.waiting("", 10)] == ["the batch is full", "behind 1 requests"]


def test_shares_owed_and_received() -> None:
    engine = SimulatedEngine(machine(), max_running=8)
    stats = SchedulerStats(engine.core.scheduler, engine.clock)
    for number in range(3000):
        engine.submit(request(f"one{number}", "one", weight=1.0))
        engine.submit(request(f"three{number}", "three", weight=3.0))
    report = QueueReport((), 0, engine.core.forecast.accuracy)
    while engine.clock.now < 30.0:
        engine.step()
        report = stats.report(0, 100)
    gap = report.gap
    assert gap is not None
    assert {gap.ahead, gap.behind} == {"one", "three"}
    assert 0 <= gap.gap < gap.bound
    shares = {share.tenant: share for share in report.tenants}
    assert (shares["one"].owed, shares["three"].owed) == (0.25, 0.75)
    assert shares["one"].received == pytest.approx(0.25, abs=0.02)
    assert shares["three"].received == pytest.approx(0.75, abs=0.02)
    assert shares["one"].waiting > 0 and shares["one"].reason


def test_a_gap_is_between_two_that_could_run() -> None:
    engine = SimulatedEngine(machine(), max_running=1)
    stats = SchedulerStats(engine.core.scheduler, engine.clock)
    for number in range(3):
        engine.submit(request(f"one{number}", "one", output=50))
    engine.step()
    assert stats.report(0, 100).gap is None, "one alone has no gap"
    engine.submit(request("other", "other"))
    engine.submit(request("third", "third"))
    for _ in range(10):
        engine.step()
    gap = stats.report(0, 100).gap
    assert gap is not None and gap.ahead == "one" and gap.gap > 0


@pytest.mark.parametrize("order", ["fair", "fcfs"])
def test_what_one_who_came_now_would_wait(order: str) -> None:
    """A tenant of long standing waits behind its own queue; under the fair order a new one does not."""
    engine = SimulatedEngine(machine(), max_running=8, order=order)
    stats = SchedulerStats(engine.core.scheduler, engine.clock)
    assert stats.report(0, 100).newcomer is None, "nothing is known of step times"
    for number in range(400):
        engine.submit(request(f"much{number}", "much", output=50))
    while engine.clock.now < 3.0:
        engine.step()
    report = stats.report(0, 100)
    newcomer = report.newcomer
    assert newcomer is not None and newcomer.prompt_token_s > 0
    assert newcomer.free_places == 0
    assert newcomer.place_s == pytest.approx(engine.clock.now / len(engine.ended), rel=0.3), "one ends so often"
    expected = {"new": newcomer.seconds}
    if order == "fair":
        (much,) = report.tenants
        assert much.first_token_s is not None and newcomer.seconds < 0.2 * much.first_token_s
        expected["much"] = much.first_token_s
    now = engine.clock.now
    for tenant in expected:
        engine.submit(request(f"{tenant} probe", tenant, 1, 50))
    engine.run([])
    probes = [end for end in engine.ended if "probe" in end.request.request_id and end.first_token is not None]
    took = {end.request.tenant: (end.first_token or 0.0) - now for end in probes}
    for tenant, seconds in expected.items():
        assert seconds == pytest.approx(took[tenant], rel=0.5, abs=0.2), tenant
    idle = stats.report(0, 100).newcomer
    assert idle is not None and (idle.free_places, idle.place_s) == (8 - 1, 0.0)
