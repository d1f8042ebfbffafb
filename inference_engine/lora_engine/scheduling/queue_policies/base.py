"""A queue policy holds the waiting queue and decides which of its requests runs next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from lora_engine.config import EngineConfig
from lora_engine.scheduling.registry import Registry
from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

Attempt = Callable[[Sequence], Outcome]

# Sequences that one step may try without starting them. Trying ten thousand requests that all wait for their adapters
# would cost more than the step.
LOOK_AHEAD = 128


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that a policy expects to run before a given request."""

    sequences: float = 0.0
    prompt_tokens: float = 0.0
    preempts: bool = False  # running sequences of other tenants are pre-empted for the request


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """The engine's facts that a policy may use.

    ``on_device`` returns whether an adapter's weights are in the page pool. ``pool_tokens`` is the number of tokens
    that fit into an otherwise empty pool, ``pool_pages`` its number of pages. ``highest_rank`` bounds the priced rank
    of an adapter.
    """

    config: EngineConfig
    clock: Callable[[], float]
    on_device: Callable[[str], bool]
    pool_tokens: int
    pool_pages: int
    highest_rank: int


class QueuePolicy(Protocol):
    """A queue of waiting sequences."""

    def push(self, sequence: Sequence) -> None:
        """Add a sequence that arrived or was pre-empted."""

    def remove(self, sequence: Sequence) -> None:
        """Remove a waiting sequence that was aborted or refused."""

    def fill(self, attempt: Attempt) -> None:
        """Offer waiting sequences to ``attempt`` in the order of the policy. Those that start leave the queue."""

    def fill_underserved(self, attempt: Attempt, *, beside_background: bool = False) -> None:
        """Offer sequences of tenants that have far less than their share of the batch, before the step is planned.

        Those that start leave the queue. Policies without shares offer nothing. ``beside_background``: background
        requests run, to which a tenant need not leave a share.
        """

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        """Return running sequences that have prompt tokens left, in the order in which they get the step's tokens."""

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """Return the running sequence to pre-empt for one offered by ``fill_underserved``, or None."""

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """Yield running sequences that may be pre-empted for pages that ``sequence`` lacks, in order."""

    def served(self, chunks: Iterable[Chunk]) -> None:
        """Count chunks that are being processed: of the running batch, or of a sequence that is just starting."""

    def decodes(self, sequence: Sequence) -> None:
        """Count a token of the sequence in each step from the next one on, without ``served``, until it ``pauses``."""

    def pauses(self, sequence: Sequence) -> None:
        """Stop counting a token per step: the sequence appears in ``served`` again. ``left`` implies it."""

    def stepped(self) -> None:
        """Count a token for every sequence that ``decodes``: a step is planned."""

    def accepted(self, sequence: Sequence, tokens: int) -> None:
        """Count output tokens that a running sequence's last step yielded beyond the first (accepted drafts)."""

    def left(self, sequence: Sequence) -> None:
        """Record that a sequence stopped running: it ended, or is about to be pushed again."""

    def upcoming(self, count: int) -> list[Sequence]:
        """Return about ``count`` sequences that are likely to be offered first, in no particular order."""

    def ahead_of(self, sequence: Sequence) -> Backlog:
        """Return the work that is likely to run before ``sequence``, which waits or is about to be pushed."""

    def __len__(self) -> int: ...

    def __contains__(self, sequence: Sequence) -> bool: ...

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """Return the running sequence to pre-empt when pages run out."""


queue_policies: Registry[QueuePolicy] = Registry("order")
