"""`Idempotency-Key`: a request that is sent twice runs once, and both senders receive the same answer.

For each key, a digest of the request (never the request) and the whole answer are kept for `LORIKEET_IDEMPOTENCY_S`.
Only successful answers are kept: after an error, or a client that left early, the same key may run again.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from control_plane.core import config
from control_plane.core.cancellation import to_completion
from control_plane.gateway.dispatch.errors import ApiError, invalid
from control_plane.gateway.dispatch.idempotency_store import (
    AnswerLimits,
    AnswerStore,
    MemoryStore,
    Name,
    RedisStore,
    StoredAnswer,
)
from control_plane.identity.access.principal import Principal

# Seconds of a claim, and between renewals. A process that dies frees its keys after the first, so that the caller can
# repeat the request at another process.
LEASE_S, RENEW_S = 15, 4.0
# Characters that an idempotency key may have.
LONGEST_KEY = 255
# Bytes of an answer that is kept; a larger one frees its key.
MAX_BYTES = 1 << 20


class Claim:
    """The right to answer under a key, for as long as this object lives. End it once, by `keep` or `release`."""

    def __init__(self, owner: Idempotency, name: Name, fingerprint: str) -> None:
        self._owner, self.name = owner, name
        self._stored = StoredAnswer(fingerprint, uuid.uuid4().hex)
        self._over = False
        self._last_write: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stored(self) -> StoredAnswer:
        """The stored value that marks the request as running."""
        return self._stored

    def hold(self) -> None:
        """Renew the claim until its end, however long the answer takes."""
        self._timer = asyncio.get_running_loop().call_later(RENEW_S, _renew, weakref.ref(self))

    def renew(self) -> None:
        if not self._over:
            self._write("renew", self._stored, LEASE_S)
            self.hold()

    def keep(self, content_type: str, body: bytes) -> None:
        """Keep the answer as it was sent. One that is too large frees the key instead."""
        if len(body) > MAX_BYTES:
            self.release()
        elif self._end():
            answer = StoredAnswer(self._stored.fingerprint, self._stored.owner, content_type, body)
            self._write("keep", answer, room())

    def release(self) -> None:
        """Free the key. Idempotent; does nothing after `keep`."""
        if self._end():
            self._write("drop", self._stored)

    def _write(self, method: str, *arguments: Any) -> None:
        """Write after the previous write: a renewal that overtook the drop would claim the key again."""
        self._last_write = self._owner.later(self._last_write, method, self.name, *arguments)

    def _end(self) -> bool:
        """End the claim. Returns False if it had ended before."""
        if self._timer is not None:
            self._timer.cancel()
        before, self._over = self._over, True
        return not before


def _renew(reference: weakref.ref[Claim]) -> None:
    # The timer holds a weak reference: a claim that was dropped without an end frees its key.
    if (claim := reference()) is not None:
        claim.renew()


class Idempotency:
    """The claims of idempotency keys and the kept answers, for one event loop."""

    def __init__(self, answers: AnswerStore) -> None:
        self._answers = answers
        self._writing: set[asyncio.Task[None]] = set()

    async def claim(self, principal: Principal, idempotency_key: str, path: str, body: bytes) -> Claim | StoredAnswer:
        """Return the kept answer, or the right to answer. Raises ``ApiError`` (400, 409, 422, 503)."""
        if not 0 < len(idempotency_key) <= LONGEST_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {LONGEST_KEY} characters.", "Send a UUID, for example.")
        assert principal.api_key is not None
        digest = hashlib.sha256(f"{principal.api_key.pk}/{idempotency_key}".encode()).hexdigest()
        fingerprint = hashlib.sha256(path.encode() + b"\0" + body).hexdigest()
        claim = Claim(self, Name(str(principal.tenant.pk), digest), fingerprint)
        try:
            known = await to_completion(self._query(self._answers.claim(claim.name, claim.stored, LEASE_S)))
        except BaseException:
            claim.release()  # the store may have recorded the claim before the failure
            raise
        if known is None or known.owner == claim.stored.owner:  # the store's client may have retried the command
            claim.hold()
            return claim
        if known.fingerprint != fingerprint:
            raise _reused()
        if known.body is None:
            raise _running()
        return known

    def later(self, previous: asyncio.Task[None] | None, method: str, *arguments: Any) -> asyncio.Task[None]:
        """Write in the background, so that the answer does not wait, after the previous write has ended."""
        task = asyncio.create_task(self._write(previous, partial(getattr(self._answers, method), *arguments)))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def close(self) -> None:
        while self._writing:
            await asyncio.gather(*self._writing)
        await self._answers.close()

    @staticmethod
    async def _query(call: Awaitable[StoredAnswer | None]) -> StoredAnswer | None:
        try:
            return await call
        except (RedisError, OSError) as error:
            raise ApiError(
                503,
                "idempotency_unavailable",
                "The store of idempotency keys cannot be reached now, so this key could not be checked.",
                "Send the request again in a few seconds, or without the key.",
                retry_after_s=2.0,
            ) from error

    @staticmethod
    async def _write(previous: asyncio.Task[None] | None, call: Callable[[], Awaitable[None]]) -> None:
        if previous is not None:
            await asyncio.wait([previous])
        try:
            await call()
        except (RedisError, OSError):
            return  # the key expires by itself


def make_answers() -> AnswerStore:
    url = config.current().redis_url
    return RedisStore(url) if url else MemoryStore()


def room() -> AnswerLimits:
    """Return the bounds of one tenant's kept answers."""
    settings = config.current()
    return AnswerLimits(settings.idempotency_s, settings.idempotency_max_answers, settings.idempotency_max_bytes)


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
