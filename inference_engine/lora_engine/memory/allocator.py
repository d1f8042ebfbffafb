"""The page allocator: the use of each page of the pool, with reference counts.

A page id means the same page in every layer and on every tensor-parallel rank, so the host allocates once for all.
Requests take pages from the top; adapters prefer a run of consecutive pages from the bottom, which can be read without
a gather. The invariant ``free + kv + state + cached_prefix + adapter + reserved == total`` holds between any two calls.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class PageKind(IntEnum):
    """The use of a page."""

    FREE = 0
    KV = 1
    CACHED_PREFIX = 2
    ADAPTER = 3
    RESERVED = 4
    STATE = 5  # recurrent state of a sequence


# Before Python 3.12 the lookup of an enum's member costs more than the operations on it here.
_FREE, _KV, _CACHED = PageKind.FREE, PageKind.KV, PageKind.CACHED_PREFIX


class OutOfPages(Exception):
    """The error when fewer pages are free than requested; none were allocated."""


@dataclass(frozen=True, slots=True)
class PoolStats:
    """The numbers of pages by kind, which always add up to ``total``."""

    total: int
    free: int
    kv: int
    cached_prefix: int
    adapter: int
    reserved: int
    state: int = 0


class PageAllocator:
    """An allocator of page ids with reference counts.

    Page 0 is always reserved: the padding rows of a batch refer to it, and on a GPU write to it. No sequence reads it.
    """

    def __init__(self, total: int, reserved: int = 1) -> None:
        if total <= reserved:
            raise ValueError(
                f"a pool of {total} pages has no room beyond its {reserved} reserved pages; make it larger"
            )
        self.total = total
        self._kind = np.zeros(total, dtype=np.uint8)
        self._refs = np.zeros(total, dtype=np.int32)
        self._cached = np.zeros(total, dtype=bool)  # the prefix cache has one of the page's references
        # Access to single pages through these views is four times as fast as through the arrays.
        self._kind_at: memoryview[int] = memoryview(self._kind)  # type: ignore[arg-type]
        self._refs_at: memoryview[int] = memoryview(self._refs)  # type: ignore[arg-type]
        self._cached_at: memoryview[bool] = memoryview(self._cached)  # type: ignore[arg-type]
        self._kind[:reserved] = PageKind.RESERVED
        self._counts = [0] * len(PageKind)
        self._counts[PageKind.RESERVED] = reserved
        self._counts[_FREE] = total - reserved
        # Entries go stale when a run takes their page; ``allocate`` skips stale entries.
        self._top_first = [-page for page in range(total - 1, reserved - 1, -1)]

    @property
    def free(self) -> int:
        return self._counts[_FREE]

    def allocate(self, count: int, kind: PageKind = _KV) -> list[int]:
        """Allocate ``count`` pages, highest ids first, each with one reference. Raises ``OutOfPages``."""
        if count > self.free:
            raise OutOfPages(f"{count} pages asked for, {self.free} free")
        pages: list[int] = []
        while len(pages) < count:
            page = -heapq.heappop(self._top_first)
            if self._kind_at[page] == _FREE:
                self._take(page, kind)
                pages.append(page)
        return pages

    def allocate_run(self, count: int, kind: PageKind = PageKind.ADAPTER) -> list[int]:
        """Allocate the lowest run of consecutive pages if there is one, otherwise pages as ``allocate`` does."""
        if count > self.free:
            raise OutOfPages(f"{count} pages asked for, {self.free} free")
        start = self._lowest_run(count)
        if start is None:
            return self.allocate(count, kind)
        pages = list(range(start, start + count))
        for page in pages:
            self._take(page, kind)
        self._drop_stale()
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Add one reference to each page."""
        for page in pages:
            if self._refs_at[page] <= 0:
                raise AssertionError(f"page {page} is shared but has no owner")
            self._refs_at[page] += 1
            self._update_kind(page)

    def release(self, pages: Iterable[int]) -> None:
        """Drop one reference on each page; a page without references is free again."""
        for page in pages:
            if self._refs_at[page] <= 0:
                raise AssertionError(f"page {page} is released but has no owner")
            self._refs_at[page] -= 1
            if self._refs_at[page] == 0:
                self._free(page)
            else:
                self._update_kind(page)

    def cache(self, page: int) -> None:
        """Add the prefix cache's reference to a page that a sequence uses."""
        self._cached_at[page] = True
        self.share((page,))

    def uncache(self, page: int) -> None:
        """Drop the prefix cache's reference."""
        self._cached_at[page] = False
        self.release((page,))

    def only_cached(self, page: int) -> bool:
        """Return whether the prefix cache has the only reference to the page."""
        return self._cached_at[page] and self._refs_at[page] == 1

    def users(self, page: int) -> int:
        """Return the number of sequences that use the page: its references without the prefix cache's."""
        return self._refs_at[page] - self._cached_at[page]

    def stats(self) -> PoolStats:
        c = self._counts
        return PoolStats(
            self.total,
            c[_FREE],
            c[_KV],
            c[_CACHED],
            c[PageKind.ADAPTER],
            c[PageKind.RESERVED],
            c[PageKind.STATE],
        )

    def kinds(self) -> np.ndarray:
        """Return each page's current use, as ``PageKind``."""
        return self._kind.copy()

    def check(self) -> None:
        """Verify the invariant against the pages. Raises ``AssertionError``."""
        actual = np.bincount(self._kind, minlength=len(PageKind)).tolist()
        if actual != self._counts:
            raise AssertionError(f"pool counts {self._counts} differ from its pages {actual}")
        owned = (self._kind != _FREE) & (self._kind != PageKind.RESERVED)
        if not np.array_equal(owned, self._refs > 0):
            raise AssertionError("pages and their reference counts disagree")
        listed = {-entry for entry in self._top_first}
        missing = [int(p) for p in np.flatnonzero(self._kind == _FREE) if int(p) not in listed]
        if missing:
            raise AssertionError(f"free pages {missing[:8]} can never be handed out")

    def _take(self, page: int, kind: PageKind) -> None:
        self._kind_at[page] = kind
        self._refs_at[page] = 1
        self._counts[_FREE] -= 1
        self._counts[kind] += 1

    def _update_kind(self, page: int) -> None:
        """Set a page's kind: cached prefix if the prefix cache has the only reference, otherwise KV."""
        if not self._cached_at[page]:
            return
        kind = _CACHED if self._refs_at[page] == 1 else _KV
        self._counts[int(self._kind_at[page])] -= 1
        self._counts[kind] += 1
        self._kind_at[page] = kind

    def _free(self, page: int) -> None:
        self._counts[int(self._kind_at[page])] -= 1
        self._counts[_FREE] += 1
        self._kind_at[page] = _FREE
        heapq.heappush(self._top_first, -page)

    def _lowest_run(self, count: int) -> int | None:
        free = (self._kind == _FREE).astype(np.int8)
        edges = np.diff(np.concatenate(([0], free, [0])))
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        fits = np.flatnonzero(ends - starts >= count)
        return int(starts[fits[0]]) if fits.size else None

    def _drop_stale(self) -> None:
        if len(self._top_first) > 2 * self.total:
            self._top_first = [-int(page) for page in np.flatnonzero(self._kind == _FREE)]
            heapq.heapify(self._top_first)
