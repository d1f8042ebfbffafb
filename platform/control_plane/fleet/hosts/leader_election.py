"""Election of one leader among processes: only it follows the hosts and writes what they report."""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path
from typing import Protocol

from control_plane.core import config
from control_plane.core.redis_client import client

# Renew only this process's lease: a leader that was suspended must not take it back from its successor. A foreign lease
# with more than the usual lifetime left was set before the server's clock stepped back; cut it to the usual lifetime.
_RENEW = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
if redis.call('pttl', KEYS[1]) > tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
"""
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Lease(Protocol):
    """A lease on leadership: ``hold`` acquires or renews it and returns whether this process leads now."""

    def hold(self) -> bool: ...

    def release(self) -> None: ...


class RedisLease:
    """A lease in Redis, for processes on several machines. A leader that dies is replaced after ``ttl_s``."""

    def __init__(self, url: str, name: str, ttl_s: float) -> None:
        self._redis = client(url)
        self._key = f"lorikeet:lease:{name}"
        self._ttl_ms = int(ttl_s * 1000)
        self._me = uuid.uuid4().hex

    def hold(self) -> bool:
        if self._redis.set(self._key, self._me, nx=True, px=self._ttl_ms):
            return True
        return bool(self._redis.eval(_RENEW, 1, self._key, self._me, self._ttl_ms))

    def release(self) -> None:
        self._redis.eval(_RELEASE, 1, self._key, self._me)


class FileLease:
    """A file lock, for processes of one machine. The kernel releases it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def hold(self) -> bool:
        if self._descriptor is not None:
            return True
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def make_lease(name: str, ttl_s: float = 10.0) -> Lease:
    """Return a lease in Redis if it is configured, else a file lock in the run-time folder."""
    settings = config.current()
    if settings.redis_url:
        return RedisLease(settings.redis_url, name, ttl_s)
    return FileLease(settings.var_dir / f"{name}.lock")
