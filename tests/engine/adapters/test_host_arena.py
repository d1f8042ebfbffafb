from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lora_engine.adapters.host_arena import HostArena
from lora_engine.adapters.layout import AdapterLayout, PackedAdapter
from lora_engine.errors import StageError


def packed(digest: str, num_bytes: int = 40) -> PackedAdapter:
    return PackedAdapter(digest, 4, AdapterLayout((), 1), torch.zeros(num_bytes // 4))


def add(arena: HostArena, digest: str, num_bytes: int = 40, wait_s: float = 0) -> None:
    arena.reserve(digest, num_bytes, wait_s)
    arena.put(packed(digest, num_bytes))


def test_least_recently_used_is_evicted():
    arena = HostArena(100)
    add(arena, "a")
    add(arena, "b")
    assert arena.get("a") is not None
    add(arena, "c")
    assert [p.digest for p in arena.contents()] == ["a", "c"]
    assert arena.used == 80


def test_each_removal_is_reported_without_the_lock():
    arena, seen = HostArena(100), []
    arena.on_removed = lambda: seen.append(arena.used)
    add(arena, "a")
    add(arena, "b")
    assert not seen
    add(arena, "c")
    assert seen == [80]
    assert arena.remove("c") and not arena.remove("a")
    assert seen == [80, 40]


def test_held_adapters_stay_and_others_wait_for_their_release():
    arena = HostArena(100)
    add(arena, "a")
    add(arena, "b")
    arena.acquire("a")
    arena.acquire("b")
    with pytest.raises(StageError) as caught:
        add(arena, "c", wait_s=0.05)
    assert caught.value.code == "host_arena_full"
    threading.Timer(0.05, arena.release, ("b",)).start()
    started = time.monotonic()
    add(arena, "c", wait_s=10)
    assert time.monotonic() - started < 5
    assert arena.has("a") and not arena.has("b")


def test_pinned_adapters_are_evicted_after_all_others_and_never_block_anybody():
    arena = HostArena(120)
    arena.pin(["a", "not here"])
    for digest in "abcd":
        add(arena, digest)
    assert [p.digest for p in arena.contents()] == ["a", "c", "d"]
    add(arena, "large", 100)
    assert [p.digest for p in arena.contents()] == ["large"]
    arena.pin([])
    add(arena, "a", 80)
    add(arena, "e", 80)
    assert [p.digest for p in arena.contents()] == ["e"], "unpinned it is like others"


def test_what_can_never_fit_is_refused_at_once_and_evicts_nothing():
    arena = HostArena(100)
    add(arena, "a")
    with pytest.raises(StageError) as caught:
        add(arena, "b", 104, wait_s=60)
    assert caught.value.code == "adapter_too_large_for_host"
    assert arena.has("a")


def test_cancelled_room_is_given_back():
    arena = HostArena(100)
    arena.reserve("a", 80, 0)
    arena.cancel("a")
    add(arena, "b", 80)
    assert arena.used == 80


class ArenaMachine(RuleBasedStateMachine):
    """Holds and loads in any order: the budget holds, and nothing that is held disappears."""

    names = st.sampled_from("abcdef")

    def __init__(self):
        super().__init__()
        self.arena = HostArena(200)
        self.holds = dict.fromkeys("abcdef", 0)
        self.removed: set[str] = set()

    @rule(name=names, size=st.integers(1, 15))
    def load(self, name, size):
        if not self.arena.has(name):
            before = {p.digest for p in self.arena.contents() if self.holds[p.digest]}
            try:
                add(self.arena, name, size * 8)
            except StageError:
                return
            assert before <= {p.digest for p in self.arena.contents()}

    @rule(name=names)
    def hold(self, name):
        self.arena.acquire(name)
        self.holds[name] += 1

    @rule(name=names)
    def release(self, name):
        if self.holds[name]:
            self.holds[name] -= 1
            assert self.arena.release(name) == self.holds[name]

    @rule(name=names)
    def remove(self, name):
        self.arena.remove(name)

    @invariant()
    def the_budget_holds(self):
        assert self.arena.used == sum(p.num_bytes for p in self.arena.contents()) <= 200
        assert all(self.arena.is_in_use(name) == bool(count) for name, count in self.holds.items())


TestArena = ArenaMachine.TestCase
TestArena.settings = settings(max_examples=60, deadline=None)
