"""Compares a web process's clock with those of PostgreSQL and Redis every half minute, for its log and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from django.db import DatabaseError
from prometheus_client import Gauge
from redis.exceptions import RedisError

from control_plane.core import redis_client
from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.jobs import clocks
from control_plane.core.unavailable import UnavailableError

logger = logging.getLogger(__name__)

EVERY_S = 30.0
AHEAD = Gauge(
    "lorikeet_clock_ahead_seconds", "How far this process's clock is ahead of a server's; negative: behind.", ["server"]
)
PAUSED = Gauge("lorikeet_deletion_paused", "1 while nothing is deleted for its age, because a clock is not trusted.")

_task: asyncio.Task[None] | None = None


async def start() -> None:
    """Start-up hook: compare the clocks once before the first request, unless a server is away, then regularly."""
    global _task
    await compare()
    _task = asyncio.create_task(_watch(), name="clock-watch")


async def stop() -> None:
    """Shut-down hook: stop comparing."""
    global _task
    if _task is not None:
        _task.cancel()
        await asyncio.gather(_task, return_exceptions=True)
        _task = None


async def compare() -> None:
    """Compare the clocks once. A server that is away is skipped."""
    with contextlib.suppress(DatabaseError, UnavailableError, OSError):
        PAUSED.set(await run_db(_compare_database))
    if current().redis_url:
        with contextlib.suppress(RedisError, OSError):
            await asyncio.to_thread(_compare_redis)


async def _watch() -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        try:
            await compare()
        except Exception:
            logger.exception("The clocks could not be compared.")


def _compare_database() -> bool:
    """Compare with the database's clock. Returns True if deletion is paused."""
    paused = not clocks.is_trusted()
    if (ahead := clocks.last_ahead()) is not None:
        AHEAD.labels("database").set(ahead)
    return paused


def _compare_redis() -> None:
    with redis_client.client(current().redis_url) as client:
        before = time.time()
        clock: Any = client.time()
        at, after = clock[0] + clock[1] / 1e6, time.time()
    ahead = before - at if before > at else min(0.0, after - at)
    AHEAD.labels("redis").set(ahead)
    if abs(ahead) > clocks.MAX_CLOCK_DIFFERENCE.total_seconds():
        logger.error(
            "The clock of this process is %.0f s %s of Redis's. Limits, sign-in attempts and leases use Redis's, "
            "everything else PostgreSQL's; synchronise the machines with NTP.",
            abs(ahead),
            "ahead" if ahead > 0 else "behind",
        )
