"""A merge policy decides from a step's batch which adapter is merged.

Tokens of the merged adapter need no LoRA kernels. All others need two deltas, their adapter's minus the merged one's:
``B_i A_i - B_m A_m`` (dLoRA's delta correction). So a merge keeps no request out of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from lora_engine.scheduling.registry import Registry
from lora_engine.scheduling.sequence import Chunk
from lora_engine.scheduling.step_cost import Work

UNMERGED = ""


class Batch:
    """The tokens of a step by adapter; ``""`` is the base, of rank 0."""

    def __init__(self, uses: Iterable[tuple[str, int, int]] = ()) -> None:
        """Create a batch. ``uses``: digest, rank and number of tokens of each use."""
        self.tokens: dict[str, int] = {}
        self.ranks: dict[str, int] = {UNMERGED: 0}
        self.total = 0
        self.unmergeable: frozenset[str] = frozenset()  # adapters whose merge would change other requests' output
        self._rank_tokens = 0  # tokens times the rank of their adapter
        for digest, rank, tokens in uses:
            self.tokens[digest] = self.tokens.get(digest, 0) + tokens
            self.ranks[digest] = rank
            self.total += tokens
            self._rank_tokens += rank * tokens

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Batch:
        slots = [(chunk.sequence.slot, chunk.tokens) for chunk in chunks]
        batch = cls((slot.digest, slot.rank, tokens) if slot else (UNMERGED, 0, tokens) for slot, tokens in slots)
        batch.unmergeable = frozenset(slot.digest for slot, _ in slots if slot and slot.mergeable is False)
        return batch

    def share(self, digest: str) -> float:
        """Return the share of the tokens that use the adapter."""
        return self.tokens.get(digest, 0) / self.total if self.total else 0.0

    def lora(self, merged: str, rank: int) -> int:
        """Return the work of LoRA kernels, in tokens times rank, with an adapter of ``rank`` merged (UNMERGED: 0)."""
        tokens = self.tokens.get(merged, 0)
        if merged == UNMERGED:
            return self._rank_tokens
        return self._rank_tokens - rank * tokens + rank * (self.total - tokens)

    def dominant(self) -> str:
        """Return the mergeable adapter with the most tokens (ties by digest), or UNMERGED if there is none."""
        used = [(n, digest) for digest, n in self.tokens.items() if digest and n and digest not in self.unmergeable]
        return min(used, key=lambda item: (-item[0], item[1]))[1] if used else UNMERGED


@dataclass(frozen=True, slots=True)
class Applied:
    """A record of how a step applied adapters: the merged one, the LoRA kernels' work, whether the weights changed."""

    merged: str
    lora: int
    switched: bool


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The adapter in the second set of weights, the number of merges and the number of steps that ran merged."""

    adapter_digest: str = UNMERGED
    merges: int = 0
    merged_steps: int = 0


class MergePolicy(Protocol):
    """A policy that decides for every step how adapters are applied."""

    name: str

    def choose(self, batch: Batch, merged: str) -> str:
        """Return the digest to merge for a step with this batch, or UNMERGED.

        ``merged`` is the last step's. Merging takes time; going back to UNMERGED takes none.
        """

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        """Record that a step took ``seconds``, including a merge before it."""


merge_policies: Registry[MergePolicy] = Registry("mode")
