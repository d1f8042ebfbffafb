"""Which tenants have a console open: only they receive heartbeats."""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from control_plane import config
from control_plane.redis_client import client

REFRESH_S = 20.0
EXPIRY_S = 60.0
_KEY = "lorikeet:live:present"


class Presence(Protocol):
    def enter(self, tenant_id: UUID) -> None: ...

    def refresh(self, tenant_id: UUID) -> None:
        """The console is still open: to be said every ``REFRESH_S``."""

    def leave(self, tenant_id: UUID) -> None: ...

    def tenants(self) -> set[UUID]: ...


class MemoryPresence:
    """For one web process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[UUID] = Counter()

    def enter(self, tenant_id: UUID) -> None:
        with self._lock:
            self._open[tenant_id] += 1

    def refresh(self, tenant_id: UUID) -> None:
        """The count is exact: nothing expires here."""

    def leave(self, tenant_id: UUID) -> None:
        with self._lock:
            self._open[tenant_id] -= 1
            self._open += Counter()  # drops what is not positive

    def tenants(self) -> set[UUID]:
        with self._lock:
            return set(self._open)


class RedisPresence:
    """For many. A process that dies without leaving is forgotten after ``EXPIRY_S``."""

    def __init__(self, url: str) -> None:
        self._redis = client(url)

    def enter(self, tenant_id: UUID) -> None:
        self.refresh(tenant_id)

    def refresh(self, tenant_id: UUID) -> None:
        self._redis.zadd(_KEY, {str(tenant_id): time.time() + EXPIRY_S})

    def leave(self, tenant_id: UUID) -> None:
        """Another socket of the tenant may be open elsewhere, so the entry is left to expire."""

    def tenants(self) -> set[UUID]:
        self._redis.zremrangebyscore(_KEY, "-inf", time.time())
        members: list[bytes] = self._redis.zrange(_KEY, 0, -1)  # type: ignore[assignment]
        return {UUID(member.decode()) for member in members}


@lru_cache(maxsize=1)
def presence() -> Presence:
    url = config.current().redis_url
    return RedisPresence(url) if url else MemoryPresence()


def present_tenants() -> set[UUID]:
    return presence().tenants()
