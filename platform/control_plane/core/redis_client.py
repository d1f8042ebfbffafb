"""Connections to Redis: short waits, a circuit breaker, and no connection to a server that accepts no writes.

Every client of Redis is made here, or takes its options from here; Celery has its own (`broker.py`).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio
from redis.asyncio.connection import Connection as AsyncConnection
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection
from redis.asyncio.connection import UnixDomainSocketConnection as AsyncUnixConnection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError, ReadOnlyError, TimeoutError
from redis.retry import Retry

from control_plane.core import config
from control_plane.core.breaker import Breaker

TIMEOUT_S = 1.0  # for an answer
# Seconds of TCP keepalive. A machine that vanished closes no connection: the kernel probes it after this silence.
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3}


def _probe(url: str) -> None:
    """Raise unless Redis answers and accepts writes. Deleting is allowed even when its memory is full."""
    with _plain_client(url) as client:
        client.delete("lorikeet:probe")


def _plain_client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


@cache
def breaker_of(url: str) -> Breaker:
    """Return the breaker of the server at this URL."""
    return Breaker("Redis", partial(_probe, url))


def breaker() -> Breaker:
    """Return the breaker of this installation's Redis. Without one it is never open."""
    return breaker_of(config.current().redis_url)


@contextmanager
def _connecting(breaker: Breaker) -> Iterator[None]:
    if breaker.is_open:
        raise ConnectionError(f"Redis is unavailable: {breaker.reason}")
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        breaker.trip(error)
        raise


@contextmanager
def _reading(breaker: Breaker) -> Iterator[None]:
    """Trip the breaker on a timeout. A broken connection is no sign of an outage yet: the next one may succeed."""
    try:
        yield
    except (TimeoutError, ReadOnlyError) as error:
        breaker.trip(error)
        raise


class _WithBreaker:
    """A connection made only while the breaker is closed. It leaves a server that became a replica (failover)."""

    def __init__(self, *args: Any, breaker: Breaker, **kwargs: Any) -> None:
        self._breaker = breaker
        super().__init__(*args, **kwargs)

    def connect(self) -> None:
        with _connecting(self._breaker):
            super().connect()  # type: ignore[misc]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _reading(self._breaker):
                return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except ReadOnlyError:
            self.disconnect()  # type: ignore[attr-defined]
            raise


class _AsyncWithBreaker:
    """A connection for event loops with the breaker's rules of `_WithBreaker`."""

    def __init__(self, *args: Any, breaker: Breaker, **kwargs: Any) -> None:
        self._breaker = breaker
        super().__init__(*args, **kwargs)

    async def connect(self) -> None:
        with _connecting(self._breaker):
            await super().connect()  # type: ignore[misc]

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _reading(self._breaker):
                return await super().read_response(*args, **kwargs)  # type: ignore[misc]
        except ReadOnlyError:
            await self.disconnect()  # type: ignore[attr-defined]
            raise


class GuardedConnection(_WithBreaker, Connection):
    pass


class GuardedSSLConnection(_WithBreaker, SSLConnection):
    pass


class GuardedUnixConnection(_WithBreaker, UnixDomainSocketConnection):
    pass


class AsyncGuardedConnection(_AsyncWithBreaker, AsyncConnection):
    pass


class AsyncGuardedSSLConnection(_AsyncWithBreaker, AsyncSSLConnection):
    pass


class AsyncGuardedUnixConnection(_AsyncWithBreaker, AsyncUnixConnection):
    pass


_CLASSES = {
    "redis": (GuardedConnection, AsyncGuardedConnection),
    "rediss": (GuardedSSLConnection, AsyncGuardedSSLConnection),
    "unix": (GuardedUnixConnection, AsyncGuardedUnixConnection),
}


def options(url: str, *, asynchronous: bool, timeout_s: float | None = TIMEOUT_S) -> dict[str, Any]:
    """Return the options for `from_url` of a client or pool. `timeout_s`: longest wait for an answer; None for ever."""
    kind = _CLASSES[urlsplit(url).scheme][asynchronous]
    # Retry once, for a stale connection; not after a timeout, which would only double the wait.
    retry = (AsyncRetry if asynchronous else Retry)(NoBackoff(), 1, (ConnectionError,))
    made: dict[str, Any] = {
        "connection_class": kind,
        "breaker": breaker_of(url),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": TIMEOUT_S,
        "retry": retry,
    }
    return made if issubclass(kind, _UNIX) else {**made, "socket_keepalive": True, "socket_keepalive_options": _idle()}


def channel_options(url: str) -> dict[str, Any]:
    """Return the options for Channels: a socket waits five seconds at a time for messages, plus a margin."""
    return options(url, asynchronous=True, timeout_s=10.0)


def broker_options(url: str) -> dict[str, Any]:
    """Return the options for Celery, whose consumers wait a second at a time for tasks."""
    made: dict[str, Any] = {"socket_connect_timeout": 2.0, "socket_timeout": 5.0, "health_check_interval": 10}
    if urlsplit(url).scheme == "unix":
        return made
    return {**made, "socket_keepalive": True, "socket_keepalive_options": _idle()}


_UNIX = (UnixDomainSocketConnection, AsyncUnixConnection)


def _idle() -> dict[int, int]:
    """Return the keepalive options that this system supports."""
    return {getattr(socket, name): value for name, value in _KEEPALIVE.items() if hasattr(socket, name)}


def client(url: str) -> redis.Redis:
    """Return a client for synchronous code."""
    return redis.Redis.from_url(url, **options(url, asynchronous=False))


def async_client(url: str, *, timeout_s: float | None = TIMEOUT_S, **more: Any) -> redis.asyncio.Redis:
    """Return a client for one event loop."""
    return redis.asyncio.Redis.from_url(url, **options(url, asynchronous=True, timeout_s=timeout_s), **more)


async def check() -> None:
    """Raise unless Redis answers and accepts writes now."""
    await asyncio.to_thread(_write_something)


def _write_something() -> None:
    with _plain_client(config.current().redis_url) as plain:
        plain.set("lorikeet:probe", 1, px=1000)
