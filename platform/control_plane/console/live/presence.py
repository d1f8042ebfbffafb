"""Presence of open consoles: only tenants with one receive heartbeats."""

from __future__ import annotations

import threading
from collections import Counter
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from control_plane.core import config
from control_plane.core.redis_client import client

# Seconds between two refreshes of a console's presence, and until it expires without one.
REFRESH_S = 20.0
EXPIRY_S = 60.0
_KEY = "lorikeet:live:present"
# Extends the entry of a tenant, by the server's clock, which all processes share. ARGV: seconds until the entry
# expires, the tenant.
_REFRESH = "return redis.call('ZADD', KEYS[1], redis.call('TIME')[1] + ARGV[1], ARGV[2])"
# Drops expired entries, and those that live longer than any entry can: the clock stepped back after them.
_PRESENT = """
local now = redis.call('TIME')[1]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now + ARGV[1], '+inf')
return redis.call('ZRANGE', KEYS[1], 0, -1)
"""


class Presence(Protocol):
    def enter(self, tenant_id: UUID) -> None: ...

    def refresh(self, tenant_id: UUID) -> None:
        """Extend the presence of an open console; call it every ``REFRESH_S``."""

    def leave(self, tenant_id: UUID) -> None: ...

    def tenants(self) -> set[UUID]: ...


class MemoryPresence:
    """The presence of one web process's consoles."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[UUID] = Counter()

    def enter(self, tenant_id: UUID) -> None:
        with self._lock:
            self._open[tenant_id] += 1

    def refresh(self, tenant_id: UUID) -> None:
        """Do nothing: the count is exact, so nothing expires."""

    def leave(self, tenant_id: UUID) -> None:
        with self._lock:
            self._open[tenant_id] -= 1
            self._open += Counter()  # drops what is not positive

    def tenants(self) -> set[UUID]:
        with self._lock:
            return set(self._open)


class RedisPresence:
    """The presence over many web processes. The entries of a process that dies expire after ``EXPIRY_S``."""

    def __init__(self, url: str) -> None:
        self._redis = client(url)

    def enter(self, tenant_id: UUID) -> None:
        self.refresh(tenant_id)

    def refresh(self, tenant_id: UUID) -> None:
        self._redis.eval(_REFRESH, 1, _KEY, int(EXPIRY_S), str(tenant_id))

    def leave(self, tenant_id: UUID) -> None:
        """Do nothing: another process may have a socket of the tenant, so the entry is left to expire."""

    def tenants(self) -> set[UUID]:
        members: Any = self._redis.eval(_PRESENT, 1, _KEY, int(EXPIRY_S))
        return {UUID(member.decode()) for member in members}


@lru_cache(maxsize=1)
def presence() -> Presence:
    url = config.current().redis_url
    return RedisPresence(url) if url else MemoryPresence()


def present_tenants() -> set[UUID]:
    return presence().tenants()
