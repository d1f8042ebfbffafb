"""Counts refused requests in memory and writes the counts every two seconds.

A refusal costs a look into a dictionary, and a flood of them no more memory and no more rows than its kinds: what
clients make up themselves (names of models and parameters) is kept of the last one only. What it costs to read a
request that is then refused is charged to its tenant; who has used up `REFUSED_CPU_PER_S` is not read for a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from control_plane.billing.refusals.actions import Count, Reason, add
from control_plane.core.db import run_db
from control_plane.core.http.allowance import Allowance
from control_plane.core.jobs import clocks
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.recording.flusher import Flusher
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)

GATHER_S = 2.0
# Kinds that wait. More than that a second is only possible with thousands of keys; what is above is not counted.
MOST_WAITING = 10_000
REFUSED_CPU_PER_S, REFUSED_CPU_AT_ONCE = 0.02, 0.5
"""Seconds of processor time, of one tenant in this process. 4 MiB of JSON can take 0.1 s, in which nobody is served."""


class RefusalLog:
    """Of one event loop."""

    def __init__(self) -> None:
        self._counts: dict[Reason, Count] = {}
        self._allowances: dict[UUID, Allowance] = {}
        self._flusher = Flusher("refusal-log", GATHER_S, self._write)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        await self._flusher.close()

    def note(self, principal: Principal, endpoint: str, error: ApiError, model: str) -> None:
        """Count a request that was refused before any engine had it."""
        now = clocks.now().timestamp()
        key = principal.api_key
        limit = str((error.details or {}).get("limit", ""))
        reason = Reason(
            principal.tenant.pk, key.pk if key else None, endpoint, error.status, error.code, limit, int(now // 60)
        )
        count = self._counts.get(reason)
        if count is None:
            if len(self._counts) >= MOST_WAITING:
                return
            count = self._counts[reason] = Count()
            self._flusher.wake()
        count.count += 1
        count.last_at, count.model, count.param = now, model, error.param or ""

    def allowance(self, principal: Principal) -> Allowance:
        """The processor time for reading what is refused, in seconds, that the caller's tenant has left."""
        pk = principal.tenant.pk
        if pk not in self._allowances:
            self._allowances[pk] = Allowance.full(REFUSED_CPU_PER_S, REFUSED_CPU_AT_ONCE, time.monotonic())
        return self._allowances[pk]

    def until_dispatched(self, principal: Principal, endpoint: str, model: str = "") -> Undispatched:
        return Undispatched(self, principal, endpoint, model)

    async def _write(self) -> bool:
        counts, self._counts = self._counts, {}
        if not counts:
            return True
        try:
            await run_db(add, counts)
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Refusals of %d kinds could not be stored; trying again: %s", len(counts), error)
            self._take_back(counts)
            return False
        return True

    def _take_back(self, counts: dict[Reason, Count]) -> None:
        for reason, count in counts.items():
            newer = self._counts.setdefault(reason, count)
            if newer is not count:
                newer.count += count.count


class Undispatched:
    """A request that no engine has yet. An error that leaves the block until then is a refusal, counted for the tenant
    of the caller; what an engine had is in the ledger."""

    def __init__(self, log: RefusalLog, principal: Principal, endpoint: str, model: str) -> None:
        self._log, self._principal, self._endpoint = log, principal, endpoint
        self._dispatched = False
        self._cpu_s = 0.0
        self.model = model

    def dispatched(self) -> None:
        """An engine has it: from now on nothing is a refusal."""
        self._dispatched = True

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around what reads the request, without an `await`. Raises ApiError if too many were read for nothing."""
        wait_s = self._log.allowance(self._principal).wait_s(time.monotonic())
        if wait_s:
            raise ApiError(
                429,
                "too_many_refused_requests",
                "Reading requests of yours that were then refused has taken too much time.",
                "Look at the errors they got, mend those requests, and go on after a pause.",
                retry_after_s=wait_s,
            )
        began = time.thread_time()
        try:
            yield
        finally:
            self._cpu_s += time.thread_time() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises ``ApiError`` for any other error."""
        if self._dispatched or not isinstance(error, Exception):
            return
        problem = errors.of(error)
        self._log.allowance(self._principal).spend(self._cpu_s)
        self._log.note(self._principal, self._endpoint, problem, self.model)
        if problem is not error:
            raise problem from error
