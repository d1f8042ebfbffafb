"""What a merge policy is, and what it decides on.

Tokens of the merged adapter need no LoRA kernels. All others need two deltas, their own and the merged one's
subtracted: ``B_i A_i - B_m A_m`` (dLoRA's delta correction). So no request is kept out of a batch because of a merge.
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
    """A step's tokens by adapter; ``""`` is the base, of rank 0."""

    def __init__(self, uses: Iterable[tuple[str, int, int]] = ()) -> None:
        """``uses``: an adapter's digest, its rank, tokens that use it."""
        self.tokens: dict[str, int] = {}
        self.ranks: dict[str, int] = {UNMERGED: 0}
        self.total = 0
        self.unmergeable: frozenset[str] = frozenset()  # adapters that others would notice
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
        """Of the tokens, those that use the adapter."""
        return self.tokens.get(digest, 0) / self.total if self.total else 0.0

    def lora(self, merged: str, rank: int) -> int:
        """What LoRA kernels have to do with an adapter of ``rank`` merged (UNMERGED: 0): tokens times rank."""
        tokens = self.tokens.get(merged, 0)
        if merged == UNMERGED:
            return self._rank_tokens
        return self._rank_tokens - rank * tokens + rank * (self.total - tokens)

    def dominant(self) -> str:
        """The mergeable adapter with the most tokens, the first of equals by digest; UNMERGED if there is none."""
        used = [(n, digest) for digest, n in self.tokens.items() if digest and n and digest not in self.unmergeable]
        return min(used, key=lambda item: (-item[0], item[1]))[1] if used else UNMERGED


@dataclass(frozen=True, slots=True)
class Applied:
    """How a step's adapters were applied: the merged one, what was left to LoRA kernels, whether weights changed."""

    merged: str
    lora: int
    switched: bool


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The adapter in the second set of weights, how often one was merged, and how many steps ran so."""

    merged: str = UNMERGED
    merges: int = 0
    merged_steps: int = 0


class MergePolicy(Protocol):
    """Decides, step by step, how adapters are applied."""

    name: str

    def choose(self, batch: Batch, merged: str) -> str:
        """The digest to have merged in a step with this batch, or UNMERGED.

        ``merged`` is what the last step had. Merging costs time; going back to UNMERGED costs none.
        """

    def ran(self, applied: Applied, work: Work, seconds: float) -> None:
        """A step took ``seconds``, merging before it included."""


merge_policies: Registry[MergePolicy] = Registry("mode")
