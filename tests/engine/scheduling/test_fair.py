"""Fair shares: the bound on the service gap, weights, lifts, caps and what comes first inside a tenant."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from lorikeet_testing.traffic import Trace, machine, request

from lora_engine.request import ChoiceSoFar
from lora_engine.scheduling.queue_policies import accounts
from lora_engine.scheduling.queue_policies.fair import Fair
from lora_engine.simulation import SimulatedAdapter, SimulatedEngine


class GapMeter:
    """The largest spread of the difference in service per weight of two tenants while both are backlogged."""

    def __init__(self, engine: SimulatedEngine) -> None:
        assert isinstance(engine.core.queue.foreground, Fair)
        self.engine, self.order = engine, engine.core.queue.foreground
        self.spans: dict[tuple[str, str], tuple[float, float]] = {}
        self.widest = 0.0
        self.widest_share = 0.0  # of the bound that is reported
        self.liability = 0.0  # U: what one tenant's requests in a batch may still cost it, per weight
        self._before: dict[str, float] = {}

    def look(self) -> None:
        accounts = sorted(self.order.accounts, key=lambda a: a.tenant)
        owed = Counter[str]()
        for sequence in self.engine.core.scheduler.running:
            price_in, price_out = self.order.prices.of(sequence)
            prompt_left = max(0, sequence.num_prompt - max(sequence.charged, sequence.num_computed))
            output_left = sequence.max_tokens - sequence.num_output
            owed[sequence.request.tenant] += prompt_left * price_in + output_left * price_out  # type: ignore[assignment]
        for account in accounts:
            spent = account.service - self._before.get(account.tenant, 0.0)
            self.liability = max(self.liability, (owed[account.tenant] + spent) / account.weight)
            self._before[account.tenant] = account.service
        for index, one in enumerate(accounts):
            for other in accounts[index + 1 :]:
                self._pair(one.tenant, other.tenant)

    def _pair(self, one: str, other: str) -> None:
        a, b = self.order.accounts[one], self.order.accounts[other]
        if not (a.waiting and b.waiting):
            self.spans.pop((one, other), None)
            return
        gap = a.service / a.weight - b.service / b.weight
        low, high = self.spans.get((one, other), (gap, gap))
        self.spans[one, other] = low, high = min(low, gap), max(high, gap)
        self.widest = max(self.widest, high - low)
        self.widest_share = max(self.widest_share, (high - low) / self.order.gap_bound(a, b))


@pytest.mark.parametrize(
    ("batch", "traces"), [(0, 40), *(pytest.param(batch, 100, marks=pytest.mark.long) for batch in range(20))]
)
def test_the_service_gap_between_backlogged_tenants_stays_within_twice_the_batch(batch: int, traces: int) -> None:
    preemptions = hits = 0
    for seed in range(traces):
        rnd = random.Random(batch * 1000 + seed)
        engine = SimulatedEngine(
            machine(rnd.randint(14, 90), rnd.choice([0, 6]), rnd),
            step_tokens=rnd.choice([8, 32, 256]),
            max_running=rnd.randint(1, 16),
            fair_slack=rnd.choice([0.0, 0.1]),
            prefix_cache=rnd.random() < 0.5,
            starvation_s=rnd.choice([0.05, 10.0]),
        )
        weights = {f"t{n}": rnd.choice([1.0, 1.0, 2.0, 4.0]) for n in range(rnd.randint(2, 5))}
        meter = GapMeter(engine)
        for _ in Trace(engine, rnd, weights).play(150):
            meter.look()
        slack = engine.config.fair_slack * 2.0 * engine.core.allocator.total * 16
        assert meter.widest <= 2 * (meter.liability + slack) + 1e-6
        assert meter.widest_share <= 1
        preemptions += sum(e.usage.preemptions for e in engine.ended)
        hits += sum(e.usage.cached_prompt_tokens for e in engine.ended)
    assert preemptions, "the traces must reach pre-emption"
    assert hits, "the traces must reach cached prefixes"


def served(engine: SimulatedEngine) -> dict[str, int]:
    tokens = Counter[str]()
    for ended in engine.ended:
        tokens[ended.request.tenant] += ended.usage.completion_tokens
    return dict(tokens)


def test_backlogged_tenants_are_served_by_weight() -> None:
    engine = SimulatedEngine(machine(), max_running=8)
    for number in range(4000):
        tenant = number % 4
        engine.submit(request(number, f"t{tenant}", weight=tenant + 1.0))
    engine.run([], until=15.0)
    tokens = served(engine)
    shares = [tokens[f"t{n}"] / sum(tokens.values()) for n in range(4)]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.01)


def test_time_away_earns_nothing() -> None:
    engine = SimulatedEngine(machine(), max_running=4)
    for number in range(2000):
        engine.submit(request(f"busy{number}", "busy"))
    engine.run([], until=20.0)
    before = served(engine).get("busy", 0)
    for number in range(2000):
        engine.submit(request(f"back{number}", "back"))
    engine.run([], until=40.0)
    tokens = served(engine)
    assert tokens["back"] == pytest.approx(tokens["busy"] - before, rel=0.05)


def test_a_flood_does_not_delay_who_asks_for_little() -> None:
    engine = SimulatedEngine(machine(), max_running=4)
    arrivals = [(0.0, request(f"flood{n}", "flood")) for n in range(3000)]
    arrivals += [(1.0 + n, request(f"modest{n}", "modest")) for n in range(20)]
    engine.run(arrivals, until=30.0)
    waits = [e.first_token - e.submitted for e in engine.ended if e.request.tenant == "modest" and e.first_token]
    assert len(waits) == 20 and max(waits) < 0.5


def test_a_tenants_cap_holds_and_costs_others_nothing() -> None:
    engine = SimulatedEngine(machine(), max_running=8)
    for number in range(100):
        engine.submit(request(f"capped{number}", "capped", max_running=2))
        engine.submit(request(f"free{number}", "free"))
    most = Counter[str]()
    while engine.has_work():
        running = Counter(s.request.tenant for s in engine.step())
        most |= running
        assert isinstance(engine.core.queue.foreground, Fair)
        if engine.core.queue.foreground.accounts["free"].waiting:
            assert sum(running.values()) == 8
    assert most == {"capped": 2, "free": 6}


def test_inside_a_tenant_priority_then_deadline_then_age() -> None:
    engine = SimulatedEngine(machine(), max_running=1)
    for name, slo in (
        ("old", {}), ("late", {"deadline_ms": 60_000}), ("soon", {"first_token_ms": 30_000}), ("vip", {"priority": 1})
    ):  # fmt: skip
        engine.submit(request(name, **slo))
    engine.run([])
    assert [e.request.request_id for e in engine.ended] == ["vip", "soon", "late", "old"]


def test_inside_a_tenant_what_another_host_began_goes_before_what_is_to_begin() -> None:
    """Somebody reads it already. Neither its adapter nor a deadline of others keeps it waiting, only priority does."""
    tier = machine(40)
    tier.adapters = [SimulatedAdapter("here", 8, 20), SimulatedAdapter("away", 8, 20)]
    engine = SimulatedEngine(tier, max_running=1)
    engine.submit(request("first", adapter="here"))
    engine.step()
    engine.submit(request("soon", adapter="here", first_token_ms=30_000))
    engine.submit(replace(request("resumed", adapter="away"), so_far=(ChoiceSoFar(0, [5, 6]),)))
    engine.submit(request("vip", priority=1))
    engine.run([])
    assert [e.request.request_id for e in engine.ended] == ["first", "vip", "resumed", "soon"]


def test_adapters_on_the_device_go_first_but_not_for_ever() -> None:
    """Two adapters, room for one: the second waits while the first has requests, until the bound."""
    large = machine(40)
    large.adapters = [SimulatedAdapter("here", 8, 20), SimulatedAdapter("away", 8, 20)]
    engine = SimulatedEngine(large, max_running=2, starvation_s=2.0, prefetch=0)
    engine.submit(request("first", adapter="here"))
    engine.step()
    engine.submit(request("passed", adapter="away"))
    arrivals = [(0.05 * n, request(n, adapter="here")) for n in range(1, 200)]
    ended = {e.request.request_id: e for e in engine.run(arrivals)}
    start = ended["passed"].first_token
    assert start is not None
    assert 2.0 < start < 2.6, "it waited for its turn, and was not passed any longer than that"


def test_who_gives_way_is_the_newest_of_the_most_served() -> None:
    engine = SimulatedEngine(machine(30), max_running=8, prefix_cache=False)
    for number in range(4):
        engine.submit(request(f"big{number}", "big", 40, 60))
    engine.step()
    engine.submit(request("small", "small", 10, 60))
    while engine.has_work():
        engine.step()
    preempted = {e.request.request_id for e in engine.ended if e.usage.preemptions}
    assert "small" not in preempted and "big3" in preempted


def test_tenants_that_never_return_are_forgotten_and_those_with_debts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_SWEEP", 8)
    engine = SimulatedEngine(machine(), max_running=4)
    engine.core.queue.foreground.accounts._sweep_at = 8  # type: ignore[attr-defined]
    engine.submit(request("heavy", "heavy", 50, 500))
    for number in range(100):
        engine.submit(request(number, f"passer-by{number}", 1, 1))
        engine.step()
    assert isinstance(engine.core.queue.foreground, Fair)
    names = {account.tenant for account in engine.core.queue.foreground.accounts}
    assert "heavy" in names and len(names) < 40
