"""The contract of a limiter: one atomic decision over all of a request's scopes.

Requests and tokens of a minute are counted in a window that slides by ``WIDTH_MS``: never more than the limit within
any 60 seconds. Days and months are UTC's, as in every report. A running request holds a lease with the tokens it may
come to use; a lease that is not renewed expires, and what it held is free again. Two limiters keep this contract: in
the memory of one process, and in Redis for many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from control_plane.billing.limits.values import Counted, Limits

WIDTH_MS = 5_000
SPAN = 13
"""Buckets in the window: all that overlap the last 60 s, the running one included."""
DAY_MS = 86_400_000
LEASE_MS = 60_000
# How often the process of a running request renews its lease, and after how long without that the process counts as
# gone: the lease then ends when it expires, and no sooner.
RENEW_MS = 10_000
UNRENEWED_MS = 15_000
BUSY_WAIT_MS = 1_000
"""Nobody knows when one of the running requests ends; so a client is told to try again soon."""
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Scope:
    """Whom limits bind: the tenant (`tenant`) or one key (its id)."""

    name: str
    limits: Limits


@dataclass(frozen=True)
class Ask:
    """A request that wants in. `tokens` is all it may come to use, `choices` how many sequences it runs at once."""

    lease: str
    tenant: str
    scopes: tuple[Scope, ...]
    tokens: int
    choices: int = 1

    def of(self, limit: Counted) -> int:
        """What it takes of a limit."""
        if limit == Counted.REQUESTS_PER_MINUTE:
            return 1
        return self.choices if limit == Counted.CONCURRENCY else self.tokens


@dataclass(frozen=True)
class Reading:
    """What a scope uses. Tokens include what running requests hold; None = not counted so far."""

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
    """Which limit stood in the way longest, and for how long."""

    scope: Scope
    limit: Counted
    allowed: int
    used: int
    requested: int
    wait_ms: int


@dataclass(frozen=True)
class Decision:
    """`refusal` is None for a request that may run; then `readings`, one for each scope, include it."""

    refusal: OverLimit | None
    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class BudgetPeriod:
    """A UTC day and the month it is in, both by the number of their first day since 1970."""

    day: int
    month: int

    @property
    def date(self) -> date:
        return EPOCH + timedelta(days=self.day)


@dataclass(frozen=True)
class Spent:
    """A scope's tokens of a day and its month, by the ledger."""

    scope: str
    day: int
    month: int


class LimiterUnavailableError(Exception):
    """The counters cannot be reached."""


class UnknownSpendingError(Exception):
    """The counters do not know what was used in this period: tell them with `raise_to`, then ask again."""

    def __init__(self, period: BudgetPeriod) -> None:
        super().__init__(f"spending of {period.date} is unknown")
        self.period = period


class Limiter(Protocol):
    """Every method may raise LimiterUnavailableError.

    Of a call that raises it, or is cancelled, it is unknown whether it counted; it does not count any later.
    """

    async def reserve(self, ask: Ask) -> Decision:
        """Check all scopes and count the request in each, or in none. Raises UnknownSpendingError."""

    async def settle(self, ask: Ask, tokens: int | None) -> bool:
        """End the lease: what it held becomes `tokens`, the engine's own count; None if that is not known.

        Whether there was one: of two calls, or after it expired, only one counts.
        """

    async def renew(self, tenant: str, leases: Sequence[str]) -> None:
        """Leases that run on. One that has expired stays so."""

    async def read(self, tenant: str, scopes: Sequence[Scope]) -> tuple[Reading, ...]:
        """What is used now, without counting anything."""

    async def raise_to(self, tenant: str, period: BudgetPeriod, spent: Iterable[Spent]) -> None:
        """Lift counters that know less than the ledger. They never sink: the ledger may be a moment behind."""

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
