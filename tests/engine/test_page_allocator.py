"""The allocator's invariant over thousands of random operations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lora_engine.memory import OutOfPages, PageAllocator, PageKind


class AllocatorMachine(RuleBasedStateMachine):
    """Random allocations, runs, shares and releases beside a plain model of who owns what."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(40)
        self.held: list[list[int]] = []
        self.references: dict[int, int] = {}

    @rule(count=st.integers(0, 12), run=st.booleans())
    def allocate(self, count: int, run: bool) -> None:
        free = self.allocator.free
        take = self.allocator.allocate_run if run and count else self.allocator.allocate
        if count > free:
            with pytest.raises(OutOfPages):
                take(count)
            assert self.allocator.free == free
            return
        pages = take(count)
        assert len(set(pages)) == count and 0 not in pages
        assert not set(pages) & self.references.keys(), "a page was handed out twice"
        self.references |= dict.fromkeys(pages, 1)
        self.held.append(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        pages = data.draw(st.sampled_from(self.held))
        self.allocator.share(pages)
        self.held.append(list(pages))
        for page in pages:
            self.references[page] += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pages = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.allocator.release(pages)
        for page in pages:
            self.references[page] -= 1
            if not self.references[page]:
                del self.references[page]

    @invariant()
    def adds_up(self) -> None:
        self.allocator.check()
        stats = self.allocator.stats()
        assert stats.free == 39 - len(self.references)
        assert stats.free + stats.kv + stats.cached_prefix + stats.adapter + stats.reserved == stats.total


AllocatorMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestAllocator = AllocatorMachine.TestCase


def test_adapters_get_consecutive_pages_when_there_are_any() -> None:
    allocator = PageAllocator(20)
    kv = allocator.allocate(5)
    assert kv == [19, 18, 17, 16, 15]
    first, second = allocator.allocate_run(4), allocator.allocate_run(3)
    assert (first, second) == ([1, 2, 3, 4], [5, 6, 7])
    allocator.release(first)
    assert allocator.allocate_run(5) == [8, 9, 10, 11, 12]
    assert allocator.allocate_run(4) == [1, 2, 3, 4]
    assert sorted(allocator.allocate_run(2)) == [13, 14]


def test_releasing_what_nobody_owns_is_an_error() -> None:
    allocator = PageAllocator(4)
    pages = allocator.allocate(1, PageKind.KV)
    allocator.release(pages)
    with pytest.raises(AssertionError, match="has no owner"):
        allocator.release(pages)
