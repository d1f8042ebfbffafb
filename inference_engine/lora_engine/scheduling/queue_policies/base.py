"""What a queue policy is: the waiting queue, and which request of it runs next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from lora_engine.config import EngineConfig
from lora_engine.scheduling.registry import Registry
from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

Attempt = Callable[[Sequence], Outcome]

# Sequences that one step may try without admitting them: trying ten thousand requests that all wait for their
# adapters would cost more than the step.
LOOK_AHEAD = 128


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a policy expects to let run before a given request."""

    sequences: float = 0.0
    prompt_tokens: float = 0.0
    preempts: bool = False  # running sequences of others give way to the request


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may know of the engine.

    ``on_device`` says whether an adapter's weights are in the page pool. ``pool_tokens`` is how many tokens the pool
    holds if nothing else does, ``pool_pages`` how many pages it has.
    """

    config: EngineConfig
    clock: Callable[[], float]
    on_device: Callable[[str], bool]
    pool_tokens: int
    pool_pages: int


class QueuePolicy(Protocol):
    """The queue of waiting sequences."""

    def push(self, sequence: Sequence) -> None:
        """A sequence arrived, or came back pre-empted."""

    def remove(self, sequence: Sequence) -> None:
        """A waiting sequence was aborted or refused."""

    def fill(self, attempt: Attempt) -> None:
        """Offer waiting sequences, the one to admit first first. Those admitted leave the queue."""

    def fill_underserved(self, attempt: Attempt) -> None:
        """Offer sequences of tenants that have far less than their share of the batch, before the step is planned.

        Those admitted leave the queue. Nothing is offered where places are not shared out.
        """

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        """The running sequences that have more of their prompt to compute, those to get tokens of the step first."""

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """The running sequence that gives its place to one offered by ``fill_underserved``; None if none has to."""

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """Running sequences that may be pre-empted for pages that ``sequence`` lacks, the first to go first."""

    def served(self, chunks: Iterable[Chunk]) -> None:
        """These tokens are being processed: of the running batch, or of a sequence just being admitted."""

    def decodes(self, sequence: Sequence) -> None:
        """From the next step on it yields a token in each, without being named to ``served``, until it ``pauses``."""

    def pauses(self, sequence: Sequence) -> None:
        """It is named to ``served`` again. One that ``left`` has paused."""

    def stepped(self) -> None:
        """A step is planned: every sequence that ``decodes`` is served a token."""

    def left(self, sequence: Sequence) -> None:
        """A sequence stopped running: it ended, or is about to be pushed again."""

    def upcoming(self, count: int) -> list[Sequence]:
        """About ``count`` sequences that are likely to be offered first; nothing depends on their order."""

    def ahead_of(self, sequence: Sequence) -> Backlog:
        """What is likely to run before ``sequence``, which waits or is about to be pushed."""

    def __len__(self) -> int: ...

    def __contains__(self, sequence: Sequence) -> bool: ...

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """Which running sequence to pre-empt when pages run out."""


queue_policies: Registry[QueuePolicy] = Registry("order")
