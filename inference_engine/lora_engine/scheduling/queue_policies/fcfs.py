"""First come first served, last come first served, and the base of policies without counters."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice, takewhile

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, queue_policies


class ArrivalQueue:
    """A queue of waiting sequences by arrival; pre-empted ones keep their place, ahead of all that never ran.

    For predictions, a sequence's place is the number that waited when it came, minus those that left since.
    """

    def __init__(self) -> None:
        self._fresh: dict[Sequence, None] = {}
        self._preempted: list[tuple[int, Sequence]] = []
        # departures and departed prompt tokens after which it is first
        self._places: dict[Sequence, tuple[int, int]] = {}
        self._departed = 0
        self._tokens_in = 0
        self._tokens_out = 0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._preempted)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._places

    def push(self, sequence: Sequence) -> None:
        self._places[sequence] = (self._departed + len(self), self._tokens_in)
        self._tokens_in += len(sequence.token_ids)
        if sequence.request_state.usage.preemptions:
            insort(self._preempted, (sequence.arrival, sequence))
        else:
            self._fresh[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        del self._places[sequence]
        self._departed += 1
        self._tokens_out += len(sequence.token_ids)
        if sequence in self._fresh:
            del self._fresh[sequence]
        else:
            del self._preempted[bisect_left(self._preempted, (sequence.arrival,))]

    def oldest_first(self) -> Iterator[Sequence]:
        return chain(self.preempted(), self._fresh)

    def newest_first(self) -> Iterator[Sequence]:
        """Return the newest first, after pre-empted ones, since part of their work is done."""
        return chain(self.preempted(), reversed(self._fresh))

    def preempted(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in self._preempted)

    def before(self, sequence: Sequence) -> Backlog:
        """Return the sequences that arrived before ``sequence`` and wait; all, if it has not been pushed yet."""
        departed, tokens = self._places.get(sequence, (self._departed + len(self), self._tokens_in))
        return Backlog(max(0, departed - self._departed), max(0, tokens - self._tokens_out))


class ArrivalPolicy:
    """A base of policies without counters. Subclasses return the ``candidates`` in order."""

    def __init__(self, context: PolicyContext) -> None:
        self.queue = ArrivalQueue()

    def __len__(self) -> int:
        return len(self.queue)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self.queue

    def push(self, sequence: Sequence) -> None:
        self.queue.push(sequence)

    def remove(self, sequence: Sequence) -> None:
        self.queue.remove(sequence)

    def fill_underserved(self, attempt: Attempt, *, beside_background: bool = False) -> None:
        """Offer nothing: places are not shared out between tenants."""

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        return sequences

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        return None

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        return iter(())

    def served(self, chunks: Iterable[Chunk]) -> None:
        pass

    def decodes(self, sequence: Sequence) -> None:
        pass

    def pauses(self, sequence: Sequence) -> None:
        pass

    def stepped(self) -> None:
        pass

    def accepted(self, sequence: Sequence, tokens: int) -> None:
        pass

    def left(self, sequence: Sequence) -> None:
        pass

    def candidates(self) -> Iterator[Sequence]:
        return self.queue.oldest_first()

    def fill(self, attempt: Attempt) -> None:
        self.offer(self.candidates(), attempt)

    def upcoming(self, count: int) -> list[Sequence]:
        return list(islice(self.candidates(), count))

    def ahead_of(self, sequence: Sequence) -> Backlog:
        return self.queue.before(sequence)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        return max(running, key=lambda s: s.arrival)

    def offer(self, candidates: Iterable[Sequence], attempt: Attempt) -> int:
        """Offer candidates in order until one does not fit, so that large requests do not starve; return the number
        started.
        """
        started: list[Sequence] = []
        passed = 0
        for sequence in candidates:
            outcome = attempt(sequence)
            if outcome is Outcome.STARTED:
                started.append(sequence)
            elif outcome in (Outcome.FULL, Outcome.NO_ROOM):
                break
            else:
                passed += 1
                if passed >= LOOK_AHEAD:
                    break
        for sequence in started:
            self.remove(sequence)
        return len(started)


@queue_policies.register("fcfs")
class FirstComeFirstServed(ArrivalPolicy):
    """A policy that serves the oldest arrival first."""


class StarvationGuarded(ArrivalPolicy):
    """A base of policies that might starve a request: after ``starvation_s`` the oldest gets every second slot."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._clock = context.clock
        self._starvation_s = context.config.starvation_s
        self._owed = False  # True after the last slot went to a candidate of the policy

    def starving(self) -> Iterator[Sequence]:
        """Return the sequences that have waited too long, oldest first."""
        if not self._starvation_s:
            return iter(())
        latest = self._clock() - self._starvation_s
        return takewhile(lambda s: s.request_state.submitted <= latest, self.queue.oldest_first())

    def fill(self, attempt: Attempt) -> None:
        candidates, starving = self.candidates(), self.starving()
        tried: set[Sequence] = set()
        started: list[Sequence] = []
        while len(tried) - len(started) < LOOK_AHEAD:
            order = chain(starving, candidates) if self._owed else chain(candidates, starving)
            sequence = next((s for s in order if s not in tried), None)
            if sequence is None:
                break
            tried.add(sequence)
            outcome = attempt(sequence)
            if outcome is Outcome.STARTED:
                started.append(sequence)
                self._owed = not self._owed
            elif outcome in (Outcome.FULL, Outcome.NO_ROOM):
                break  # the next step tries it first again, so that large requests do not starve
        for sequence in started:
            self.remove(sequence)


@queue_policies.register("lcfs")
class LastComeFirstServed(StarvationGuarded):
    """A policy that serves the newest arrival first, after pre-empted ones, since part of their work is done."""

    def candidates(self) -> Iterator[Sequence]:
        return self.queue.newest_first()

    def ahead_of(self, sequence: Sequence) -> Backlog:
        """Predict no backlog: the requests that will go first have not arrived yet."""
        return Backlog()
