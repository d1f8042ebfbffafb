"""`Idempotency-Key`: a request that is sent twice runs once, and both senders get the same answer.

Kept for each key: a digest of the request, never the request, and the whole answer, for `LORIKEET_IDEMPOTENCY_S`. Only
answers that succeeded are kept: after an error, or a client that left in the middle, the same key may run again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import redis.asyncio
from redis.exceptions import RedisError

from control_plane import config
from control_plane.access.principal import Principal
from control_plane.gateway.errors import ApiError, invalid

RUNNING_S = 300
"""A process that died while it answered holds the key no longer than this."""
LONGEST_KEY = 255
MOST_BYTES = 1 << 20
MOST_KEPT = 10_000
TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Stored:
    """`body` is None while the request runs."""

    fingerprint: str
    content_type: str = ""
    body: bytes | None = None

    def dump(self) -> str:
        body = None if self.body is None else base64.b64encode(self.body).decode()
        return json.dumps([self.fingerprint, self.content_type, body])

    @classmethod
    def load(cls, text: str | bytes) -> Stored:
        fingerprint, content_type, body = json.loads(text)
        return cls(fingerprint, content_type, None if body is None else base64.b64decode(body))


class Answers(Protocol):
    """Where answers are kept. May raise RedisError or OSError."""

    async def claim(self, name: str, stored: Stored, seconds: int) -> Stored | None:
        """Store if there is nothing; else what is there."""

    async def put(self, name: str, stored: Stored, seconds: int) -> None: ...

    async def drop(self, name: str) -> None: ...

    async def close(self) -> None: ...


class MemoryAnswers:
    """Of one process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Stored]] = OrderedDict()

    async def claim(self, name: str, stored: Stored, seconds: int) -> Stored | None:
        known = self._kept.get(name)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        await self.put(name, stored, seconds)
        return None

    async def put(self, name: str, stored: Stored, seconds: int) -> None:
        self._kept[name] = (time.monotonic() + seconds, stored)
        self._kept.move_to_end(name)
        now = time.monotonic()
        while self._kept and (len(self._kept) > MOST_KEPT or next(iter(self._kept.values()))[0] < now):
            self._kept.popitem(last=False)

    async def drop(self, name: str) -> None:
        self._kept.pop(name, None)

    async def close(self) -> None:
        """Nothing is open."""


class RedisAnswers:
    """Of many processes."""

    def __init__(self, url: str) -> None:
        self._redis: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S
        )

    async def claim(self, name: str, stored: Stored, seconds: int) -> Stored | None:
        known = await self._redis.set(self._key(name), stored.dump(), nx=True, get=True, ex=seconds)
        return None if known is None else Stored.load(cast(bytes, known))

    async def put(self, name: str, stored: Stored, seconds: int) -> None:
        await self._redis.set(self._key(name), stored.dump(), ex=seconds)

    async def drop(self, name: str) -> None:
        await self._redis.delete(self._key(name))

    async def close(self) -> None:
        await self._redis.aclose()

    @staticmethod
    def _key(name: str) -> str:
        return f"lorikeet:idempotency:{name}"


class Claim:
    """The right to answer under a key. End it once: `keep` or `release`."""

    def __init__(self, owner: Idempotency, name: str, fingerprint: str) -> None:
        self._owner, self._name, self._fingerprint = owner, name, fingerprint
        self._over = False

    def keep(self, content_type: str, body: bytes) -> None:
        """The answer as it was sent. One too large to keep frees the key."""
        if len(body) > MOST_BYTES:
            self.release()
        elif not self._over:
            self._over = True
            self._owner.later(
                "put", self._name, Stored(self._fingerprint, content_type, body), config.current().idempotency_s
            )

    def release(self) -> None:
        """Idempotent; nothing after `keep`."""
        if not self._over:
            self._over = True
            self._owner.later("drop", self._name)


class Idempotency:
    """Of one event loop."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._writing: set[asyncio.Task[None]] = set()

    async def claim(self, principal: Principal, offered: str, path: str, body: bytes) -> Claim | Stored:
        """The answer that was given already, or the right to give it. Raises ``ApiError`` (400, 409, 422, 503)."""
        if not 0 < len(offered) <= LONGEST_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters.", "Send a UUID, for example.")
        assert principal.api_key is not None
        name = hashlib.sha256(f"{principal.api_key.pk}/{offered}".encode()).hexdigest()
        fingerprint = hashlib.sha256(path.encode() + b"\0" + body).hexdigest()
        known = await self._ask(self._answers.claim(name, Stored(fingerprint), RUNNING_S))
        if known is None:
            return Claim(self, name, fingerprint)
        if known.fingerprint != fingerprint:
            raise _reused()
        if known.body is None:
            raise _running()
        return known

    def later(self, method: str, *arguments: Any) -> None:
        """Write without holding up the answer."""
        task = asyncio.ensure_future(self._write(getattr(self._answers, method)(*arguments)))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def close(self) -> None:
        while self._writing:
            await asyncio.gather(*self._writing)
        await self._answers.close()

    @staticmethod
    async def _ask(call: Awaitable[Stored | None]) -> Stored | None:
        try:
            return await call
        except (RedisError, OSError) as error:
            raise ApiError(
                503,
                "idempotency_unavailable",
                "Whether this Idempotency-Key was used before cannot be looked up now.",
                "Send the request again in a few seconds, or without the key.",
                retry_after_s=2.0,
            ) from error

    @staticmethod
    async def _write(call: Awaitable[None]) -> None:
        try:
            await call
        except (RedisError, OSError):
            return  # the key expires by itself


def make_answers() -> Answers:
    url = config.current().redis_url
    return RedisAnswers(url) if url else MemoryAnswers()


def _reused() -> ApiError:
    return ApiError(
        422,
        "idempotency_key_reused",
        "This Idempotency-Key was used for a different request.",
        "Use a new key for each request; the same one only to send the same request again.",
    )


def _running() -> ApiError:
    return ApiError(
        409,
        "idempotency_in_progress",
        "A request with this Idempotency-Key is being answered.",
        "Send it again in a moment to get its answer.",
        retry_after_s=1.0,
    )
