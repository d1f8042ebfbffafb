"""The map of the pool's pages to their owners: a snapshot for operators, made on request between two steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .allocator import PageAllocator, PageKind


@dataclass(frozen=True, slots=True)
class PageOwner:
    """The kind and owner of some pages; ``age_s``: seconds since the request's arrival or the adapter's last use."""

    kind: PageKind
    tenant: str = ""
    adapter_digest: str = ""
    age_s: float | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class PageMap:
    """A run-length encoded map of all pages: the next ``lengths[i]`` pages belong to ``owners[owner_of[i]]``."""

    owners: tuple[PageOwner, ...]
    owner_of: tuple[int, ...]
    lengths: tuple[int, ...]


def page_map(allocator: PageAllocator, owned: Iterable[tuple[PageOwner, Iterable[int]]]) -> PageMap:
    """Build the map; of several owners of a page the last one counts, and pages without an owner have only a kind."""
    owners = [PageOwner(kind) for kind in PageKind]
    owner_of = allocator.kinds().astype(np.int64)  # a kind's number is the index of its owner
    for owner, pages in owned:
        owner_of[list(pages)] = len(owners)
        owners.append(owner)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(owner_of)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(owner_of)])))
    return PageMap(tuple(owners), tuple(owner_of[starts].tolist()), tuple(lengths.tolist()))
