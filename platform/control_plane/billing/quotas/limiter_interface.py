"""The contract of a limiter: one atomic decision over all of a request's scopes.

Requests and tokens of a minute are counted in a window that slides by ``WIDTH_MS``: never more than the limit within
any 60 seconds. Days and months are UTC's, as in every report. A running request has a lease with the tokens it may
come to use; a lease that is not renewed expires, and its tokens are free again. Two limiters keep this contract: in
the memory of one process, and in Redis for many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from control_plane.billing.limits.values import Counted, Limits

# Milliseconds of a bucket of the window.
WIDTH_MS = 5_000
# Buckets in the window: all that overlap the last 60 s, the current one included.
SPAN = 13
DAY_MS = 86_400_000
# Milliseconds after which a lease that is not renewed expires.
LEASE_MS = 60_000
# Milliseconds between two renewals of a lease, and without one before its process counts as gone. The lease then ends
# when it expires.
RENEW_MS = 10_000
UNRENEWED_MS = 15_000
# Milliseconds before a retry, if a running request must end first: nothing predicts when it does.
BUSY_WAIT_MS = 1_000
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Scope:
    """The scope of limits: the tenant (`tenant`) or one key (its id)."""

    name: str
    limits: Limits


@dataclass(frozen=True)
class ReservationRequest:
    """A request for a reservation: `tokens` is all it may come to use, `choices` its concurrent sequences."""

    lease: str
    tenant: str
    scopes: tuple[Scope, ...]
    tokens: int
    choices: int = 1

    def of(self, limit: Counted) -> int:
        """Return what the request takes of a limit."""
        if limit == Counted.REQUESTS_PER_MINUTE:
            return 1
        return self.choices if limit == Counted.CONCURRENCY else self.tokens


@dataclass(frozen=True)
class Reading:
    """The usage of a scope. Tokens include those reserved by running requests; None means not counted so far."""

    requests: int
    requests_reset_ms: int
    tokens: int
    tokens_reset_ms: int
    day: int | None
    month: int | None
    open: int

    def used(self, limit: Counted) -> int | None:
        values = (self.requests, self.tokens, self.day, self.month, self.open)
        return values[list(Counted).index(limit)]


@dataclass(frozen=True)
class OverLimit:
    """The exceeded limit with the longest wait."""

    scope: Scope
    limit: Counted
    allowed: int
    used: int
    requested: int
    wait_ms: int


@dataclass(frozen=True)
class Decision:
    """A limiter's decision. `refusal` is None if the request may run; then `readings`, one per scope, include it."""

    refusal: OverLimit | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class BudgetPeriod:
    """A UTC day and its month, both as the number of their first day since 1970."""

    day: int
    month: int

    @property
    def date(self) -> date:
        return EPOCH + timedelta(days=self.day)


@dataclass(frozen=True)
class Spent:
    """The tokens of a scope in a day and its month, by the ledger."""

    scope: str
    day: int
    month: int


class LimiterUnavailableError(Exception):
    """The counters cannot be reached."""


class UnknownSpendingError(Exception):
    """The counters have no spending of this period: call `raise_to`, then reserve again."""

    def __init__(self, period: BudgetPeriod) -> None:
        super().__init__(f"spending of {period.date} is unknown")
        self.period = period


class Limiter(Protocol):
    """A limiter. Every method may raise LimiterUnavailableError.

    A call that raises it, or is cancelled, may have counted or not; it does not count later.
    """

    async def reserve(self, request: ReservationRequest) -> Decision:
        """Check all scopes and count the request in each, or in none. Raises UnknownSpendingError."""

    async def settle(self, request: ReservationRequest, tokens: int | None) -> bool:
        """End the lease: `tokens`, the engine's count, replaces the reserved ones; None if that is not known.

        Returns whether the lease existed: of two calls, or after its expiry, only one counts.
        """

    async def renew(self, tenant: str, leases: Sequence[str]) -> None:
        """Extend leases that have not expired."""

    async def read(self, tenant: str, scopes: Sequence[Scope]) -> tuple[Reading, ...]:
        """Return the current usage without counting anything."""

    async def raise_to(self, tenant: str, period: BudgetPeriod, spent: Iterable[Spent]) -> None:
        """Raise counters that are below the ledger, even with what open reservations hold: some of a request's prompts
        may be in the ledger before it ends. They never sink: the ledger may be a moment behind.
        """

    async def period(self) -> BudgetPeriod:
        """Return the day and month that requests are counted in now, by the clock that counts them."""

    async def close(self) -> None: ...


def months_around(now_ms: int) -> tuple[int, int, int]:
    """Return the first days of the last, this and the next month, as day numbers."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    this = today.year * 12 + today.month - 1
    last, current, following = (_first_day(this + shift) for shift in (-1, 0, 1))
    return last, current, following


def period_of(now_ms: int) -> BudgetPeriod:
    return BudgetPeriod(now_ms // DAY_MS, months_around(now_ms)[1])


def _first_day(month: int) -> int:
    return (date(month // 12, month % 12 + 1, 1) - EPOCH).days
