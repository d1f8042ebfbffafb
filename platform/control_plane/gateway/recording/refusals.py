"""Counts refused requests in memory and writes the counts every two seconds.

A refusal costs one dictionary lookup, and a flood of refusals takes no more memory and rows than there are reasons: of
texts that clients choose (names of models and parameters) only the last is kept. The processor time of reading a
request that is then refused is charged to its tenant; the requests of a tenant that used up `REFUSED_CPU_PER_S` are not
read for a while.
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
from control_plane.core.storable import storable
from control_plane.gateway.dispatch import errors
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.recording.flusher import Flusher
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)

# Seconds between two writes of counted refusals.
GATHER_S = 2.0
# Reasons that wait to be written. Only thousands of keys can produce more; further ones are not counted.
MAX_WAITING = 10_000
# Seconds of processor time per second that one tenant's refused requests may take in this process, and the most it may
# save up. Parsing 4 MiB of JSON can take 0.1 s, in which the process serves nobody else.
REFUSED_CPU_PER_S, REFUSED_CPU_BURST_S = 0.02, 0.5


class RefusalLog:
    """A counter of refusals, for one event loop."""

    def __init__(self) -> None:
        self._counts: dict[Reason, Count] = {}
        self._allowances: dict[UUID, Allowance] = {}
        self._flusher = Flusher("refusal-log", GATHER_S, self._write)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        await self._flusher.close()

    def note(self, principal: Principal, endpoint: str, error: ApiError, model: str) -> None:
        """Count a request that was refused before it was sent to an engine."""
        now = clocks.now().timestamp()
        key = principal.api_key
        limit = str((error.details or {}).get("limit", ""))
        reason = Reason(
            principal.tenant.pk, key.pk if key else None, endpoint, error.status, error.code, limit, int(now // 60)
        )
        count = self._counts.get(reason)
        if count is None:
            if len(self._counts) >= MAX_WAITING:
                return
            count = self._counts[reason] = Count()
            self._flusher.wake()
        count.count += 1
        count.last_at, count.model, count.param = now, storable(model[:200]), storable((error.param or "")[:100])

    def allowance(self, principal: Principal) -> Allowance:
        """Return what the caller's tenant has left of its processor time for reading requests that are then refused."""
        pk = principal.tenant.pk
        if pk not in self._allowances:
            self._allowances[pk] = Allowance.full(REFUSED_CPU_PER_S, REFUSED_CPU_BURST_S, time.monotonic())
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
    """A request that was not yet sent to an engine: an error that leaves the block is counted as a refusal for the
    caller's tenant.

    Once it was sent, the ledger records it.
    """

    def __init__(self, log: RefusalLog, principal: Principal, endpoint: str, model: str) -> None:
        self._log, self._principal, self._endpoint = log, principal, endpoint
        self._dispatched = False
        self._cpu_s = 0.0
        self.model = model

    def dispatched(self) -> None:
        """Mark the request as sent to an engine: a later error is not a refusal."""
        self._dispatched = True

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Measure the reading of the request, which must not await. Raises ApiError if the tenant's time is used up."""
        wait_s = self._log.allowance(self._principal).wait_s(time.monotonic())
        if wait_s:
            raise ApiError(
                429,
                "too_many_refused_requests",
                "Reading requests of this tenant that were then refused has taken too much time.",
                "Check the errors of those requests, correct them, and try again after a pause.",
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
        """Count a refusal. Raises ``ApiError`` in place of any other error."""
        if self._dispatched or not isinstance(error, Exception):
            return
        problem = errors.of(error)
        self._log.allowance(self._principal).spend(self._cpu_s)
        self._log.note(self._principal, self._endpoint, problem, self.model)
        if problem is not error:
            raise problem from error
