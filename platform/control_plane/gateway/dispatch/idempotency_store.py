"""Stores of claims and answers of `Idempotency-Key`: the memory of one process, or Redis for many.

The number and the bytes of a tenant's answers are bounded; a new one evicts the oldest. Claims are small, bounded by
the running requests, and never evicted.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol, cast

from control_plane.core.redis_client import async_client


@dataclass(frozen=True)
class StoredAnswer:
    """The value of a key. `body` is None while the request runs; `owner` identifies the run."""

    fingerprint: str
    owner: str
    content_type: str = ""
    body: bytes | None = None


@dataclass(frozen=True)
class AnswerLimits:
    """Bounds of one tenant's kept answers: how long each is kept, how many, and their bytes."""

    seconds: int
    answers: int
    bytes: int


@dataclass(frozen=True)
class Name:
    """The name of an idempotency key: its tenant, and a digest of API key and header."""

    tenant: str
    digest: str


class AnswerStore(Protocol):
    """A store of claims and answers. Its methods may raise RedisError or OSError."""

    async def claim(self, name: Name, stored: StoredAnswer, seconds: int) -> StoredAnswer | None:
        """Store the claim for so many seconds if the key is free; else return the stored value."""

    async def renew(self, name: Name, stored: StoredAnswer, seconds: int) -> None:
        """Renew the claim; take it again if it expired and no other request has it."""

    async def keep(self, name: Name, stored: StoredAnswer, room: AnswerLimits) -> None:
        """Store the answer, unless another request has the key by now."""

    async def drop(self, name: Name, stored: StoredAnswer) -> None:
        """Free the key, unless another request has it by now."""

    async def close(self) -> None: ...


class MemoryStore:
    """A store in the memory of one process."""

    def __init__(self) -> None:
        self._entries: dict[Name, tuple[float, StoredAnswer]] = {}
        self._answers: dict[str, OrderedDict[Name, int]] = {}

    async def claim(self, name: Name, stored: StoredAnswer, seconds: int) -> StoredAnswer | None:
        known = self._get(name)
        if known is None:
            self._entries[name] = (time.monotonic() + seconds, stored)
        return known

    async def renew(self, name: Name, stored: StoredAnswer, seconds: int) -> None:
        known = self._get(name)
        if known is None or known.owner == stored.owner:
            self._entries[name] = (time.monotonic() + seconds, stored)

    async def keep(self, name: Name, stored: StoredAnswer, room: AnswerLimits) -> None:
        known = self._get(name)
        if known is not None and known.owner != stored.owner:
            return
        self._entries[name] = (time.monotonic() + room.seconds, stored)
        kept = self._answers.setdefault(name.tenant, OrderedDict())
        kept[name] = len(stored.body or b"")
        for old in list(kept):  # oldest first
            if len(kept) <= room.answers and sum(kept.values()) <= room.bytes and self._get(old) is not None:
                break
            self._forget(old)

    async def drop(self, name: Name, stored: StoredAnswer) -> None:
        known = self._get(name)
        if known is not None and known.owner == stored.owner:
            self._forget(name)

    async def close(self) -> None:
        """Do nothing: the store holds no connection."""

    def _get(self, name: Name) -> StoredAnswer | None:
        until, stored = self._entries.get(name, (0.0, None))
        if stored is not None and until <= time.monotonic():
            self._forget(name)
            return None
        return stored

    def _forget(self, name: Name) -> None:
        self._entries.pop(name, None)
        kept = self._answers.get(name.tenant)
        if kept is not None:
            kept.pop(name, None)
            if not kept:
                del self._answers[name.tenant]


# A key is a hash with the fields owner and fingerprint, and once it is answered type and body.
CLAIM = """
local known = redis.call('HMGET', KEYS[1], 'fingerprint', 'owner', 'type', 'body')
if known[1] then
  -- A claim that lives longer than any claim was set before the server's clock stepped back.
  if not known[4] and redis.call('TTL', KEYS[1]) > tonumber(ARGV[3]) then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
  return known
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fingerprint', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return false
"""
RENEW = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fingerprint', ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
"""
DROP = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
# KEYS: the key; the tenant's answers as "<bytes> <digest>", scored by the server's time in microseconds at which they
# were kept, since those of one millisecond would be in the order of their names; the sum of their bytes. ARGV: owner,
# fingerprint, type, body, digest, seconds, answers, bytes, prefix of the keys' names.
KEEP = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fingerprint', ARGV[2], 'type', ARGV[3], 'body', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[6])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function score(time) return string.format('%.0f', time) end

local function forget(member)
  redis.call('ZREM', KEYS[2], member)
  redis.call('DECRBY', KEYS[3], string.match(member, '^%d+'))
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', score(now - ARGV[6] * 1000000))) do
  forget(member)
end
-- Not before now: the server's clock stepped back, and these would be pushed out last.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], score(now), '+inf')) do
  redis.call('ZADD', KEYS[2], score(now - 1), member)
end
redis.call('ZADD', KEYS[2], score(now), #ARGV[4] .. ' ' .. ARGV[5])
local held = redis.call('INCRBY', KEYS[3], #ARGV[4])
while held > tonumber(ARGV[8]) or redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[7]) do
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  redis.call('DEL', ARGV[9] .. string.match(oldest, ' (.*)$'))
  forget(oldest)
  held = tonumber(redis.call('GET', KEYS[3]))
end
redis.call('EXPIRE', KEYS[2], ARGV[6])
redis.call('EXPIRE', KEYS[3], ARGV[6])
return 1
"""


class RedisStore:
    """A store in Redis, shared by many processes."""

    def __init__(self, url: str) -> None:
        self._redis = async_client(url)
        self._claim, self._renew, self._drop, self._keep = (
            self._redis.register_script(script) for script in (CLAIM, RENEW, DROP, KEEP)
        )

    async def claim(self, name: Name, stored: StoredAnswer, seconds: int) -> StoredAnswer | None:
        known = await self._claim([self._key(name)], [stored.owner, stored.fingerprint, seconds])
        if known is None:
            return None
        fingerprint, owner, content_type, body = cast(list[Any], known)
        return StoredAnswer(fingerprint.decode(), owner.decode(), (content_type or b"").decode(), body)

    async def renew(self, name: Name, stored: StoredAnswer, seconds: int) -> None:
        await self._renew([self._key(name)], [stored.owner, stored.fingerprint, seconds])

    async def keep(self, name: Name, stored: StoredAnswer, room: AnswerLimits) -> None:
        prefix = self._prefix(name)
        keys = [self._key(name), f"{prefix}answers", f"{prefix}bytes"]
        answer = (stored.owner, stored.fingerprint, stored.content_type, stored.body or b"", name.digest)
        await self._keep(keys, [*answer, room.seconds, room.answers, room.bytes, f"{prefix}key:"])

    async def drop(self, name: Name, stored: StoredAnswer) -> None:
        await self._drop([self._key(name)], [stored.owner])

    async def close(self) -> None:
        await self._redis.aclose()

    @staticmethod
    def _prefix(name: Name) -> str:
        # The braces are a hash tag: a Redis cluster keeps all keys of a tenant on one node.
        return f"lorikeet:idempotency:{{{name.tenant}}}:"

    def _key(self, name: Name) -> str:
        return f"{self._prefix(name)}key:{name.digest}"
