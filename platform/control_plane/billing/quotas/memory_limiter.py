"""The limiter of a single process. `redis_limiter.py` does the same: change both; a test compares them by steps."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from control_plane.billing.limits.values import Counted
from control_plane.billing.quotas.limiter_interface import (
    BUSY_WAIT_MS,
    DAY_MS,
    LEASE_MS,
    SPAN,
    UNRENEWED_MS,
    WIDTH_MS,
    BudgetPeriod,
    Decision,
    OverLimit,
    Reading,
    ReservationRequest,
    Scope,
    Spent,
    UnknownSpendingError,
    months_around,
    period_of,
)

MAX_TENANTS = 100_000


@dataclass
class _Lease:
    expires_ms: int
    tokens: int
    bucket: int
    period: BudgetPeriod
    scopes: tuple[str, ...]
    choices: int


@dataclass
class _Window:
    """The requests and tokens of a scope by bucket."""

    requests: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)

    def forget_outside(self, first: int, last: int) -> None:
        """Drop other buckets. Those later than `last` were counted before the clock stepped back."""
        for counts in (self.requests, self.tokens):
            for number in [number for number in counts if not first <= number <= last]:
                del counts[number]


@dataclass
class _Tenant:
    leases: dict[str, _Lease] = field(default_factory=dict)
    windows: dict[str, _Window] = field(default_factory=dict)
    open: Counter[str] = field(default_factory=Counter)
    reserved: Counter[str] = field(default_factory=Counter)
    by_day: dict[tuple[str, int], int] = field(default_factory=dict)
    by_month: dict[tuple[str, int], int] = field(default_factory=dict)

    def drop(self, name: str) -> _Lease:
        lease = self.leases.pop(name)
        for scope in lease.scopes:
            self.open[scope] -= lease.choices
            self.reserved[scope] -= lease.tokens
        return lease

    def window(self, scope: str, bucket: int) -> _Window:
        window = self.windows.setdefault(scope, _Window())
        window.forget_outside(bucket - SPAN + 1, bucket)
        return window


class MemoryLimiter:
    """The limiter in memory. Thread-safe. It never waits; its methods are asynchronous because the contract's are."""

    def __init__(self, now_ms: Callable[[], int] | None = None, lease_ms: int = LEASE_MS) -> None:
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self._lease_ms = lease_ms
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    async def reserve(self, request: ReservationRequest) -> Decision:
        with self._lock:
            now = self._now_ms()
            tenant = self._tenant(request.tenant, now)
            if request.lease in tenant.leases:
                return Decision(None, self._readings(tenant, request.scopes, now))
            period = period_of(now)
            if any(self._unknown(tenant, scope, period) for scope in request.scopes):
                raise UnknownSpendingError(period)
            readings = self._readings(tenant, request.scopes, now)
            refusals = [
                refusal
                for scope, reading in zip(request.scopes, readings, strict=True)
                for refusal in self._refusals(tenant, scope, reading, request, now)
            ]
            if refusals:
                return Decision(max(refusals, key=lambda refusal: refusal.wait_ms), readings)
            self._take(tenant, request, now, period)
            return Decision(None, self._readings(tenant, request.scopes, now))

    async def settle(self, request: ReservationRequest, tokens: int | None) -> bool:
        with self._lock:
            now = self._now_ms()
            tenant = self._tenant(request.tenant, now)
            if request.lease not in tenant.leases:
                return False
            lease = tenant.drop(request.lease)
            if tokens is not None:
                self._charge(tenant, lease, tokens, now)
            return True

    async def renew(self, tenant: str, leases: Sequence[str]) -> None:
        with self._lock:
            now = self._now_ms()
            state = self._tenant(tenant, now)
            for name in leases:
                if name in state.leases:
                    state.leases[name].expires_ms = now + self._lease_ms

    async def read(self, tenant: str, scopes: Sequence[Scope]) -> tuple[Reading, ...]:
        with self._lock:
            now = self._now_ms()
            return self._readings(self._tenant(tenant, now), scopes, now)

    async def raise_to(self, tenant: str, period: BudgetPeriod, spent: Iterable[Spent]) -> None:
        with self._lock:
            now = self._now_ms()
            state = self._tenant(tenant, now)
            for each in spent:
                # The ledger may have parts of what open leases hold, which is counted when they are settled.
                reserved, day, month = state.reserved[each.scope], (each.scope, period.day), (each.scope, period.month)
                state.by_day[day] = max(each.day - reserved, state.by_day.get(day, each.day))
                state.by_month[month] = max(each.month - reserved, state.by_month.get(month, each.month))
            self._forget_periods(state, now)

    async def period(self) -> BudgetPeriod:
        return period_of(self._now_ms())

    async def close(self) -> None:
        """Do nothing: the counters belong to the process and stay."""

    def _tenant(self, name: str, now: int) -> _Tenant:
        """Return a tenant's state without its expired leases."""
        state = self._tenants.setdefault(name, _Tenant())
        self._tenants.move_to_end(name)
        if len(self._tenants) > MAX_TENANTS:
            self._tenants.popitem(last=False)
        for lease in [key for key, lease in state.leases.items() if lease.expires_ms <= now]:
            state.drop(lease)
        for each in state.leases.values():
            each.expires_ms = min(each.expires_ms, now + self._lease_ms)  # longer only if the clock stepped back
        return state

    def _readings(self, tenant: _Tenant, scopes: Sequence[Scope], now: int) -> tuple[Reading, ...]:
        return tuple(self._reading(tenant, scope.name, now) for scope in scopes)

    def _reading(self, tenant: _Tenant, scope: str, now: int) -> Reading:
        window, period, reserved = tenant.window(scope, now // WIDTH_MS), period_of(now), tenant.reserved[scope]
        day, month = tenant.by_day.get((scope, period.day)), tenant.by_month.get((scope, period.month))
        return Reading(
            requests=window.requests.total(),
            requests_reset_ms=_reset_ms(window.requests, now),
            tokens=window.tokens.total(),
            tokens_reset_ms=_reset_ms(window.tokens, now),
            day=None if day is None else day + reserved,
            month=None if month is None else month + reserved,
            open=tenant.open[scope],
        )

    @staticmethod
    def _unknown(tenant: _Tenant, scope: Scope, period: BudgetPeriod) -> bool:
        day, month = (scope.name, period.day), (scope.name, period.month)
        return (scope.limits.tokens_per_day is not None and day not in tenant.by_day) or (
            scope.limits.tokens_per_month is not None and month not in tenant.by_month
        )

    def _refusals(
        self, tenant: _Tenant, scope: Scope, reading: Reading, request: ReservationRequest, now: int
    ) -> list[OverLimit]:
        window = tenant.windows[scope.name]
        refusals = []
        for limit in Counted:
            allowed, used = scope.limits.of(limit), reading.used(limit)
            requested = request.of(limit)
            if allowed is not None and used is not None and used + requested > allowed:
                excess = used + requested - allowed
                if limit == Counted.CONCURRENCY:
                    wait = self._until_free_ms(tenant, scope.name, excess, now)
                else:
                    wait = _wait_ms(limit, window, excess, now)
                refusals.append(OverLimit(scope, limit, allowed, used, requested, wait))
        return refusals

    def _until_free_ms(self, tenant: _Tenant, scope: str, excess: int, now: int) -> int:
        """Return the milliseconds until so many choices of the scope may have ended."""
        unrenewed = []
        for lease in tenant.leases.values():
            if scope not in lease.scopes:
                continue
            left = lease.expires_ms - now
            if left > self._lease_ms - UNRENEWED_MS:
                excess -= lease.choices
            else:
                unrenewed.append((left, lease.choices))
        wait = BUSY_WAIT_MS
        for left, choices in sorted(unrenewed):
            if excess <= 0:
                break
            wait, excess = left, excess - choices
        return wait

    def _take(self, tenant: _Tenant, request: ReservationRequest, now: int, period: BudgetPeriod) -> None:
        bucket = now // WIDTH_MS
        names = tuple(scope.name for scope in request.scopes)
        tenant.leases[request.lease] = _Lease(
            now + self._lease_ms, request.tokens, bucket, period, names, request.choices
        )
        for name in names:
            tenant.windows[name].requests[bucket] += 1
            tenant.windows[name].tokens[bucket] += request.tokens
            tenant.open[name] += request.choices
            tenant.reserved[name] += request.tokens

    @staticmethod
    def _charge(tenant: _Tenant, lease: _Lease, tokens: int, now: int) -> None:
        for scope in lease.scopes:
            window = tenant.window(scope, now // WIDTH_MS)
            if lease.bucket in window.tokens:
                window.tokens[lease.bucket] += tokens - lease.tokens
            if (scope, lease.period.day) in tenant.by_day:
                tenant.by_day[scope, lease.period.day] += tokens
            if (scope, lease.period.month) in tenant.by_month:
                tenant.by_month[scope, lease.period.month] += tokens

    @staticmethod
    def _forget_periods(tenant: _Tenant, now: int) -> None:
        """Drop old periods. A request that began before midnight is charged to yesterday, so the last one is kept."""
        today, (last_month, month, *_) = now // DAY_MS, months_around(now)
        for key in [key for key in tenant.by_day if not today - 1 <= key[1] <= today]:
            del tenant.by_day[key]
        for key in [key for key in tenant.by_month if not last_month <= key[1] <= month]:
            del tenant.by_month[key]


def _reset_ms(counts: Counter[int], now: int) -> int:
    """Return the milliseconds until the window is empty."""
    newest = max((bucket for bucket, count in counts.items() if count > 0), default=None)
    return 0 if newest is None else (newest + SPAN) * WIDTH_MS - now


def _wait_ms(limit: Counted, window: _Window, excess: int, now: int) -> int:
    """Return the milliseconds until `excess` of the usage has left the window or period."""
    if limit == Counted.TOKENS_PER_DAY:
        return (now // DAY_MS + 1) * DAY_MS - now
    if limit == Counted.TOKENS_PER_MONTH:
        return months_around(now)[2] * DAY_MS - now
    counts = window.requests if limit == Counted.REQUESTS_PER_MINUTE else window.tokens
    for bucket in sorted(counts):
        excess -= counts[bucket]
        if excess <= 0:
            return (bucket + SPAN) * WIDTH_MS - now
    return SPAN * WIDTH_MS
