"""Numbered events and their replay, in memory and in Redis."""

from __future__ import annotations

import os
import uuid

import pytest

from control_plane.core.events.ring import MemoryRing, RedisRing, Ring

REDIS_URL = os.environ.get("LORIKEET_TEST_REDIS_URL", "")


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
def ring(request: pytest.FixtureRequest) -> Ring:
    return MemoryRing(length=5) if request.param == "memory" else RedisRing(REDIS_URL, length=5)


def test_numbers_follow_each_other(ring: Ring, tenant_id: str) -> None:
    first = ring.last(tenant_id)
    events = [ring.append(tenant_id, "e", {"n": n}) for n in range(4)]
    assert [event.seq for event in events] == [first + 1, first + 2, first + 3, first + 4]
    assert ring.last(tenant_id) == first + 4


def test_tenants_are_apart(ring: Ring, tenant_id: str) -> None:
    other = uuid.uuid4().hex
    start = ring.last(other)
    ring.append(tenant_id, "e", {})
    assert ring.after(other, start) == []


def test_replay_from_a_number(ring: Ring, tenant_id: str) -> None:
    events = [ring.append(tenant_id, "e", {"n": n}) for n in range(4)]
    assert ring.after(tenant_id, events[1].seq) == events[2:]
    assert ring.after(tenant_id, events[0].seq - 1) == events
    assert ring.after(tenant_id, events[-1].seq) == []


def test_what_is_gone_cannot_be_replayed(ring: Ring, tenant_id: str) -> None:
    events = [ring.append(tenant_id, "e", {"n": n}) for n in range(8)]
    assert ring.after(tenant_id, events[2].seq) == events[3:]
    assert ring.after(tenant_id, events[1].seq) is None
    assert ring.after(tenant_id, events[-1].seq + 1) is None
    assert ring.after(tenant_id, 0) is None


def test_memory_forgets_the_longest_silent_tenant() -> None:
    ring = MemoryRing(most_tenants=2)
    old = ring.append("a", "e", {}).seq
    ring.append("b", "e", {})
    ring.append("c", "e", {})
    # A number of the lost ring either fits the new one exactly or is refused; it never skips an event.
    assert ring.after("a", old) in ([], None)
