"""The limiter of this installation: in Redis if it is configured, else in this process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TypeVar

from asgiref.sync import async_to_sync

from control_plane.billing.quotas.limiter_interface import (
    BudgetPeriod,
    Limiter,
    LimiterUnavailableError,
    period_of,
)
from control_plane.billing.quotas.memory_limiter import MemoryLimiter
from control_plane.billing.quotas.redis_limiter import RedisLimiter
from control_plane.core import config

T = TypeVar("T")


@lru_cache(maxsize=1)
def _process_limiter() -> MemoryLimiter:
    return MemoryLimiter()


def make_limiter() -> Limiter:
    """Return a limiter for the running event loop; the caller closes it."""
    url = config.current().redis_url
    return RedisLimiter(url) if url else _process_limiter()


@asynccontextmanager
async def _limiter() -> AsyncIterator[Limiter]:
    limiter = make_limiter()
    try:
        yield limiter
    finally:
        await limiter.close()


def with_limiter(call: Callable[[Limiter], Awaitable[T]]) -> T:
    """Run `call` from synchronous code. Raises LimiterUnavailableError."""

    async def run() -> T:
        async with _limiter() as limiter:
            return await call(limiter)

    return async_to_sync(run)()


def current_period() -> BudgetPeriod:
    """Return the day and month by the limiter's clock, or by this process's while the limiter is unavailable."""

    async def read(limiter: Limiter) -> BudgetPeriod:
        return await limiter.period()

    try:
        return with_limiter(read)
    except LimiterUnavailableError:
        return period_of(time.time_ns() // 1_000_000)
