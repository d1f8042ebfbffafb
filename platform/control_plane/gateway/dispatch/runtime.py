"""The gateway's state per event loop: sessions to the hosts, reservations, and background writers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from control_plane.billing.quotas.budgets import money_spent
from control_plane.billing.quotas.limiter_factory import make_limiter
from control_plane.billing.quotas.reservations import RequestReservations, Reservations
from control_plane.core import config, traces
from control_plane.core.db import run_db
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.routing.migration import make_migration
from control_plane.fleet.routing.router import make_policy
from control_plane.fleet.transport.endpoint import configured_endpoints, known_endpoints
from control_plane.gateway.dispatch.admission_cache import AdmissionCache
from control_plane.gateway.dispatch.constraint_checks import ConstraintChecks
from control_plane.gateway.dispatch.idempotency import Idempotency, make_answers
from control_plane.gateway.dispatch.migrator import Migrator, MovableRequest
from control_plane.gateway.recording.refusals import RefusalLog
from control_plane.gateway.recording.transcripts import TranscriptWriter
from control_plane.gateway.recording.usage import UsageWriter
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)
# Seconds between two queries for hosts that joined or were revoked.
FOLLOW_EVERY_S = 1.0


class EngineRequest(MovableRequest, Protocol):
    """A request on an engine. Each of its attempts ends with exactly one call of ``finished`` or ``lost``."""

    def finished(self, host: str, report: pb.Finished) -> None:
        """Take the engine's report of an attempt's end."""

    def lost(self, engine_id: str) -> None:
        """Take the loss of an attempt's host."""


class Runtime:
    """The gateway of one event loop: created on it, connects in the background."""

    def __init__(self) -> None:
        settings = config.current()
        self.closing = False  # this process is cutting off the running requests
        self._attempts: dict[str, EngineRequest] = {}  # by the engine request id of each attempt
        self.usage = UsageWriter(self._acknowledge)
        self.refusals = RefusalLog()
        self.transcripts = TranscriptWriter()
        self.constraint_checks = ConstraintChecks()
        self.idempotency = Idempotency(make_answers())
        self.reservations = Reservations(make_limiter(), fail_open=settings.quota_fail_open)
        self.budgets = Reservations(make_limiter(), fail_open=settings.quota_fail_open, by_ledger=money_spent)
        self.fleet = Fleet(
            configured_endpoints(),
            policy=make_policy(settings.routing_policy),
            usage_sink=self._finished,
            lost_sink=self._lost,
        )
        self.admission_cache = AdmissionCache(self.fleet.accepts)
        self.migrator = Migrator(self.fleet, self._attempts, make_migration(settings.migration))
        self.usage.start()
        self.refusals.start()
        self.transcripts.start()
        self.reservations.start()
        self.budgets.start()
        self.fleet.start()
        self.migrator.start()
        self._following = asyncio.create_task(self._follow_fleet(), name="follow-fleet")

    def expect(self, engine_id: str, request: EngineRequest, reserved: RequestReservations) -> None:
        """Register an engine request that is about to be sent."""
        self._attempts[engine_id] = request
        if reserved.limits is not None:
            self.reservations.expect(engine_id, reserved.limits)
        if reserved.budgets is not None:
            self.budgets.expect(engine_id, reserved.budgets)

    def sent(self, reserved: RequestReservations) -> None:
        """Record that no further engine request uses this reservation."""
        if reserved.limits is not None:
            self.reservations.sent(reserved.limits)
        if reserved.budgets is not None:
            self.budgets.sent(reserved.budgets)

    def ended(self, engine_id: str, tokens: int | None, nanos: int | None) -> None:
        """Record a request's end with its tokens and cost; None if only the host's journal will report them."""
        self.reservations.ended(engine_id, tokens)
        self.budgets.ended(engine_id, nanos)

    def unsent(self, engine_id: str) -> None:
        """Forget an engine request that reached no host."""
        self._attempts.pop(engine_id, None)
        self.ended(engine_id, 0, 0)

    def _finished(self, host: str, report: pb.Finished) -> None:
        if request := self._attempts.pop(report.request_id, None):
            request.finished(host, report)

    def _lost(self, engine_ids: Iterable[str]) -> None:
        for engine_id in engine_ids:
            if request := self._attempts.pop(engine_id, None):
                request.lost(engine_id)

    async def _acknowledge(self, host: str, request_ids: list[str]) -> None:
        await self.fleet.client(host).acknowledge(request_ids)

    async def _follow_fleet(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_EVERY_S)
            await self.follow_fleet()

    async def follow_fleet(self) -> None:
        """Connect to hosts that joined, disconnect from revoked ones; keep the same ones while the database is
        unavailable.
        """
        try:
            await self.fleet.follow(await run_db(known_endpoints))
        except Exception as error:
            if as_unavailable(error) is None:
                logger.exception("The list of hosts could not be read; the known hosts stay in use.")

    async def close(self) -> None:
        """End running requests with an error; store their usage and acknowledge it first.

        Usage that cannot be stored, because the database is unavailable, stays in the engines' journals.
        """
        self._following.cancel()
        await within(1.0, self.migrator.close())
        self.constraint_checks.close()
        self.closing = True
        self._lost([*self._attempts])
        await within(3.0, self.usage.close(), self.transcripts.close(), self.refusals.close())
        await within(1.0, self.fleet.close())
        await within(2.0, asyncio.to_thread(traces.flush, 1.5))
        await within(2.0, self.reservations.close(), self.budgets.close(), self.idempotency.close())


async def within(seconds: float, *steps: Coroutine[Any, Any, None]) -> None:
    """Await the steps of a shutdown, for this long at most. A failure is logged."""
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*steps)
    except TimeoutError:
        logger.warning("A part of the gateway did not stop within %.0f s.", seconds)
    except Exception:
        logger.exception("A part of the gateway did not stop cleanly.")


_runtimes: WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = WeakKeyDictionary()


def runtime() -> Runtime:
    """Return the running event loop's runtime, made at first use."""
    loop = asyncio.get_running_loop()
    if loop not in _runtimes:
        _runtimes[loop] = Runtime()
    return _runtimes[loop]


async def start() -> None:
    """Connect to the hosts: a start-up hook of the web process, so that the first request does not wait for
    connections.
    """
    await runtime().follow_fleet()


async def stop() -> None:
    """Close the runtime: a shut-down hook of the web process."""
    running = _runtimes.pop(asyncio.get_running_loop(), None)
    if running is not None:
        await running.close()
