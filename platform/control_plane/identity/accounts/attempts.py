"""Limits on attempts: to sign in, to guess a password, to have e-mail sent.

Attempts are counted by client address and by account, each in one atomic step: of forty that come at once, only as many
pass as the rate permits. A refused attempt is not counted. An account is counted by the address that was typed, whether
it exists or not, so that a refusal reveals nothing.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from redis.exceptions import RedisError

from control_plane.core.config import Rate, current
from control_plane.core.errors import LorikeetError
from control_plane.core.http.client_address import network_of
from control_plane.core.redis_client import client
from control_plane.core.unavailable import UnavailableError
from control_plane.identity.accounts.addresses import normalise_email

# Maximum number of counters in one process's memory.
MAX_NAMES = 100_000
# Mails that one address may be sent.
MAILS = Rate(5, 3600)
# Redirects to the provider and back, by client address: a whole office may share one.
PROVIDER = Rate(60, 60)

_TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local most, window = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
-- Later than now: the server's clock stepped back, and the account would stay locked until it caught up.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
if redis.call('ZCARD', KEYS[1]) >= most then
  return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] + window - now
end
redis.call('ZADD', KEYS[1], now, ARGV[3])
redis.call('PEXPIRE', KEYS[1], window)
return 0
"""


class TooManyAttemptsError(LorikeetError):
    def __init__(self, wait_s: float) -> None:
        super().__init__(
            "too_many_requests",
            "There were too many attempts from your address or for this account.",
            f"Wait {math.ceil(wait_s)} s, then try again.",
            status=429,
        )
        self.retry_after_s = wait_s


class AttemptsUncountedError(UnavailableError):
    """Attempts cannot be counted, so none is accepted: passwords could be guessed without a limit."""

    def __init__(self) -> None:
        message = "Attempts to sign in cannot be counted at the moment, so this one was refused."
        super().__init__("redis_unavailable", message)


class AttemptLimiter(Protocol):
    """A limiter that permits the rate's number within any of its periods. Thread-safe."""

    def take(self, name: str, rate: Rate) -> float:
        """Count an attempt and return 0; or count nothing and return the seconds until one is permitted."""


class MemoryAttempts:
    """A limiter in the memory of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_names: int = MAX_NAMES) -> None:
        self._clock, self._most_names = clock, most_names
        self._lock = threading.Lock()
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def take(self, name: str, rate: Rate) -> float:
        with self._lock:
            now = self._clock()
            times = self._times.setdefault(name, deque())
            self._times.move_to_end(name)
            if len(self._times) > self._most_names:
                self._times.popitem(last=False)
            while times and times[0] <= now - rate.seconds:
                times.popleft()
            if len(times) >= rate.count:
                return times[0] + rate.seconds - now
            times.append(now)
            return 0.0


class RedisAttempts:
    """A limiter that many processes share, by the clock of the Redis server."""

    def __init__(self, url: str) -> None:
        self._take = client(url).register_script(_TAKE)

    def take(self, name: str, rate: Rate) -> float:
        """Count an attempt as `AttemptLimiter.take` does. Raises AttemptsUncountedError."""
        arguments: list[str | int] = [rate.count, rate.seconds * 1000, uuid.uuid4().hex]
        try:
            wait_ms: Any = self._take(keys=[f"lorikeet:attempts:{name}"], args=arguments)
        except (RedisError, OSError) as error:
            raise AttemptsUncountedError from error
        return int(wait_ms) / 1000


@lru_cache(maxsize=1)
def limiter() -> AttemptLimiter:
    url = current().redis_url
    return RedisAttempts(url) if url else MemoryAttempts()


def count_address(what: str, address: str, rate: Rate | None = None) -> None:
    """Count an attempt at `what` from a client's address; IPv6 by its /64. Raises TooManyAttemptsError."""
    _count(f"{what}:from:{network_of(address)}", rate or current().login_rate)


def count_account(what: str, email: str, rate: Rate | None = None) -> None:
    """Count an attempt at `what` for an account, from any address. Raises TooManyAttemptsError."""
    digest = hashlib.sha256(normalise_email(email).encode(errors="replace")).hexdigest()
    _count(f"{what}:for:{digest}", rate or current().login_account_rate)


def _count(name: str, rate: Rate) -> None:
    wait_s = limiter().take(name, rate)
    if wait_s > 0:
        raise TooManyAttemptsError(wait_s)
