"""One suite for both limiters, and both side by side through random requests by one clock."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_plane.billing.limits.values import Counted, Limits
from control_plane.billing.quotas import redis_limiter
from control_plane.billing.quotas.limiter_interface import (
    BUSY_WAIT_MS,
    DAY_MS,
    LEASE_MS,
    UNRENEWED_MS,
    BudgetPeriod,
    Decision,
    Limiter,
    LimiterUnavailableError,
    ReservationRequest,
    Scope,
    Spent,
    UnknownSpendingError,
    period_of,
)
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.redis_limiter import RedisLimiter

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")
NOON = 1_779_451_200_000  # 2026-05-22 12:00 UTC
MINUTE = 65_000


# A machine that stands still for a moment is no server that is away.
PATIENT = {"TIMEOUT_S": 20.0, "QUEUE_S": 60.0}


class Clock:
    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in PATIENT.items():
        monkeypatch.setattr(redis_limiter, name, seconds)


@pytest_asyncio.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def limiter(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Limiter]:
    made: Limiter = MemoryLimiter(clock) if request.param == "memory" else RedisLimiter(REDIS_URL, clock)
    yield made
    await made.close()


def ask(tenant: str, tokens: int = 10, lease: str = "", key: Limits | None = None, **limits: int) -> ReservationRequest:
    scopes = [Scope("tenant", Limits(**limits))]
    if key is not None:
        scopes.append(Scope("k1", key))
    return ReservationRequest(lease or uuid.uuid4().hex, tenant, tuple(scopes), tokens)


def refused(decision: Decision) -> Counted | None:
    return decision.refusal.limit if decision.refusal else None


async def test_requests_of_a_minute(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    for _ in range(3):
        assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=3))) is None
        clock.now += 10_000
    fourth = await limiter.reserve(ask(tenant_id, requests_per_minute=3))
    assert fourth.refusal is not None
    assert (fourth.refusal.limit, fourth.refusal.allowed, fourth.refusal.used) == ("requests_per_minute", 3, 3)
    clock.now += fourth.refusal.wait_ms - 1
    assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=3))) == Counted.REQUESTS_PER_MINUTE
    clock.now += 1
    assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=3))) is None
    assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=3))) == Counted.REQUESTS_PER_MINUTE


async def test_choices_count_against_concurrency(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    first = replace(ask(tenant_id, concurrency=8), choices=5)
    assert refused(await limiter.reserve(first)) is None
    second = await limiter.reserve(replace(ask(tenant_id, concurrency=8), choices=4))
    assert second.refusal is not None
    assert (second.refusal.limit, second.refusal.used, second.refusal.requested) == ("concurrency", 5, 4)
    third = replace(ask(tenant_id, concurrency=8), choices=3)
    assert refused(await limiter.reserve(third)) is None
    await limiter.settle(first, 10)
    assert (await limiter.read(tenant_id, third.scopes))[0].open == 3
    clock.now += LEASE_MS  # nobody renewed
    assert (await limiter.read(tenant_id, third.scopes))[0].open == 0


async def test_the_wait_for_a_place_is_until_one_may_be_free(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    """Soon while the processes of the running requests renew their leases; else when these expire."""
    lost = [replace(ask(tenant_id, concurrency=3, lease=f"lost-{number}"), choices=1) for number in range(2)]
    kept = ask(tenant_id, concurrency=3, lease="kept")
    for one in (lost[0], lost[1], kept):
        assert refused(await limiter.reserve(one)) is None
        clock.now += 1_000
    clock.now += UNRENEWED_MS
    await limiter.renew(tenant_id, ["kept"])
    waits = [await limiter.reserve(replace(kept, lease="next", choices=choices)) for choices in (1, 2, 3)]
    expiry = NOON + LEASE_MS - clock.now
    assert [wait.refusal and wait.refusal.wait_ms for wait in waits] == [BUSY_WAIT_MS, expiry, expiry + 1_000]
    clock.now += expiry
    assert refused(await limiter.reserve(replace(kept, lease="next", choices=1))) is None


async def test_tokens_are_held_then_settled(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    first = ask(tenant_id, 80, tokens_per_minute=100)
    assert (await limiter.reserve(first)).readings[0].tokens == 80
    second = ask(tenant_id, 50, tokens_per_minute=100)
    assert refused(await limiter.reserve(second)) == Counted.TOKENS_PER_MINUTE
    assert await limiter.settle(first, 30)
    assert refused(await limiter.reserve(second)) is None
    assert (await limiter.read(tenant_id, second.scopes))[0].tokens == 80
    assert await limiter.settle(second, 90)  # more than was asked for counts too
    assert (await limiter.read(tenant_id, second.scopes))[0].tokens == 120
    clock.now += MINUTE
    assert (await limiter.read(tenant_id, second.scopes))[0].tokens == 0


async def test_settled_once(limiter: Limiter, tenant_id: str) -> None:
    one = ask(tenant_id, 80, tokens_per_minute=100)
    await limiter.reserve(one)
    assert [await limiter.settle(one, 30), await limiter.settle(one, 30)] == [True, False]
    reading = (await limiter.read(tenant_id, one.scopes))[0]
    assert (reading.tokens, reading.open) == (30, 0)


async def test_a_repeated_reservation_counts_once(limiter: Limiter, tenant_id: str) -> None:
    one = ask(tenant_id, 80, requests_per_minute=5, tokens_per_minute=100)
    await limiter.reserve(one)
    again = await limiter.reserve(one)
    assert refused(again) is None
    assert (again.readings[0].requests, again.readings[0].tokens, again.readings[0].open) == (1, 80, 1)


async def test_concurrency_is_leases_that_expire(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    asks = [ask(tenant_id, concurrency=2) for _ in range(3)]
    assert [refused(await limiter.reserve(each)) for each in asks] == [None, None, Counted.CONCURRENCY]
    clock.now += LEASE_MS - 1
    await limiter.renew(tenant_id, [asks[0].lease])
    clock.now += 1  # the second expires, the first was renewed
    assert (await limiter.read(tenant_id, asks[0].scopes))[0].open == 1
    assert refused(await limiter.reserve(asks[2])) is None
    assert not await limiter.settle(asks[1], 5)
    await limiter.renew(tenant_id, [asks[1].lease])
    assert (await limiter.read(tenant_id, asks[0].scopes))[0].open == 2
    assert await limiter.settle(asks[0], 5)
    assert (await limiter.read(tenant_id, asks[0].scopes))[0].open == 1


async def test_all_scopes_or_none(limiter: Limiter, tenant_id: str) -> None:
    def both() -> ReservationRequest:
        return ask(tenant_id, 10, key=Limits(requests_per_minute=1), requests_per_minute=5, tokens_per_minute=1000)

    assert refused(await limiter.reserve(both())) is None
    second = await limiter.reserve(both())
    assert second.refusal is not None and second.refusal.scope.name == "k1"
    of_tenant, of_key = await limiter.read(tenant_id, both().scopes)
    assert (of_tenant.requests, of_tenant.tokens, of_tenant.open) == (1, 10, 1)
    assert (of_key.requests, of_key.tokens, of_key.open) == (1, 10, 1)


async def test_the_longest_wait_is_told(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    await limiter.raise_to(tenant_id, period_of(clock.now), [Spent("tenant", 95, 95)])
    decision = await limiter.reserve(ask(tenant_id, 10, requests_per_minute=0, tokens_per_day=100))
    assert decision.refusal is not None
    assert decision.refusal.limit == Counted.TOKENS_PER_DAY
    assert decision.refusal.wait_ms == DAY_MS // 2


async def test_budgets_ask_for_the_ledger_first(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    one = ask(tenant_id, 10, tokens_per_day=100, tokens_per_month=1000)
    with pytest.raises(UnknownSpendingError) as unknown:
        await limiter.reserve(one)
    assert unknown.value.period == period_of(clock.now)
    assert (await limiter.read(tenant_id, one.scopes))[0].requests == 0
    await limiter.raise_to(tenant_id, unknown.value.period, [Spent("tenant", 85, 985)])
    reading = (await limiter.reserve(one)).readings[0]
    assert (reading.day, reading.month) == (95, 995)
    assert refused(await limiter.reserve(ask(tenant_id, 6, tokens_per_month=1000))) == Counted.TOKENS_PER_MONTH
    await limiter.settle(one, 4)
    assert (await limiter.reserve(ask(tenant_id, 6, tokens_per_month=1000))).readings[0].month == 995


async def test_counters_rise_to_the_ledger_and_never_sink(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    period, scopes = period_of(clock.now), (Scope("tenant", Limits()),)
    for day, seen in ((50, 50), (20, 50), (70, 70)):
        await limiter.raise_to(tenant_id, period, [Spent("tenant", day, day)])
        assert (await limiter.read(tenant_id, scopes))[0].day == seen


async def test_what_the_ledger_has_of_a_request_that_runs_is_not_counted_twice(
    limiter: Limiter, clock: Clock, tenant_id: str
) -> None:
    """Each prompt of a request is a row when it ends; the reservation is settled with the last one."""
    period, request = period_of(clock.now), ask(tenant_id, 100, tokens_per_day=1000)
    await limiter.raise_to(tenant_id, period, [Spent("tenant", 0, 0)])
    await limiter.reserve(request)
    await limiter.raise_to(tenant_id, period, [Spent("tenant", 40, 40)])
    await limiter.settle(request, 80)
    assert (await limiter.read(tenant_id, request.scopes))[0].day == 80
    other = ask(tenant_id, 10, tokens_per_day=1000)
    await limiter.reserve(other)
    await limiter.raise_to(tenant_id, period, [Spent("tenant", 150, 150)])
    reading = (await limiter.read(tenant_id, request.scopes))[0]
    assert (reading.day, reading.month) == (150, 150), "no less than the ledger, with what is reserved"


async def test_a_new_day_begins_at_nothing_and_charges_the_old_one(
    limiter: Limiter, clock: Clock, tenant_id: str
) -> None:
    late = ask(tenant_id, 10, tokens_per_day=100)
    await limiter.raise_to(tenant_id, period_of(clock.now), [Spent("tenant", 0, 0)])
    await limiter.reserve(late)
    clock.now += DAY_MS
    await limiter.renew(tenant_id, [late.lease])
    with pytest.raises(UnknownSpendingError):
        await limiter.reserve(ask(tenant_id, 10, tokens_per_day=100))
    await limiter.raise_to(tenant_id, period_of(clock.now), [Spent("tenant", 0, 0)])
    assert (await limiter.read(tenant_id, late.scopes))[0].day == 0


async def test_tenants_are_apart(limiter: Limiter, tenant_id: str) -> None:
    other = uuid.uuid4().hex
    await limiter.reserve(ask(tenant_id, requests_per_minute=1))
    assert refused(await limiter.reserve(ask(other, requests_per_minute=1))) is None


async def test_unknown_spending_is_told_as_such(limiter: Limiter, tenant_id: str) -> None:
    reading = (await limiter.read(tenant_id, (Scope("tenant", Limits()),)))[0]
    assert (reading.day, reading.month) == (None, None)


async def test_two_hundred_at_once_pass_fifty(limiter: Limiter, tenant_id: str) -> None:
    decisions = await asyncio.gather(*(limiter.reserve(ask(tenant_id, requests_per_minute=50)) for _ in range(200)))
    assert sum(decision.refusal is None for decision in decisions) == 50


def _ask_many(tenant: str, limit: dict[str, int], ready: Any, out: Any) -> None:
    async def run() -> int:
        vars(redis_limiter).update(PATIENT)  # in a process of its own
        limiter = RedisLimiter(REDIS_URL)
        try:
            decisions = await asyncio.gather(*(limiter.reserve(ask(tenant, 10, **limit)) for _ in range(100)))
        finally:
            await limiter.close()
        return sum(decision.refusal is None for decision in decisions)

    ready.wait()
    out.put(asyncio.run(run()))


@pytest.mark.services
@pytest.mark.parametrize(
    "limit", [{"requests_per_minute": 50}, {"tokens_per_minute": 509}, {"concurrency": 50}], ids=str
)
def test_two_processes_pass_fifty_of_two_hundred(tenant_id: str, limit: dict[str, int]) -> None:
    context = multiprocessing.get_context("spawn")
    ready, out = context.Barrier(2), context.Queue()
    asking = [context.Process(target=_ask_many, args=(tenant_id, limit, ready, out)) for _ in range(2)]
    for process in asking:
        process.start()
    passed = [out.get(timeout=60) for _ in asking]
    for process in asking:
        process.join(10)
    assert sum(passed) == 50


@pytest.mark.services
async def test_a_burst_waits_in_line(tenant_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than the server may take for one answer."""
    monkeypatch.setattr(redis_limiter, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(redis_limiter, "TIMEOUT_S", 1.0)
    limiter = RedisLimiter(REDIS_URL)
    pool = limiter._redis.connection_pool
    only = await pool.get_connection()
    line = asyncio.gather(*(limiter.reserve(ask(tenant_id, requests_per_minute=50)) for _ in range(200)))
    await asyncio.sleep(1.5 * redis_limiter.TIMEOUT_S)
    assert not line.done()
    await pool.release(only)
    decisions = await line
    await limiter.close()
    assert sum(decision.refusal is None for decision in decisions) == 50


async def test_a_server_that_is_away() -> None:
    limiter = RedisLimiter("redis://127.0.0.1:1")
    with pytest.raises(LimiterUnavailableError):
        await limiter.reserve(ask("t"))
    await limiter.close()


CAPS = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(0, 6),
    tokens_per_minute=st.none() | st.integers(0, 200),
    tokens_per_day=st.none() | st.integers(0, 400),
    tokens_per_month=st.none() | st.integers(0, 800),
    concurrency=st.none() | st.integers(0, 4),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 9), st.tuples(st.integers(0, 90), st.integers(1, 3))),
        st.tuples(st.just("settle"), st.integers(0, 9), st.none() | st.integers(0, 120)),
        st.tuples(st.just("renew"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("sleep"), st.just(0), st.sampled_from([1, 700, 5_000, 31_000, 66_000, DAY_MS, 20 * DAY_MS])),
        st.tuples(st.just("raise"), st.just(0), st.integers(0, 300)),
    ),
    max_size=40,
)


@pytest.mark.services
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(of_tenant=CAPS, of_key=CAPS, steps=STEPS, start=st.integers(0, 400 * DAY_MS))
def test_both_decide_alike(of_tenant: Limits, of_key: Limits, steps: list[Any], start: int) -> None:
    async def run() -> None:
        clock, tenant = Clock(NOON + start), uuid.uuid4().hex
        twins: list[Limiter] = [MemoryLimiter(clock), RedisLimiter(REDIS_URL, clock)]
        base = ReservationRequest("", tenant, (Scope("tenant", of_tenant), Scope("k1", of_key)), 0)
        try:
            for kind, lease, value in steps:
                if kind == "sleep":
                    clock.now += value
                    continue
                memory, shared = [await step(twin, clock, base, kind, f"l{lease}", value) for twin in twins]
                assert memory == shared, (kind, lease, value)
        finally:
            for twin in twins:
                await twin.close()

    asyncio.run(run())


async def step(limiter: Limiter, clock: Clock, base: ReservationRequest, kind: str, lease: str, value: Any) -> Any:
    if kind == "reserve":
        try:
            return await limiter.reserve(replace(base, lease=lease, tokens=value[0], choices=value[1]))
        except UnknownSpendingError as unknown:
            return unknown.period
    if kind == "settle":
        return await limiter.settle(replace(base, lease=lease), value)
    if kind == "renew":
        await limiter.renew(base.tenant, [lease])
    else:
        spent = [Spent("tenant", value, value * 2), Spent("k1", value // 2, value)]
        await limiter.raise_to(base.tenant, period_of(clock.now), spent)
    return await limiter.read(base.tenant, base.scopes)


# -- a clock that steps ------------------------------------------------------------------------------------------------

HOUR_MS, DAYS_40_MS = 3_600_000, 40 * DAY_MS


@pytest.mark.parametrize("step", [-HOUR_MS, HOUR_MS, -DAYS_40_MS, DAYS_40_MS])
async def test_a_step_of_the_clock_frees_what_was_used_up(
    limiter: Limiter, clock: Clock, tenant_id: str, step: int
) -> None:
    """What was counted later than now is dropped, and a lease lives no longer than its usual life."""
    limits = {"requests_per_minute": 2, "tokens_per_minute": 100, "concurrency": 2}
    for _ in range(2):
        assert refused(await limiter.reserve(ask(tenant_id, 50, **limits))) is None
    assert refused(await limiter.reserve(ask(tenant_id, 50, **limits))) is not None
    clock.now += step
    running = (await limiter.read(tenant_id, (Scope("tenant", Limits()),)))[0]
    assert (running.requests, running.tokens) == (0, 0)
    assert running.open == (2 if step < 0 else 0), "requests that run keep their lease while it is renewed"
    clock.now += LEASE_MS
    after = await limiter.reserve(ask(tenant_id, 50, **limits))
    assert refused(after) is None
    assert (after.readings[0].requests, after.readings[0].open) == (1, 1)


@pytest.mark.parametrize("step", [-HOUR_MS, HOUR_MS, -DAYS_40_MS, DAYS_40_MS])
async def test_a_step_of_the_clock_leaves_no_wait_longer_than_the_window(
    limiter: Limiter, clock: Clock, tenant_id: str, step: int
) -> None:
    assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=1))) is None
    clock.now += step
    assert refused(await limiter.reserve(ask(tenant_id, requests_per_minute=1))) is None
    second = await limiter.reserve(ask(tenant_id, requests_per_minute=1))
    assert second.refusal is not None and 0 < second.refusal.wait_ms <= MINUTE


async def test_spending_of_days_to_come_is_forgotten(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    """The clock was ahead for a moment: what was counted then is no spending of that day once it comes."""
    clock.now += DAY_MS
    await limiter.raise_to(tenant_id, period_of(clock.now), [Spent("tenant", 0, 0)])
    request = ask(tenant_id, 90, tokens_per_day=100)
    assert refused(await limiter.reserve(request)) is None
    await limiter.settle(request, 90)
    clock.now -= DAY_MS
    await limiter.raise_to(tenant_id, period_of(clock.now), [Spent("tenant", 5, 5)])
    clock.now += DAY_MS
    with pytest.raises(UnknownSpendingError):
        await limiter.reserve(ask(tenant_id, 90, tokens_per_day=100))


async def test_months_are_those_of_the_calendar(limiter: Limiter, clock: Clock, tenant_id: str) -> None:
    leap_day = (date(2028, 2, 29) - date(1970, 1, 1)).days
    for day in (*range(0, 60_000, 997), *range(20_500, 20_560), leap_day - 1, leap_day, leap_day + 1):
        clock.now, of_day = day * DAY_MS + 1, f"{tenant_id}-{day}"
        today = date(1970, 1, 1) + timedelta(days=day)
        assert await limiter.period() == period_of(clock.now)
        assert period_of(clock.now).month == (today.replace(day=1) - date(1970, 1, 1)).days
        with pytest.raises(UnknownSpendingError) as unknown:
            await limiter.reserve(ask(of_day, 1, tokens_per_month=0))
        assert unknown.value.period == period_of(clock.now)
        await limiter.raise_to(of_day, unknown.value.period, [Spent("tenant", 0, 0)])
        refusal = (await limiter.reserve(ask(of_day, 1, tokens_per_month=0))).refusal
        assert refusal is not None
        following = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        assert refusal.wait_ms == (following - date(1970, 1, 1)).days * DAY_MS - clock.now


@pytest.mark.services
async def test_the_month_is_that_of_redis_whatever_the_clock_of_this_process(
    monkeypatch: pytest.MonkeyPatch, tenant_id: str
) -> None:
    limiter = RedisLimiter(REDIS_URL)
    try:
        before = await limiter.period()
        for step in (-DAYS_40_MS, -HOUR_MS, HOUR_MS, DAYS_40_MS):
            monkeypatch.setattr(time, "time", lambda step=step, now=time.time: now() + step / 1000)
            monkeypatch.setattr(time, "time_ns", lambda step=step, now=time.time_ns: now() + step * 1_000_000)
            assert await limiter.period() in (before, BudgetPeriod(before.day + 1, before.month))
            with pytest.raises(UnknownSpendingError) as unknown:
                await limiter.reserve(ask(tenant_id + str(step), 1, tokens_per_month=5))
            await limiter.raise_to(tenant_id + str(step), unknown.value.period, [Spent("tenant", 0, 0)])
            assert refused(await limiter.reserve(ask(tenant_id + str(step), 1, tokens_per_month=5))) is None
            monkeypatch.undo()
    finally:
        await limiter.close()
