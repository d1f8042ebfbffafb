"""A cache of database results for a second, and longer while the database is away.

A write in this process invalidates the results of its tenant at once, a write of the platform all of them; a write in
another process counts after a second. Refusals are not cached. Concurrent callers share one query. Frequent callers
wait for none: the next query begins ``AHEAD_S`` after the last, while its result is still valid.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar
from uuid import UUID

from django.db import transaction

from control_plane.core.config import current
from control_plane.core.db import run_db
from control_plane.core.unavailable import is_database_away
from control_plane.identity.access.actor import ActorKind
from control_plane.identity.audit.changes import has_effect
from control_plane.identity.audit.models import AuditEvent

T = TypeVar("T")
FRESH_S = 1.0  # for which a result is valid
AHEAD_S = 0.6  # after which the next query begins
# Share of a longer validity by which a query may begin earlier, so that not all begin at once.
SPREAD = 0.3
# Seconds after which a caller uses an older result, where there is one, in place of a slow query's.
SLOW_S = 1.0
# Seconds after a slow query in which callers wait for only HURRIED_S: a healthy server answers much sooner.
HURRY_FOR_S = 5.0
HURRIED_S = 0.2
# Maximum number of results in one cache.
MAX_KEPT = 10_000

_slow_at = float("-inf")


@dataclass
class _Writes:
    """The writes of one kind: the number of the last one, and of the last for each tenant."""

    last: int = 0
    of_tenant: defaultdict[UUID, int] = field(default_factory=lambda: defaultdict(int))
    of_all: int = 0  # the last one of the platform

    def note(self, tenant: UUID | None, number: int) -> None:
        self.last = number
        if tenant is None:
            self.of_all = number
        else:
            self.of_tenant[tenant] = number

    def last_for(self, tenant: UUID | None) -> int:
        """Return the number of the last write that concerns a tenant; without a tenant any write counts."""
        return self.last if tenant is None else max(self.of_all, self.of_tenant.get(tenant, 0))


_writes, _decisions, _lock = _Writes(), _Writes(), threading.Lock()


def forget_after_commit(row: AuditEvent) -> None:
    """Invalidate cached results after the commit of a write (a listener of the audit log)."""
    if not has_effect(row.action):
        return
    # Writes of the system itself never remove anybody's access.
    decided = row.actor_kind != ActorKind.SYSTEM
    transaction.on_commit(partial(forget if decided else mark_stale, row.tenant_id), robust=True)


def mark_stale(tenant: UUID | None = None) -> None:
    """Query the database again for the tenant, or all; older results remain usable while the database is away."""
    with _lock:
        _writes.note(tenant, _writes.last + 1)


def forget(tenant: UUID | None = None) -> None:
    """Drop all results of the tenant, or of all; they are not used even while the database is away."""
    with _lock:
        _writes.note(tenant, _writes.last + 1)
        _decisions.note(tenant, _writes.last)


@dataclass(frozen=True)
class _Known(Generic[T]):
    answer: T
    write: int  # the last one before the query
    at: float  # the query's start, on the monotonic clock
    tenant: UUID | None
    ahead_s: float  # the age at which the next query begins

    def is_younger_than(self, seconds: float) -> bool:
        return time.monotonic() <= self.at + seconds


@dataclass(frozen=True)
class _Query(Generic[T]):
    future: asyncio.Future[T]
    began: float

    @property
    def patience_s(self) -> float:
        """Seconds that a caller with an older result still waits for the query."""
        now = time.monotonic()
        patience_s = HURRIED_S if now < _slow_at + HURRY_FOR_S else SLOW_S
        return max(0.0, self.began + patience_s - now)


class SingleFlightCache(Generic[T]):
    """Results that are younger than `fresh_s` and than the last write. For one event loop.

    A result that is not ``worth_keeping`` is queried again by the next caller. While the database is away or slow,
    older
    results are used, up to ``LORIKEET_DATABASE_GRACE_S`` and as long as they are ``still_good``. tenant_of: returns the
    tenant whose writes make a result stale, from its key and itself; None for any tenant's.
    """

    def __init__(
        self,
        worth_keeping: Callable[[T], bool] = lambda _: True,
        still_good: Callable[[T], bool] = lambda _: True,
        tenant_of: Callable[[object, T], UUID | None] = lambda *_: None,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._fresh_s = fresh_s
        self._worth_keeping, self._still_good, self._tenant_of = worth_keeping, still_good, tenant_of
        self._known: dict[object, _Known[T]] = {}
        self._queries: dict[tuple[object, int], _Query[T]] = {}

    def peek(self, key: object) -> T | None:
        known = self._known.get(key)
        if known is None or known.write < _writes.last_for(known.tenant) or not known.is_younger_than(self._fresh_s):
            return None
        return known.answer

    async def get(self, key: object, read: Callable[[], T]) -> T:
        """Return the result for `key`. `read` runs on a database thread if there is no valid one."""
        if self.peek(key) is None:
            return await self._answer_or_stand_in(key, self._query(key, read))
        known = self._known[key]
        if not known.is_younger_than(known.ahead_s):
            self._query(key, read)
        return known.answer

    def _query(self, key: object, read: Callable[[], T]) -> _Query[T]:
        """Return the running query, or a new one."""
        write = _writes.last  # the query may read data from before any later write
        running = self._queries.get((key, write))
        if running is None:
            future = asyncio.ensure_future(self._run(key, write, read))
            future.add_done_callback(_retrieve)
            running = self._queries[key, write] = _Query(future, time.monotonic())
        return running

    async def _answer_or_stand_in(self, key: object, running: _Query[T]) -> T:
        stand_in = self._stand_in(key)
        if stand_in is None:
            # Shield the shared query: cancelling one waiter must not cancel it for the others.
            return await asyncio.shield(running.future)
        await asyncio.wait([running.future], timeout=running.patience_s)
        if not running.future.done():
            _hurry()
            return stand_in.answer
        try:
            return running.future.result()
        except Exception as error:
            if not is_database_away(error):
                raise
            return stand_in.answer

    def _stand_in(self, key: object) -> _Known[T] | None:
        known = self._known.get(key)
        if (
            known is None
            or known.write < _decisions.last_for(known.tenant)
            or not known.is_younger_than(current().database_grace_s)
        ):
            return None
        return known if self._still_good(known.answer) else None

    async def _run(self, key: object, write: int, read: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            answer = await run_db(read)
        except Exception as error:
            if not is_database_away(error):
                self._known.pop(key, None)  # refused: the older result ends
            raise
        finally:
            del self._queries[key, write]
        self._known.pop(key, None)
        if self._worth_keeping(answer):
            if len(self._known) >= MAX_KEPT:
                del self._known[next(iter(self._known))]  # the result of the oldest query
            self._known[key] = _Known(answer, write, began, self._tenant_of(key, answer), self._ahead_s())
        return answer

    def _ahead_s(self) -> float:
        early = SPREAD * random.random() if self._fresh_s > FRESH_S else 0.0
        return (AHEAD_S - early) * self._fresh_s / FRESH_S


def _hurry() -> None:
    global _slow_at
    _slow_at = time.monotonic()


def _retrieve(future: asyncio.Future[T]) -> None:
    """Mark the query's error as retrieved: its callers may all have used an older result."""
    if not future.cancelled():
        future.exception()
