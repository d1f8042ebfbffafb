"""Whose each page of the pool is: a snapshot for people, as runs of equal pages, made on request between two steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .allocator import PageAllocator, PageKind


@dataclass(frozen=True, slots=True)
class PageOwner:
    """What some pages hold, and for whom. ``age_s``: since the request came in, or the adapter was last used."""

    kind: PageKind
    tenant: str = ""
    adapter_digest: str = ""
    age_s: float | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class PageMap:
    """Pages from 0 on: ``lengths[i]`` pages in a row are those of ``owners[owner_of[i]]``."""

    owners: tuple[PageOwner, ...]
    owner_of: tuple[int, ...]
    lengths: tuple[int, ...]


def page_map(allocator: PageAllocator, owned: Iterable[tuple[PageOwner, Iterable[int]]]) -> PageMap:
    """Of pages that several name, the last one is the owner; pages that nobody names are only of a kind."""
    owners = [PageOwner(kind) for kind in PageKind]
    owner_of = allocator.kinds().astype(np.int64)  # a kind's number is the place of its owner
    for owner, pages in owned:
        owner_of[list(pages)] = len(owners)
        owners.append(owner)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(owner_of)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(owner_of)])))
    return PageMap(tuple(owners), tuple(owner_of[starts].tolist()), tuple(lengths.tolist()))
