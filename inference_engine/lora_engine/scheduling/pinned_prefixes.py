"""Pinned prefixes of prompts stay in the KV cache without a request, so that they are not computed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lora_engine.memory import PoolGeometry, PrefixCache
from lora_engine.request import PinnedPrefix, PinState

from .sequence import Sequence as Running


class PinnedPrefixes:
    """The pinned prefixes whose full pages are kept, in the room that pinned adapters leave of a quarter of the pool.

    They are kept in the order of the list; common pages of two prefixes count once. A request that names a prefix
    computes it; it is pinned when that request ends. If a request that runs alone needs their pages, they are evicted
    and have to be computed again.
    """

    def __init__(self, prefixes: PrefixCache, geometry: PoolGeometry, room: Callable[[], int]) -> None:
        self._prefixes = prefixes
        self._page_tokens, self._state_pages = geometry.page_tokens, geometry.state_pages
        self._room = room
        self._wanted: dict[str, PinnedPrefix] = {}
        self._fitting: tuple[int, frozenset[str]] | None = None  # room, and the names that fit into it

    def set(self, wanted: Sequence[PinnedPrefix]) -> None:
        """Pin these prefixes and no others; ``states`` returns which have to be computed."""
        before, self._wanted = self._wanted, {prefix.name: prefix for prefix in wanted}
        self._fitting = None
        for name, prefix in before.items():
            if self._wanted.get(name) != prefix:
                self._prefixes.unpin(name)

    def forget(self, digest: str) -> None:
        """Unpin the prefixes of an adapter that is dropped from this host."""
        if any(prefix.adapter_digest == digest for prefix in self._wanted.values()):
            self.set([prefix for prefix in self._wanted.values() if prefix.adapter_digest != digest])

    def settle(self) -> None:
        """Unpin prefixes for which there is no more room."""
        for name in self._wanted.keys() - self._names_that_fit():
            self._prefixes.unpin(name)

    def states(self) -> dict[str, PinState]:
        """Return the state of each prefix by name."""
        self.settle()
        fitting = self._names_that_fit()
        return {name: self._state(name, fitting) for name in self._wanted}

    def computed(self, sequence: Running) -> None:
        """Pin the prefix that a sequence names when it leaves the batch, if it is complete and still wanted."""
        prefix = self._wanted.get(sequence.request.pin)
        if prefix is None or prefix.name not in self._names_that_fit() or sequence.num_computed < sequence.num_prompt:
            return
        if sequence.prompt == prefix.token_ids:
            self._prefixes.pin(prefix.name, sequence.prefix_key, prefix.token_ids, sequence.activation)

    def _state(self, name: str, fitting: frozenset[str]) -> PinState:
        if not self._prefixes.enabled:
            return PinState.OFF
        if name not in fitting:
            return PinState.NO_ROOM
        return PinState.KEPT if self._prefixes.is_pinned(name) else PinState.MISSING

    def _names_that_fit(self) -> frozenset[str]:
        room = self._room()
        if self._fitting is None or self._fitting[0] != room:
            self._fitting = room, self._fit(room)
        return self._fitting[1]

    def _fit(self, room: int) -> frozenset[str]:
        fitting: list[PinnedPrefix] = []
        for prefix in self._wanted.values():
            shared = max((self._shared_pages(prefix, other) for other in fitting), default=0)
            pages = len(prefix.token_ids) // self._page_tokens - shared + self._state_pages
            if pages <= room:
                room -= pages
                fitting.append(prefix)
        return frozenset(prefix.name for prefix in fitting)

    def _shared_pages(self, one: PinnedPrefix, other: PinnedPrefix) -> int:
        if one.owner != other.owner:
            return 0
        size, pages = self._page_tokens, min(len(one.token_ids), len(other.token_ids)) // self._page_tokens
        spans = (slice(page * size, (page + 1) * size) for page in range(pages))
        differing = (page for page, span in enumerate(spans) if one.token_ids[span] != other.token_ids[span])
        return next(differing, pages)
