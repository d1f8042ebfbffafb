"""The page map names the owner of every page, in runs that cover the pool."""

from __future__ import annotations

from lora_engine.memory import PageAllocator, PageKind, PageOwner, page_map


def test_runs_cover_the_pool_and_the_last_owner_named_is_the_owner() -> None:
    allocator = PageAllocator(20)
    adapter, running = allocator.allocate_run(3), allocator.allocate(4)
    allocator.cache(running[0])
    prefix, owner = PageOwner(PageKind.CACHED_PREFIX, "acme", "d"), PageOwner(PageKind.KV, "acme", "d", 1.5)
    found = page_map(
        allocator,
        [(prefix, running[:1]), (owner, running), (PageOwner(PageKind.ADAPTER, adapter_digest="d"), adapter)],
    )
    shown = [(found.owners[of], length) for of, length in zip(found.owner_of, found.lengths, strict=True)]
    assert shown == [
        (PageOwner(PageKind.RESERVED), 1),
        (PageOwner(PageKind.ADAPTER, adapter_digest="d"), 3),
        (PageOwner(PageKind.FREE), 12),
        (owner, 4),
    ]


def test_an_empty_pool_is_two_runs_and_pages_without_an_owner_keep_their_kind() -> None:
    allocator = PageAllocator(10)
    assert page_map(allocator, []).lengths == (1, 9)
    allocator.allocate(2)
    found = page_map(allocator, [])
    assert [found.owners[of].kind for of in found.owner_of] == [PageKind.RESERVED, PageKind.FREE, PageKind.KV]
