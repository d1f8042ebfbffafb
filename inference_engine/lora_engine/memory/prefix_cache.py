"""The prefix cache: keys and values of finished prompts, for requests that begin with the same tokens.

There is a tree of full pages for each (tenant, adapter digest, salt). A node's path from the root has every token
before and in its page, and tokens are compared exactly, so that neither a hash collision nor another tenant's traffic
can give a request the keys and values of another. For an adapter that acts from some token on, the pages before that
token are the base model's. Pages that running sequences share count as KV; pages that only the tree refers to count as
cached prefix and may be evicted, leaves first. A pinned prefix keeps all pages of its path: none is offered for
eviction until it is unpinned.

Where a model has recurrent layers, a prefix can only be used with their state at its end. Snapshots of that state
belong to nodes and are evicted apart from them, by the time to compute the tokens since the snapshot before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .allocator import PageAllocator
from .device_eviction import Evictable, EvictionQueue, RestoreCosts

# Key of a tree: tenant, adapter digest ("" is the base model), salt of the request.
PrefixKey = tuple[str, str, str]


class Activation(NamedTuple):
    """The position ``at`` from which on tokens are computed with the adapter; the base model computes those before."""

    at: int
    digest: str


# Tokens of a page, preceded by the activation if it acts on any of them.
Block = tuple[int | Activation, ...]


class PrefixNode(Evictable):
    """A node of the tree: a full page of tokens that follow those of its parent."""

    __slots__ = ("children", "page", "parent", "pins", "root_key", "snapshot", "tokens")

    def __init__(self, parent: PrefixNode | None, tokens: Block, page: int, root_key: PrefixKey | None = None) -> None:
        super().__init__()
        self.parent = parent
        self.root_key = root_key  # only of a root, which has no page
        self.tokens = tokens
        self.page = page
        self.children: dict[Block, PrefixNode] = {}
        self.pins = 0  # number of pinned prefixes whose path contains the node
        self.snapshot: StateSnapshot | None = None

    def path(self) -> Iterator[PrefixNode]:
        """Yield the node and its ancestors, up to the root's child."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class StateSnapshot(Evictable):
    """The recurrent state after a node's tokens, in pages that nothing else uses; ``blocks`` are the nodes since the
    snapshot before.
    """

    __slots__ = ("blocks", "node", "pages")

    def __init__(self, node: PrefixNode, pages: list[int]) -> None:
        super().__init__()
        self.node = node
        self.pages = pages
        path = enumerate(node.path())
        self.blocks = next((depth for depth, other in path if depth and other.snapshot), _depth(node))


class CachedState(NamedTuple):
    """The deepest snapshot on the path of some tokens, its number of pages of tokens, and the pages known in all."""

    snapshot: StateSnapshot | None
    depth: int
    known: int


class PrefixCache:
    """A cache of pages by the tokens that they hold."""

    def __init__(
        self,
        allocator: PageAllocator,
        page_tokens: int,
        queue: EvictionQueue,
        costs: RestoreCosts,
        *,
        enabled: bool,
        has_states: bool = False,
    ) -> None:
        """Create the cache; ``has_states``: the model has recurrent layers."""
        self.enabled = enabled
        self._has_states = has_states
        self._allocator = allocator
        self._page_tokens = page_tokens
        self._queue = queue
        self._costs = costs
        self._roots: dict[PrefixKey, PrefixNode] = {}
        self._by_page: dict[int, PrefixNode] = {}
        self._pinned: dict[str, PrefixNode] = {}  # node of the last page by name, in the order of pinning
        self.pinned_pages = 0  # pages of pinned prefixes, shared ones counted once
        self.pinned_idle_pages = 0  # pinned pages that no sequence uses
        self.snapshot_pages = 0  # pages of snapshots, which count as cached prefix
        self.reserved_pages = 0  # of these, those that are about to be read

    def __len__(self) -> int:
        """Return the number of pages in all trees, in use or idle."""
        return len(self._by_page)

    @property
    def pages(self) -> set[int]:
        return set(self._by_page)

    def by_key(self) -> Iterator[tuple[PrefixKey, bool, list[int]]]:
        """Yield each tree's key and pages: (False) those that may be evicted, and (True) the pinned ones."""
        for key, root in self._roots.items():
            nodes = _subtree(root)[1:]
            for pinned in (False, True):
                owned = [node for node in nodes if (node.pins > 0) == pinned]
                if pages := [page for node in owned for page in _pages_of(node)]:
                    yield key, pinned, pages

    def acquire(self, key: PrefixKey, tokens: Sequence[int], activation: Activation | None = None) -> list[int]:
        """Share the pages of the longest cached prefix with the caller; at least one token remains to be computed."""
        nodes = list(self._match(key, tokens, activation, max_pages=(len(tokens) - 1) // self._page_tokens))
        for node in nodes:
            node.uses += 1
            self._queue.withdraw(node)
            if node.pins and self._allocator.only_cached(node.page):
                self.pinned_idle_pages -= 1
        pages = [node.page for node in nodes]
        self._allocator.share(pages)
        return pages

    def find_state(self, key: PrefixKey, tokens: Sequence[int], activation: Activation | None = None) -> CachedState:
        """Find the deepest snapshot of state on the path of ``tokens``; at least one token remains to be computed."""
        nodes = list(self._match(key, tokens, activation, max_pages=(len(tokens) - 1) // self._page_tokens))
        depth = next((depth for depth in range(len(nodes), 0, -1) if nodes[depth - 1].snapshot), 0)
        return CachedState(nodes[depth - 1].snapshot if depth else None, depth, len(nodes))

    def hold(self, snapshot: StateSnapshot) -> None:
        """Keep a snapshot from being evicted until ``let_go``."""
        snapshot.uses += 1
        self._queue.withdraw(snapshot)
        if not snapshot.node.pins:
            self.reserved_pages += len(snapshot.pages)

    def let_go(self, snapshot: StateSnapshot) -> None:
        if not snapshot.node.pins:
            self.reserved_pages -= len(snapshot.pages)
            self._offer_snapshot(snapshot)

    def keep_state(
        self, key: PrefixKey, tokens: Sequence[int], pages: list[int], activation: Activation | None = None
    ) -> bool:
        """Make ``pages``, allocated as cached prefix, the snapshot of the state after ``tokens``, all of full pages.

        Returns False if their path is not in the cache, or has a snapshot there; the pages are then the caller's.
        """
        wanted = len(tokens) // self._page_tokens
        nodes = list(self._match(key, tokens, activation, max_pages=wanted))
        if not nodes or len(nodes) < wanted or nodes[-1].snapshot is not None:
            return False
        snapshot = nodes[-1].snapshot = StateSnapshot(nodes[-1], pages)
        self.snapshot_pages += len(pages)
        if nodes[-1].pins:
            self._count_pinned_snapshot(snapshot, 1)
        else:
            self._offer_snapshot(snapshot)
        return True

    def evict_snapshot(self, snapshot: StateSnapshot) -> None:
        """Free the pages of a snapshot."""
        if snapshot.node.pins:
            self._count_pinned_snapshot(snapshot, -1)
        self._queue.withdraw(snapshot)
        self._allocator.release(snapshot.pages)
        self.snapshot_pages -= len(snapshot.pages)
        snapshot.node.snapshot = None

    def insert(
        self, key: PrefixKey, tokens: Sequence[int], pages: Sequence[int], activation: Activation | None = None
    ) -> None:
        """Add the full pages of ``tokens``; the caller has references to ``pages``, with their keys and values."""
        if not self.enabled or len(tokens) < self._page_tokens:
            return
        node = self._roots.setdefault(key, PrefixNode(None, (), -1, key))
        for page, block in zip(pages, self._blocks(tokens, activation), strict=False):
            child = node.children.get(block)
            if child is None:
                if page in self._by_page:
                    return  # the page is cached for other tokens: it was computed after a page since replaced
                self._queue.withdraw(node)
                child = node.children[block] = PrefixNode(node, block, page)
                self._by_page[page] = child
                self._allocator.cache(page)
            node = child

    def release(self, pages: Sequence[int]) -> None:
        """Release a sequence's pages; pages of a tree stay until they are evicted."""
        self._allocator.release(pages)
        for page in pages:
            if (node := self._by_page.get(page)) is not None:
                if node.pins and self._allocator.only_cached(page):
                    self.pinned_idle_pages += 1
                self._offer_if_idle(node)

    def pin(self, name: str, key: PrefixKey, tokens: Sequence[int], activation: Activation | None = None) -> bool:
        """Pin the full pages of ``tokens`` under a name. Returns False, without pinning any, if some are missing."""
        self.unpin(name)
        pages = len(tokens) // self._page_tokens
        nodes = list(self._match(key, tokens, activation, max_pages=pages))
        if not nodes or len(nodes) < pages or (self._has_states and not any(node.snapshot for node in nodes)):
            return False
        for node in nodes:
            node.pins += 1
            if node.pins == 1:
                self._queue.withdraw(node)
                self._count_pinned(node, 1)
                if node.snapshot is not None:
                    self._queue.withdraw(node.snapshot)
                    self._count_pinned_snapshot(node.snapshot, 1)
        self._pinned[name] = nodes[-1]
        return True

    def unpin(self, name: str) -> None:
        """Allow eviction of a pinned prefix's idle pages; does nothing if the name is not pinned."""
        last = self._pinned.pop(name, None)
        for node in last.path() if last is not None else ():
            node.pins -= 1
            if not node.pins:
                self._count_pinned(node, -1)
                self._offer_if_idle(node)
                if node.snapshot is not None:
                    self._count_pinned_snapshot(node.snapshot, -1)
                    self._offer_snapshot(node.snapshot)

    def unpin_idle(self, pages: int) -> None:
        """Unpin prefixes, the newest first, until ``pages`` more idle pages may be evicted."""
        most = max(0, self.pinned_idle_pages - pages)
        for name in reversed(list(self._pinned)):
            if self.pinned_idle_pages <= most:
                return
            self.unpin(name)

    def is_pinned(self, name: str) -> bool:
        return name in self._pinned

    def evict(self, node: PrefixNode) -> None:
        """Free a leaf's page, which no sequence uses; prefixes pinned through it are unpinned."""
        if node.pins:
            for name in [name for name, last in self._pinned.items() if node in last.path()]:
                self.unpin(name)
        if node.snapshot is not None:
            self.evict_snapshot(node.snapshot)
        self._queue.withdraw(node)
        del self._by_page[node.page]
        self._allocator.uncache(node.page)
        parent = node.parent
        assert parent is not None and not node.children, "only leaves are evicted, and a root has no page"
        del parent.children[node.tokens]
        if parent.root_key is None:
            self._offer_if_idle(parent)
        elif not parent.children:
            del self._roots[parent.root_key]

    def drop_path(self, key: PrefixKey, tokens: Sequence[int], activation: Activation | None = None) -> None:
        """Drop the first page of ``tokens`` and its whole subtree; sequences that use these pages keep them."""
        for first in list(self._match(key, tokens, activation, max_pages=1)):
            for node in reversed(_subtree(first)):
                self.evict(node)

    def clear_idle(self) -> None:
        """Drop all pages that no sequence uses, after a failure in which the device may have written wrong values."""
        for node in sorted(self._by_page.values(), key=_depth, reverse=True):
            if node.snapshot is not None:
                self.evict_snapshot(node.snapshot)
            if not node.children and self._allocator.only_cached(node.page):
                self.evict(node)

    def _match(
        self, key: PrefixKey, tokens: Sequence[int], activation: Activation | None, max_pages: int
    ) -> Iterator[PrefixNode]:
        node = self._roots.get(key)
        for _, block in zip(range(max_pages), self._blocks(tokens, activation), strict=False):
            node = node.children.get(block) if node else None
            if node is None:
                return
            yield node

    def _blocks(self, tokens: Sequence[int], activation: Activation | None) -> Iterator[Block]:
        size = self._page_tokens
        base = len(tokens) if activation is None else activation.at
        for start in range(0, len(tokens) - size + 1, size):
            block = tuple(tokens[start : start + size])
            yield block if activation is None or start + size <= base else (activation, *block)

    def check(self) -> None:
        """Verify the counters of pinned pages. Raises ``AssertionError``."""
        through = Counter(node.page for last in self._pinned.values() for node in last.path())
        if {page: node.pins for page, node in self._by_page.items() if node.pins} != through:
            raise AssertionError("nodes' pin counts disagree with the pinned prefixes")
        snapshots = [node.snapshot for node in self._by_page.values() if node.snapshot is not None]
        of_pinned = sum(len(snapshot.pages) for snapshot in snapshots if snapshot.node.pins)
        pinned, idle = len(through) + of_pinned, sum(map(self._allocator.only_cached, through)) + of_pinned
        if (self.pinned_pages, self.pinned_idle_pages) != (pinned, idle):
            counted = self.pinned_pages, self.pinned_idle_pages
            raise AssertionError(f"{pinned} pages are pinned, {idle} of them idle, and {counted} are counted")
        if (self.snapshot_pages, self.reserved_pages) != (sum(len(snapshot.pages) for snapshot in snapshots), 0):
            raise AssertionError(
                f"{self.snapshot_pages} pages of snapshots are counted, {self.reserved_pages} of them held"
            )
        if any((snapshot.ticket == 0) != (snapshot.node.pins > 0) for snapshot in snapshots):
            raise AssertionError("the snapshots in the eviction queue are not those that are not pinned")
        if any(self._by_page[page].ticket for page in through):
            raise AssertionError("a page of a pinned prefix is in the eviction queue")

    def _count_pinned(self, node: PrefixNode, sign: int) -> None:
        self.pinned_pages += sign
        self.pinned_idle_pages += sign * self._allocator.only_cached(node.page)

    def _count_pinned_snapshot(self, snapshot: StateSnapshot, sign: int) -> None:
        self.pinned_pages += sign * len(snapshot.pages)
        self.pinned_idle_pages += sign * len(snapshot.pages)

    def _offer_snapshot(self, snapshot: StateSnapshot) -> None:
        self._queue.offer(snapshot, self._costs.prefix_page * snapshot.blocks / len(snapshot.pages))

    def _offer_if_idle(self, node: PrefixNode) -> None:
        if not node.pins and not node.children and self._allocator.only_cached(node.page):
            self._queue.offer(node, self._costs.prefix_page)


def _subtree(first: PrefixNode) -> list[PrefixNode]:
    """Return the node and all its descendants, parents before children."""
    nodes = [first]
    for node in nodes:
        nodes.extend(node.children.values())
    return nodes


def _pages_of(node: PrefixNode) -> list[int]:
    """Return a node's page and those of its snapshot."""
    return [node.page] if node.snapshot is None else [node.page, *node.snapshot.pages]


def _depth(node: PrefixNode) -> int:
    depth = 0
    while node.parent is not None:
        node, depth = node.parent, depth + 1
    return depth
