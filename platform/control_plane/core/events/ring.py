"""A ring of the last events of each tenant, numbered without gaps, for replay after a reconnect.

Numbers begin at the wall clock in milliseconds. So a ring that was lost with its process starts beyond every number
that it assigned before, and a client that requests older events has to start over.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from control_plane.core import config
from control_plane.core.redis_client import client

LENGTH = 256  # events for each tenant
# Maximum number of tenants whose events one process keeps in memory.
MAX_TENANTS = 1000
EXPIRY_S = 3600  # after a tenant's last event

# Appends an event in one atomic step: the next number, the entry under that number, and an expiry of both after an hour
# without events.
_APPEND = """
if redis.call('exists', KEYS[1]) == 0 then redis.call('set', KEYS[1], ARGV[3]) end
local seq = redis.call('incr', KEYS[1])
redis.call('xadd', KEYS[2], 'MAXLEN', ARGV[4], string.format('%.0f-0', seq), 'e', ARGV[1], 'd', ARGV[2])
redis.call('expire', KEYS[1], ARGV[5])
redis.call('expire', KEYS[2], ARGV[5])
return seq
"""


@dataclass(frozen=True)
class LiveEvent:
    seq: int
    name: str
    data: dict[str, Any]

    def frame(self) -> str:
        return json.dumps({"type": "event", "seq": self.seq, "event": self.name, "data": self.data})


class Ring(Protocol):
    """The last events of each tenant. Thread-safe."""

    def append(self, tenant: str, name: str, data: dict[str, Any]) -> LiveEvent: ...

    def last(self, tenant: str) -> int:
        """Return the newest number."""

    def after(self, tenant: str, seq: int) -> list[LiveEvent] | None:
        """Return everything newer than ``seq``, or None if some of it was dropped."""

    def forget(self, tenant: str) -> None:
        """Drop the tenant's ring after an event was lost: clients that request newer events have to start over."""


class MemoryRing:
    """A ring in the memory of one process."""

    def __init__(self, length: int = LENGTH, most_tenants: int = MAX_TENANTS) -> None:
        self._length, self._most_tenants = length, most_tenants
        self._lock = threading.Lock()
        self._last: OrderedDict[str, int] = OrderedDict()
        self._events: dict[str, deque[LiveEvent]] = {}

    def append(self, tenant: str, name: str, data: dict[str, Any]) -> LiveEvent:
        with self._lock:
            event = LiveEvent(self._number(tenant) + 1, name, data)
            self._last[tenant] = event.seq
            self._events[tenant].append(event)
        return event

    def last(self, tenant: str) -> int:
        with self._lock:
            return self._number(tenant)

    def after(self, tenant: str, seq: int) -> list[LiveEvent] | None:
        with self._lock:
            last = self._number(tenant)
            return select_after(list(self._events[tenant]), seq, last)

    def forget(self, tenant: str) -> None:
        with self._lock:
            self._last.pop(tenant, None)
            self._events.pop(tenant, None)

    def _number(self, tenant: str) -> int:
        if tenant not in self._last:
            self._last[tenant], self._events[tenant] = first_number(), deque(maxlen=self._length)
        self._last.move_to_end(tenant)
        if len(self._last) > self._most_tenants:
            del self._events[self._last.popitem(last=False)[0]]
        return self._last[tenant]


class RedisRing:
    """A ring that many processes share: a counter and a capped stream in Redis for each tenant."""

    def __init__(self, url: str, length: int = LENGTH) -> None:
        self._redis = client(url)
        self._length = length

    def append(self, tenant: str, name: str, data: dict[str, Any]) -> LiveEvent:
        arguments = (name, json.dumps(data), first_number(), self._length, EXPIRY_S)
        seq: Any = self._redis.eval(_APPEND, 2, *self._keys(tenant), *arguments)
        return LiveEvent(int(seq), name, data)

    def last(self, tenant: str) -> int:
        counter = self._keys(tenant)[0]
        self._redis.set(counter, first_number(), nx=True, ex=EXPIRY_S)
        value: Any = self._redis.get(counter)
        return int(value)

    def after(self, tenant: str, seq: int) -> list[LiveEvent] | None:
        rows: Any = self._redis.xrange(self._keys(tenant)[1])
        events = [LiveEvent(int(key.split(b"-")[0]), row[b"e"].decode(), json.loads(row[b"d"])) for key, row in rows]
        return select_after(events, seq, self.last(tenant))

    def forget(self, tenant: str) -> None:
        self._redis.delete(*self._keys(tenant))

    @staticmethod
    def _keys(tenant: str) -> tuple[str, str]:
        return f"lorikeet:live:{{{tenant}}}:seq", f"lorikeet:live:{{{tenant}}}:events"


def first_number() -> int:
    return int(time.time() * 1000)


def select_after(events: list[LiveEvent], seq: int, last: int) -> list[LiveEvent] | None:
    """Return the events beyond ``seq``; None if these do not continue from ``seq`` without a gap."""
    if seq == last:
        return []
    if not events or not events[0].seq - 1 <= seq < last:
        return None
    return [event for event in events if event.seq > seq]


@lru_cache(maxsize=1)
def ring() -> Ring:
    url = config.current().redis_url
    return RedisRing(url) if url else MemoryRing()
