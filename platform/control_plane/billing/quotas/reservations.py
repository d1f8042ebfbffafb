"""Reservations of this event loop: made before a request goes to a host, renewed while it runs, settled once.

A client's request may be several engine requests (one for each prompt). Each of them ends exactly once: with the
engine's count, or without one when its host is lost. The last end settles the reservation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from control_plane.billing.quotas.limiter_interface import (
    LEASE_MS,
    RENEW_MS,
    BudgetPeriod,
    Decision,
    Limiter,
    LimiterUnavailableError,
    OverLimit,
    Reading,
    ReservationRequest,
    Scope,
    Spent,
    UnknownSpendingError,
)
from control_plane.billing.quotas.queries import spending
from control_plane.core.db import run_db
from control_plane.core.errors import LorikeetError

logger = logging.getLogger(__name__)
RENEW_S = RENEW_MS / 1000
RETRY_S = 1.0
MAX_SETTLING = 16
# Settlements of reservations that may or may not have been made, while the counters are away. There are no more of them
# than connections to the counters; each waits in a task.
MAX_UNKNOWN = 64
# Seconds between two lines of the log about limits that cannot be checked: every request of an outage is affected.
LOG_EVERY_S = 10.0


class LimitExceededError(Exception):
    """The request exceeds a limit. It was not counted."""

    def __init__(self, refusal: OverLimit, scopes: tuple[Scope, ...], readings: tuple[Reading, ...]) -> None:
        super().__init__(f"{refusal.limit} of {refusal.scope.name}")
        self.refusal, self.scopes, self.readings = refusal, scopes, readings


class LimitsUnavailableError(LorikeetError):
    retry_after_s = 2.0

    def __init__(self) -> None:
        super().__init__(
            "limits_unavailable",
            "The counters of this tenant's limits cannot be reached, so the request was refused.",
            "Send it again in a few seconds. If it persists, the operator should check Redis "
            "(LORIKEET_QUOTA_FAIL_OPEN=true admits requests meanwhile).",
            status=503,
        )


@dataclass(eq=False)
class Reservation:
    """A reservation for one client's request, until its last engine request has ended."""

    request: ReservationRequest
    readings: tuple[Reading, ...]
    running: set[str] = field(default_factory=set)
    tokens: int = 0
    counted: bool = True
    all_sent: bool = False


@dataclass(frozen=True)
class RequestReservations:
    """The reservations of one client's request, of limits and of budgets; None where it has no limit."""

    limits: Reservation | None = None
    budgets: Reservation | None = None


SpentByLedger = Callable[[str, list[str], BudgetPeriod], list[Spent]]


class Reservations:
    def __init__(self, limiter: Limiter, *, fail_open: bool, by_ledger: SpentByLedger = spending) -> None:
        """Create the reservations. `by_ledger` returns the spending of a period that the counters do not know."""
        self._limiter, self._fail_open, self._by_ledger = limiter, fail_open, by_ledger
        self._open: dict[str, Reservation] = {}
        self._by_request: dict[str, Reservation] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._closing = False
        self._settle_slots = asyncio.Semaphore(MAX_SETTLING)
        self._renewing: asyncio.Task[None] | None = None
        self._log_from = 0.0  # monotonic time before which no further line about the counters is logged

    def start(self) -> None:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="quota-leases")

    async def close(self) -> None:
        """Settle all reservations: running requests are lost with this process's sessions."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        self.lost([*self._by_request])
        self._closing = True
        while self._settling:
            await asyncio.gather(*self._settling)
        await self._limiter.close()

    def _log(self, error: LimiterUnavailableError) -> None:
        now = time.monotonic()
        if now >= self._log_from:
            self._log_from = now + LOG_EVERY_S
            logger.error("Limits cannot be checked: %s", error)

    async def reserve(
        self, lease: str, tenant: str, scopes: tuple[Scope, ...], tokens: int, choices: int = 1
    ) -> Reservation | None:
        """Reserve for a request; None if it has no limit. Raises LimitExceededError or LimitsUnavailableError.

        After any other error, or a cancellation, the lease is settled: it may have been made.
        """
        if not scopes:
            return None
        request = ReservationRequest(lease, tenant, scopes, tokens, choices)
        try:
            decision = await self._decide(request)
        except LimiterUnavailableError as error:
            self._log(error)
            if len(self._settling) < MAX_UNKNOWN:
                self._settle_later(request, 0)
            if self._fail_open:
                return None
            raise LimitsUnavailableError from error
        except BaseException:
            self._settle_later(request, 0)
            raise
        if decision.refusal is not None:
            raise LimitExceededError(decision.refusal, scopes, decision.readings)
        self._open[lease] = reservation = Reservation(request, decision.readings)
        return reservation

    async def _decide(self, request: ReservationRequest) -> Decision:
        try:
            return await self._limiter.reserve(request)
        except UnknownSpendingError as unknown:
            names = [scope.name for scope in request.scopes]
            spent = await run_db(self._by_ledger, request.tenant, names, unknown.period)
            await self._limiter.raise_to(request.tenant, unknown.period, spent)
        try:
            return await self._limiter.reserve(request)
        except UnknownSpendingError as again:  # midnight passed, or the server lost its data, between the two calls
            raise LimiterUnavailableError(str(again)) from again

    # -- ends ------------------------------------------------------------------

    def expect(self, request_id: str, reservation: Reservation) -> None:
        """Add an engine request to a reservation, before the request is sent."""
        reservation.running.add(request_id)
        self._by_request[request_id] = reservation

    def sent(self, reservation: Reservation) -> None:
        """Mark the reservation complete: no further engine request will be sent."""
        reservation.all_sent = True
        self._settle_if_over(reservation)

    def ended(self, request_id: str, tokens: int | None) -> None:
        """End an engine request with the engine's count; None if that comes later, from the host's journal."""
        reservation = self._by_request.pop(request_id, None)
        if reservation is None:
            return
        reservation.running.discard(request_id)
        reservation.counted = reservation.counted and tokens is not None
        reservation.tokens += tokens or 0
        self._settle_if_over(reservation)

    def lost(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.ended(request_id, None)

    def _settle_if_over(self, reservation: Reservation) -> None:
        if reservation.running or not reservation.all_sent:
            return
        if self._open.pop(reservation.request.lease, None) is not None:
            self._settle_later(reservation.request, reservation.tokens if reservation.counted else None)

    def _settle_later(self, request: ReservationRequest, tokens: int | None) -> None:
        task = asyncio.create_task(self._settle(request, tokens))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, request: ReservationRequest, tokens: int | None) -> None:
        """Settle a reservation. While the counters are away, retry until its lease has expired there."""
        expires_at = time.monotonic() + LEASE_MS / 1000
        while True:
            try:
                async with self._settle_slots:
                    await self._limiter.settle(request, tokens)
                return
            except LimiterUnavailableError as error:
                if self._closing or time.monotonic() > expires_at:
                    # The reconciliation raises the counters of days and months to the ledger.
                    logger.warning("Reservation %s was not settled: %s", request.lease, error)
                    return
            await asyncio.sleep(RETRY_S)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            by_tenant: defaultdict[str, list[str]] = defaultdict(list)
            for reservation in self._open.values():
                by_tenant[reservation.request.tenant].append(reservation.request.lease)
            for tenant, leases in by_tenant.items():
                try:
                    await self._limiter.renew(tenant, leases)
                except LimiterUnavailableError as error:
                    logger.warning("Leases of tenant %s were not renewed: %s", tenant, error)
