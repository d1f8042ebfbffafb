"""One leader among processes: who follows the hosts and writes what they report."""

from __future__ import annotations

import fcntl
import os
import uuid
from pathlib import Path
from typing import Protocol

from control_plane.core import config
from control_plane.core.redis_client import client

# Renews only what is still ours: a leader that was suspended must not take the lease back from its successor. Another's
# lease that lives longer than any lease was set before the server's clock stepped back; it is cut to its usual life.
_RENEW = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
if redis.call('pttl', KEYS[1]) > tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
"""
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class Lease(Protocol):
    """``hold`` acquires or renews and says whether this process leads now."""

    def hold(self) -> bool: ...

    def release(self) -> None: ...


class RedisLease:
    """For processes on several machines. A leader that dies is replaced after ``ttl_s``."""

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
    """For processes of one machine. The kernel gives the lock back when its holder dies."""

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
    """In Redis if there is one, else in a file of the run-time folder."""
    settings = config.current()
    if settings.redis_url:
        return RedisLease(settings.redis_url, name, ttl_s)
    return FileLease(settings.var_dir / f"{name}.lock")
