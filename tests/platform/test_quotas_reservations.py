"""Reservations of one event loop: settled once whatever ends them, and what happens when the counters are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from unittest.mock import patch

import pytest
import pytest_asyncio

from control_plane.billing.limits.values import Limits
from control_plane.billing.quotas import reservations as module
from control_plane.billing.quotas.limiter_interface import Limiter, Scope
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.redis_limiter import RedisLimiter
from control_plane.billing.quotas.reservations import (
    LimitExceededError,
    LimitsUnavailableError,
    Reservation,
    Reservations,
)

SCOPES = (Scope("tenant", Limits(tokens_per_minute=100, concurrency=3)),)
AWAY = "redis://127.0.0.1:1"


@pytest.fixture
def limiter() -> Limiter:
    return MemoryLimiter()


@pytest_asyncio.fixture
async def reservations(limiter: Limiter) -> AsyncIterator[Reservations]:
    made = Reservations(limiter, fail_open=False)
    made.start()
    yield made
    await made.close()


async def take(reservations: Reservations, lease: str, tokens: int, requests: int = 1) -> Reservation:
    reservation = await reservations.reserve(lease, "t", SCOPES, tokens)
    assert reservation is not None
    for number in range(requests):
        reservations.expect(f"{lease}-{number}", reservation)
    reservations.sent(reservation)
    return reservation


async def used(limiter: Limiter) -> tuple[int, int]:
    await asyncio.sleep(0.01)
    reading = (await limiter.read("t", SCOPES))[0]
    return reading.tokens, reading.open


async def test_the_last_end_settles(reservations: Reservations, limiter: Limiter) -> None:
    await take(reservations, "a", 80, requests=2)
    reservations.ended("a-0", 5)
    assert await used(limiter) == (80, 1)
    reservations.ended("a-1", 6)
    reservations.ended("a-1", 6)
    assert await used(limiter) == (11, 0)


async def test_an_end_before_all_were_sent_does_not(reservations: Reservations, limiter: Limiter) -> None:
    reservation = await reservations.reserve("a", "t", SCOPES, 80)
    assert reservation is not None
    reservations.expect("a-0", reservation)
    reservations.ended("a-0", 5)
    assert await used(limiter) == (80, 1)
    reservations.sent(reservation)
    assert await used(limiter) == (5, 0)


async def test_lost_requests_free_the_lease_and_keep_the_charge(reservations: Reservations, limiter: Limiter) -> None:
    await take(reservations, "a", 80, requests=2)
    reservations.ended("a-0", 5)
    reservations.lost(["a-1", "never-heard-of"])
    assert await used(limiter) == (80, 0)


async def test_closing_gives_everything_back(limiter: Limiter) -> None:
    reservations = Reservations(limiter, fail_open=False)
    reservations.start()
    await take(reservations, "a", 80)
    await reservations.close()
    assert (await used(limiter))[1] == 0


async def test_leases_are_renewed_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0
    short = MemoryLimiter(lambda: now_ms, lease_ms=150)
    with patch.object(module, "RENEW_S", 0.01):
        reservations = Reservations(short, fail_open=False)
        reservations.start()
        await take(reservations, "a", 10)
        renewed = asyncio.Event()

        async def renew(tenant: str, leases: Sequence[str]) -> None:
            await MemoryLimiter.renew(short, tenant, leases)
            renewed.set()

        monkeypatch.setattr(short, "renew", renew)
        for _ in range(4):
            now_ms += 100
            renewed.clear()
            await asyncio.wait_for(renewed.wait(), 10)
        assert (await short.read("t", SCOPES))[0].open == 1
        await reservations.close()


async def test_without_limits_nothing_is_counted(reservations: Reservations) -> None:
    assert await reservations.reserve("a", "t", (), 10) is None


async def test_refusal(reservations: Reservations, limiter: Limiter) -> None:
    with pytest.raises(LimitExceededError) as refused:
        await reservations.reserve("a", "t", SCOPES, 101)
    assert refused.value.refusal.limit == "tokens_per_minute"
    assert await used(limiter) == (0, 0)


async def test_counters_that_are_away_close_the_door(caplog: pytest.LogCaptureFixture) -> None:
    reservations = Reservations(RedisLimiter(AWAY), fail_open=False)
    for _ in range(3):
        with pytest.raises(LimitsUnavailableError) as refused:
            await reservations.reserve("a", "t", SCOPES, 10)
    assert caplog.text.count("Limits cannot be checked") == 1, "an outage is logged, not each of its requests"
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (503, "limits_unavailable", 2.0)
    assert await reservations.reserve("a", "t", (), 10) is None  # who has no limits does not notice
    await reservations.close()


async def test_or_leave_it_open_if_the_operator_says_so() -> None:
    reservations = Reservations(RedisLimiter(AWAY), fail_open=True)
    assert await reservations.reserve("a", "t", SCOPES, 10) is None
    await reservations.close()


async def test_a_settlement_that_fails_twice_is_left_to_expire(limiter: Limiter) -> None:
    reservations = Reservations(limiter, fail_open=False)
    await take(reservations, "a", 10)
    away = RedisLimiter(AWAY)
    reservations._limiter = away
    with patch.object(module, "RETRY_S", 0.01):
        reservations.ended("a-0", 3)
        await reservations.close()
    assert (await limiter.read("t", SCOPES))[0].open == 1
