"""What is given up first, and what the prefix cache may never do."""

from __future__ import annotations

from lora_engine.memory import Evictable, EvictionQueue, PageAllocator, PrefixCache, RestoreCosts


def names(queue: EvictionQueue, entries: dict[str, Evictable]) -> list[str]:
    by_entry = {id(entry): name for name, entry in entries.items()}
    order = []
    while (entry := queue.pop()) is not None:
        order.append(by_entry[id(entry)])
    return order


def test_what_is_dear_to_restore_or_often_used_stays_longest() -> None:
    queue, entries = EvictionQueue(), {name: Evictable() for name in ("cheap", "dear", "often")}
    entries["often"].uses = 30
    queue.offer(entries["often"], 1e-6)
    queue.offer(entries["dear"], 10e-6)
    queue.offer(entries["cheap"], 1e-6)
    assert names(queue, entries) == ["cheap", "dear", "often"]


def test_old_uses_count_less_as_others_are_evicted() -> None:
    queue, old = EvictionQueue(), Evictable()
    old.uses = 10
    queue.offer(old, 1.0)
    for _ in range(20):  # newcomers used once, each evicted in turn: the age rises by one each time
        queue.offer(Evictable(), 1.0)
        if queue.pop() is old:
            break
    else:
        raise AssertionError("an entry that was popular once was never evicted")
    assert queue.age == 10.0


def test_what_is_in_use_is_never_named() -> None:
    queue, entry = EvictionQueue(), Evictable()
    queue.offer(entry, 1.0)
    queue.withdraw(entry)
    assert queue.pop() is None
    queue.offer(entry, 1.0)
    assert queue.pop() is entry and queue.pop() is None


def test_a_queue_that_is_offered_and_withdrawn_for_ever_does_not_grow() -> None:
    queue, entry = EvictionQueue(), Evictable()
    for _ in range(10_000):
        queue.offer(entry, 1.0)
        queue.withdraw(entry)
    assert len(queue._heap) < 100


def cache(pages: int = 40) -> tuple[PrefixCache, PageAllocator, EvictionQueue]:
    allocator, queue = PageAllocator(pages), EvictionQueue()
    return PrefixCache(allocator, 4, queue, RestoreCosts(), enabled=True), allocator, queue


KEY = ("tenant", "adapter")


def test_leaves_go_before_what_they_continue() -> None:
    prefixes, allocator, queue = cache()
    tokens = list(range(12))
    pages = allocator.allocate(3)
    prefixes.insert(KEY, tokens, pages)
    prefixes.release(pages)
    assert allocator.stats().cached_prefix == 3
    for left in (2, 1, 0):
        node = queue.pop()
        prefixes.evict(node)  # type: ignore[arg-type]
        allocator.check()
        assert len(prefixes) == left
        shared = prefixes.acquire(KEY, [*tokens, 99])
        assert shared == pages[:left]
        prefixes.release(shared)
    assert queue.pop() is None


def test_a_page_in_use_is_not_evicted_and_a_whole_prompt_is_never_a_hit() -> None:
    prefixes, allocator, queue = cache()
    pages = allocator.allocate(2)
    prefixes.insert(KEY, [1, 2, 3, 4, 5, 6, 7, 8], pages)
    prefixes.release(pages)
    shared = prefixes.acquire(KEY, [1, 2, 3, 4, 5, 6, 7, 8])
    assert shared == pages[:1], "one token must be left to compute"
    evicted = queue.pop()
    assert evicted is not None
    prefixes.evict(evicted)  # type: ignore[arg-type]
    assert queue.pop() is None
    assert allocator.stats().kv == 1 and allocator.stats().cached_prefix == 0


def test_equal_prompts_computed_twice_are_kept_once() -> None:
    prefixes, allocator, _ = cache()
    first, second = allocator.allocate(2), allocator.allocate(2)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8]
    prefixes.insert(KEY, tokens, first)
    prefixes.insert(KEY, tokens, second)
    prefixes.release(first)
    prefixes.release(second)
    assert allocator.stats().cached_prefix == 2
    allocator.check()
    prefixes.clear_idle()
    assert allocator.stats().free == allocator.total - 1 and len(prefixes) == 0
