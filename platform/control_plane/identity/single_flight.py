"""Answers of the database that are remembered for a second, and longer while it is away.

A write in this process forgets what its tenant is told at once, one of the platform what all are; one in another
process counts after a second, or what the cache was told. Refusals are not remembered. Concurrent questions share one
look. Who asks often waits for none: the next look begins ``AHEAD_S`` after the last, while its answer is still good.
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
FRESH_S = 1.0
AHEAD_S = 0.6
# Of what is remembered for longer, looks begin earlier by up to so much of its time: else all come at once.
SPREAD = 0.3
# An answer that takes longer is not waited for where a remembered one may stand in for it.
SLOW_S = 1.0
# After one such, and for so long, others are waited for less: a server that is well answers much sooner.
HURRY_FOR_S = 5.0
HURRIED_S = 0.2
MOST_KEPT = 10_000

_slow_at = float("-inf")


@dataclass
class _Writes:
    """The writes of one kind: the number of the last one, and of the last that concerns each tenant."""

    last: int = 0
    of_tenant: defaultdict[UUID, int] = field(default_factory=lambda: defaultdict(int))
    of_all: int = 0
    """The platform's."""

    def note(self, tenant: UUID | None, number: int) -> None:
        self.last = number
        if tenant is None:
            self.of_all = number
        else:
            self.of_tenant[tenant] = number

    def last_for(self, tenant: UUID | None) -> int:
        """For what is no tenant's, any write counts."""
        return self.last if tenant is None else max(self.of_all, self.of_tenant.get(tenant, 0))


_writes, _decisions, _lock = _Writes(), _Writes(), threading.Lock()


def forget_after_commit(row: AuditEvent) -> None:
    """A listener of the audit log: every write has a row there."""
    if not has_effect(row.action):
        return
    # What the system does by itself takes nobody's access away.
    decided = row.actor_kind != ActorKind.SYSTEM
    transaction.on_commit(partial(forget if decided else look_again, row.tenant_id), robust=True)


def look_again(tenant: UUID | None = None) -> None:
    """What was remembered until now of the tenant, or of all, may be old."""
    with _lock:
        _writes.note(tenant, _writes.last + 1)


def forget(tenant: UUID | None = None) -> None:
    """What was remembered until now of the tenant, or of all, counts no more, not even while the database is away."""
    with _lock:
        _writes.note(tenant, _writes.last + 1)
        _decisions.note(tenant, _writes.last)


@dataclass(frozen=True)
class _Known(Generic[T]):
    answer: T
    write: int
    """The last one before the database was asked."""
    at: float
    """When it was asked, on the monotonic clock."""
    tenant: UUID | None
    ahead_s: float
    """Its age at which the next look begins."""

    def is_younger_than(self, seconds: float) -> bool:
        return time.monotonic() <= self.at + seconds


@dataclass(frozen=True)
class _Look(Generic[T]):
    future: asyncio.Future[T]
    began: float

    @property
    def patience_s(self) -> float:
        """How long somebody who has a remembered answer still waits for it."""
        now = time.monotonic()
        patience_s = HURRIED_S if now < _slow_at + HURRY_FOR_S else SLOW_S
        return max(0.0, self.began + patience_s - now)


class SingleFlightCache(Generic[T]):
    """Answers that are younger than `fresh_s` and than the last write. Of one event loop.

    Those that are not ``worth_keeping`` are looked up anew by the next who asks. While the database is away or slow,
    older ones stand in for its answer, up to ``LORIKEET_DATABASE_GRACE_S`` and as long as they are ``still_good``.
    tenant_of: whose writes make an answer old, by its key and itself; None for everybody's.
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
        self._looks: dict[tuple[object, int], _Look[T]] = {}

    def peek(self, key: object) -> T | None:
        known = self._known.get(key)
        if known is None or known.write < _writes.last_for(known.tenant) or not known.is_younger_than(self._fresh_s):
            return None
        return known.answer

    async def get(self, key: object, look: Callable[[], T]) -> T:
        """`look` runs on a database thread if the answer is not known."""
        if self.peek(key) is None:
            return await self._answer_or_stand_in(key, self._look(key, look))
        known = self._known[key]
        if not known.is_younger_than(known.ahead_s):
            self._look(key, look)
        return known.answer

    def _look(self, key: object, look: Callable[[], T]) -> _Look[T]:
        """The look that is under way, or a new one."""
        write = _writes.last  # what is read from here on may be older than a later write
        running = self._looks.get((key, write))
        if running is None:
            future = asyncio.ensure_future(self._ask(key, write, look))
            future.add_done_callback(_retrieve)
            running = self._looks[key, write] = _Look(future, time.monotonic())
        return running

    async def _answer_or_stand_in(self, key: object, running: _Look[T]) -> T:
        stand_in = self._stand_in(key)
        if stand_in is None:
            # Shielded: cancelling one who waits must not cancel the look for the others.
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

    async def _ask(self, key: object, write: int, look: Callable[[], T]) -> T:
        asked_at = time.monotonic()
        try:
            answer = await run_db(look)
        except Exception as error:
            if not is_database_away(error):
                self._known.pop(key, None)  # refused: what was remembered is over
            raise
        finally:
            del self._looks[key, write]
        self._known.pop(key, None)
        if self._worth_keeping(answer):
            if len(self._known) >= MOST_KEPT:
                del self._known[next(iter(self._known))]  # the one that was looked up longest ago
            self._known[key] = _Known(answer, write, asked_at, self._tenant_of(key, answer), self._ahead_s())
        return answer

    def _ahead_s(self) -> float:
        early = SPREAD * random.random() if self._fresh_s > FRESH_S else 0.0
        return (AHEAD_S - early) * self._fresh_s / FRESH_S


def _hurry() -> None:
    global _slow_at
    _slow_at = time.monotonic()


def _retrieve(future: asyncio.Future[T]) -> None:
    """Its error may be nobody's: those who asked went on with what they remembered."""
    if not future.cancelled():
        future.exception()
