"""What `Idempotency-Key` keeps is bounded for each tenant, and a key is one run's for as long as that runs."""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio
import redis

from control_plane.gateway.dispatch import idempotency, idempotency_store
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.dispatch.idempotency import MAX_BYTES, Claim, Idempotency
from control_plane.gateway.dispatch.idempotency_store import (
    AnswerLimits,
    AnswerStore,
    MemoryStore,
    Name,
    RedisStore,
    StoredAnswer,
)
from control_plane.gateway.openai.sse import EventStreamResponse

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")
ROOM = AnswerLimits(seconds=60, answers=4, bytes=1000)


@pytest_asyncio.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[AnswerStore]:
    made: AnswerStore = MemoryStore() if request.param == "memory" else RedisStore(REDIS_URL)
    yield made
    await made.close()


async def answer(store: AnswerStore, tenant: str, digest: str, size: int, room: AnswerLimits = ROOM) -> None:
    stored = StoredAnswer("f", f"run of {digest}")
    assert await store.claim(Name(tenant, digest), stored, 60) is None
    await store.keep(Name(tenant, digest), StoredAnswer("f", stored.owner, "text/plain", b"x" * size), room)


async def kept(store: AnswerStore, tenant: str, digests: str) -> str:
    """Those whose answer is there. Asking for another claims it, which is taken back."""
    found = ""
    for digest in digests:
        known = await store.claim(Name(tenant, digest), StoredAnswer("f", "looking"), 60)
        if known is None:
            await store.drop(Name(tenant, digest), StoredAnswer("f", "looking"))
        elif known.body is not None:
            found += digest
    return found


async def test_answers_of_a_tenant_are_counted(store: AnswerStore, tenant_id: str) -> None:
    for digest in "abcdef":
        await answer(store, tenant_id, digest, 1)
    assert await kept(store, tenant_id, "abcdef") == "cdef"


async def test_bytes_of_a_tenant_are_counted(store: AnswerStore, tenant_id: str) -> None:
    for digest in "abc":
        await answer(store, tenant_id, digest, 400)
    assert await kept(store, tenant_id, "abc") == "bc"
    await answer(store, tenant_id, "d", 1000)
    assert await kept(store, tenant_id, "abcd") == "d"
    await answer(store, tenant_id, "e", 1001)  # more than there is room for at all
    assert await kept(store, tenant_id, "abcde") == ""
    await answer(store, tenant_id, "f", 10)
    assert await kept(store, tenant_id, "f") == "f"


async def test_answers_of_one_moment_are_pushed_out_in_their_order(store: AnswerStore, tenant_id: str) -> None:
    """Also within a millisecond: the order is not that of their names or sizes."""
    for number in range(100):
        tenant = f"{tenant_id}{number}"
        for digest, size in (("d", 400), ("c", 400), ("b", 1000), ("a", 10)):
            await answer(store, tenant, digest, size)
        assert await kept(store, tenant, "abcd") == "a"


async def test_one_tenant_does_not_push_out_anothers(store: AnswerStore, tenant_id: str) -> None:
    other = uuid.uuid4().hex
    await answer(store, other, "a", 900)
    for digest in "bcdefgh":
        await answer(store, tenant_id, digest, 900)
    assert await kept(store, other, "a") == "a"
    assert await kept(store, tenant_id, "bcdefgh") == "h"


async def test_a_running_request_is_not_pushed_out(store: AnswerStore, tenant_id: str) -> None:
    running = StoredAnswer("f", "long run")
    assert await store.claim(Name(tenant_id, "r"), running, 60) is None
    for digest in "abcdef":
        await answer(store, tenant_id, digest, 900)
    assert await store.claim(Name(tenant_id, "r"), StoredAnswer("f", "second"), 60) == running


async def test_what_expired_takes_no_room(store: AnswerStore, tenant_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    past = FakeTime(-100.0)
    monkeypatch.setattr(idempotency_store, "time", past)
    for digest in "ab":
        await answer(store, tenant_id, digest, 400)
    past.shift = 0.0
    await answer(store, tenant_id, "c", 700)
    await answer(store, tenant_id, "d", 300)
    assert await kept(store, tenant_id, "cd") == "cd"


class FakeTime:
    """`time`, so many seconds away."""

    def __init__(self, shift: float) -> None:
        import time

        self._time, self.shift = time, shift

    def time(self) -> float:
        return self._time.time() + self.shift

    def monotonic(self) -> float:
        return self._time.monotonic() + self.shift


@pytest.mark.services
async def test_redis_holds_no_more_than_the_room(tenant_id: str) -> None:
    store = RedisStore(REDIS_URL)
    for number in range(50):
        await answer(store, tenant_id, str(number), 200)
    await store.close()
    with redis.Redis.from_url(REDIS_URL) as server:
        keys = sorted(server.scan_iter(f"lorikeet:idempotency:{{{tenant_id}}}:*", count=1000))
        assert len(keys) == 4 + 2
        assert int(server.get(f"lorikeet:idempotency:{{{tenant_id}}}:bytes") or 0) == 800
        assert all(0 < server.ttl(key) <= 60 for key in keys)


async def test_a_key_is_its_owners(store: AnswerStore, tenant_id: str) -> None:
    """A run whose claim was lost, as after an outage of Redis, takes nothing from the one that has it now."""
    name, first, second = Name(tenant_id, "k"), StoredAnswer("f", "first"), StoredAnswer("f", "second")
    assert await store.claim(name, first, 60) is None
    await store.drop(name, second)  # not its own
    assert await store.claim(name, second, 60) == first
    await store.drop(name, first)
    await store.renew(name, first, 60)  # lost, and nobody has it: taken up again
    assert await store.claim(name, second, 60) == first
    await store.drop(name, first)
    assert await store.claim(name, second, 60) is None
    await store.renew(name, first, 60)
    await store.keep(name, StoredAnswer("f", "first", "text/plain", b"of the first"), ROOM)
    assert await store.claim(name, first, 60) == second


async def test_a_claim_lasts_as_long_as_its_lease(
    store: AnswerStore, tenant_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, first = Name(tenant_id, "k"), StoredAnswer("f", "first")
    assert await store.claim(name, first, 1) is None
    await store.renew(name, first, 60)
    await asyncio.sleep(1.2)
    assert await store.claim(name, StoredAnswer("f", "second"), 60) == first


# -- while it runs -----------------------------------------------------------------------------


class CountingStore(MemoryStore):
    renewals = 0

    async def renew(self, name: Name, stored: StoredAnswer, seconds: int) -> None:
        await super().renew(name, stored, seconds)
        self.renewals += 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "RENEW_S", 0.005)


class Asker:
    """As much of a principal as a claim takes."""

    class tenant:  # noqa: N801
        pk = "t"

    class api_key:  # noqa: N801
        pk = "k"


async def claimed(store: AnswerStore) -> tuple[Idempotency, Claim]:
    owner = Idempotency(store)
    asker: Any = Asker()
    claim = await owner.claim(asker, "key", "/v1/completions", b"{}")
    assert isinstance(claim, Claim)
    return owner, claim


async def until_renewed(store: CountingStore, times: int) -> None:
    async with asyncio.timeout(10):
        while store.renewals < times:
            await asyncio.sleep(0.005)


async def test_a_claim_is_renewed_while_its_request_runs(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    owner, claim = await claimed(store)
    await until_renewed(store, 2)
    monkeypatch.setattr(idempotency_store, "time", FakeTime(idempotency.LEASE_S - 1.0))
    asker: Any = Asker()
    with pytest.raises(ApiError) as refused:
        await owner.claim(asker, "key", "/v1/completions", b"{}")
    assert refused.value.code == "idempotency_in_progress"
    claim.keep("text/plain", b"done")
    await owner.close()
    renewals = store.renewals
    await asyncio.sleep(0.03)
    assert store.renewals == renewals


async def test_a_claim_that_was_forgotten_is_not_renewed(quick: None) -> None:
    store = CountingStore()
    owner, claim = await claimed(store)
    await until_renewed(store, 1)
    del claim
    gc.collect()
    renewals = store.renewals
    await asyncio.sleep(0.03)
    assert store.renewals <= renewals + 1
    await owner.close()


# -- streams -------------------------------------------------------------------------------------


class Writer:
    def write(self, chunks: list[str]) -> bytes:
        return "".join(chunks).encode()

    async def settle(self) -> None: ...

    def end(self) -> bytes:
        return b"[DONE]"


async def stream_of(chunks: list[list[str]], claim: Claim) -> EventStreamResponse:
    async def batches() -> AsyncIterator[list[str]]:
        for chunk in chunks:
            yield chunk

    class Generation:
        headers: dict[str, str] = {}

        def close(self) -> None:
            pass

    parts: Any = (Generation(), batches(), Writer(), ["first"])
    stream = EventStreamResponse(*parts)
    stream.keep_under(claim)
    return stream


@pytest.mark.parametrize("size, is_kept", [(10, True), (MAX_BYTES + 1, False)])
async def test_a_stream_gathers_no_more_than_is_kept(size: int, is_kept: bool) -> None:
    store = MemoryStore()
    owner, claim = await claimed(store)
    stream = await stream_of([["x" * size], ["y"]], claim)
    sent: list[bytes] = []

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    await stream.send(send)
    assert sum(map(len, stream._sent)) <= MAX_BYTES
    await stream.aclose()
    await owner.close()
    known = await store.claim(claim.name, StoredAnswer("f", "next"), 60)
    assert (known.body if known else None) == (b"".join(sent) if is_kept else None)
