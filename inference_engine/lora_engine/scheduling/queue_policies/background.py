"""Two classes share one policy: a background request runs when no other request waits that could run.

Each class has a queue with the same policy, so shares between tenants apply in both; service in the background does not
reduce a tenant's share in the foreground.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .base import Attempt, QueuePolicy


class ClassedQueue:
    """A queue for each class. ``of`` returns a sequence's; the other methods serve foreground requests first."""

    def __init__(self, make: Callable[[], QueuePolicy]) -> None:
        self.foreground, self.background = make(), make()
        self._running: dict[Sequence, None] = {}  # background sequences

    def __len__(self) -> int:
        return len(self.foreground) + len(self.background)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self.of(sequence)

    def of(self, sequence: Sequence) -> QueuePolicy:
        """Return the queue of the sequence's class."""
        return self.background if sequence.request.slo.background else self.foreground

    @property
    def runs_background(self) -> bool:
        return bool(self._running)

    def fill(self, attempt: Attempt) -> None:
        blocked = False  # the foreground waits for a place or memory

        def watched(sequence: Sequence) -> Outcome:
            nonlocal blocked
            outcome = attempt(sequence)
            blocked = blocked or outcome in (Outcome.FULL, Outcome.NO_ROOM)
            return outcome

        def in_background(sequence: Sequence) -> Outcome:
            outcome = attempt(sequence)
            if outcome is Outcome.STARTED:  # its first tokens may come in a later step
                self._running[sequence] = None
            return outcome

        if not len(self.background):
            self.foreground.fill(attempt)
            return
        if len(self.foreground):
            self.foreground.fill(watched)
        if not blocked:
            self.background.fill(in_background)

    def fill_underserved(self, attempt: Attempt, *, beside_background: bool = False) -> None:
        self.foreground.fill_underserved(attempt, beside_background=beside_background or self.runs_background)

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        if not self._running:
            return self.foreground.prefill_order(sequences)
        foreground = [s for s in sequences if not s.request.slo.background]
        background = [s for s in sequences if s.request.slo.background]
        return self.foreground.prefill_order(foreground) + self.background.prefill_order(background)

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """Return a background sequence first."""
        if self._running:
            return self.background.victim(self._running)
        return self.foreground.place_victim(sequence, running)

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """Yield all background sequences first, in no particular order."""
        yield from self._running
        yield from self.foreground.page_victims(sequence, [s for s in running if s not in self._running])

    def served(self, chunks: Iterable[Chunk]) -> None:
        if not self._running and not len(self.background):
            self.foreground.served(chunks)
            return
        split: dict[bool, list[Chunk]] = {False: [], True: []}
        for chunk in chunks:
            split[chunk.sequence.request.slo.background].append(chunk)
        self.foreground.served(split[False])
        self.background.served(split[True])

    def stepped(self) -> None:
        self.foreground.stepped()
        self.background.stepped()

    def left(self, sequence: Sequence) -> None:
        self._running.pop(sequence, None)
        self.of(sequence).left(sequence)

    def upcoming(self, count: int) -> list[Sequence]:
        upcoming = self.foreground.upcoming(count)
        return upcoming if upcoming or not len(self.background) else self.background.upcoming(count)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        if self._running:
            return self.background.victim(self._running)
        return self.foreground.victim(running)
