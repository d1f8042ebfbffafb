"""Two classes over one policy: a background request runs when no other request of anybody waits that could.

Each class has a queue of the same policy of its own, so that shares between tenants hold in both; what runs in the
background costs no tenant anything of its share of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .base import Attempt, Backlog, QueuePolicy


class ClassedQueue:
    """The foreground's queue before the background's."""

    def __init__(self, make: Callable[[], QueuePolicy]) -> None:
        self.foreground, self.background = make(), make()
        self._running: dict[Sequence, None] = {}  # in the background

    def __len__(self) -> int:
        return len(self.foreground) + len(self.background)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self.of(sequence)

    def of(self, sequence: Sequence) -> QueuePolicy:
        """The queue of its class."""
        return self.background if sequence.request.slo.background else self.foreground

    @property
    def runs_background(self) -> bool:
        return bool(self._running)

    def push(self, sequence: Sequence) -> None:
        self.of(sequence).push(sequence)

    def remove(self, sequence: Sequence) -> None:
        self.of(sequence).remove(sequence)

    def fill(self, attempt: Attempt) -> None:
        held = False  # a place or memory is what the foreground waits for

        def watched(sequence: Sequence) -> Outcome:
            nonlocal held
            outcome = attempt(sequence)
            held = held or outcome in (Outcome.FULL, Outcome.NO_ROOM)
            return outcome

        if not len(self.background):
            self.foreground.fill(attempt)
            return
        if len(self.foreground):
            self.foreground.fill(watched)
        if not held:
            self.background.fill(attempt)

    def fill_underserved(self, attempt: Attempt) -> None:
        self.foreground.fill_underserved(attempt)

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        if not self._running:
            return self.foreground.prefill_order(sequences)
        foreground = [s for s in sequences if not s.request.slo.background]
        background = [s for s in sequences if s.request.slo.background]
        return self.foreground.prefill_order(foreground) + self.background.prefill_order(background)

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        """One of the background first."""
        if self._running:
            return self.background.victim(self._running)
        return self.foreground.place_victim(sequence, running)

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        """All of the background first, in no particular order."""
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
        self._running.update(dict.fromkeys(chunk.sequence for chunk in split[True]))

    def decodes(self, sequence: Sequence) -> None:
        self.of(sequence).decodes(sequence)

    def pauses(self, sequence: Sequence) -> None:
        self.of(sequence).pauses(sequence)

    def stepped(self) -> None:
        self.foreground.stepped()
        self.background.stepped()

    def left(self, sequence: Sequence) -> None:
        self._running.pop(sequence, None)
        self.of(sequence).left(sequence)

    def upcoming(self, count: int) -> list[Sequence]:
        found = self.foreground.upcoming(count)
        return found if found or not len(self.background) else self.background.upcoming(count)

    def ahead_of(self, sequence: Sequence) -> Backlog:
        """In the background, only its own class: all others go first for as long as there are any."""
        return self.of(sequence).ahead_of(sequence)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        if self._running:
            return self.background.victim(self._running)
        return self.foreground.victim(running)
