"""First come first served, last come first served, and what policies without counters share."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain, islice, takewhile

from lora_engine.scheduling.sequence import Chunk, Outcome, Sequence

from .base import LOOK_AHEAD, Attempt, Backlog, PolicyContext, queue_policies


class ArrivalQueue:
    """Waiting sequences by arrival; pre-empted ones keep their place, ahead of all that never ran.

    A sequence's place, for predictions, is how many waited when it came less those that left since.
    """

    def __init__(self) -> None:
        self._fresh: dict[Sequence, None] = {}
        self._preempted: list[tuple[int, Sequence]] = []
        self._places: dict[Sequence, tuple[int, int]] = {}  # departures and prompt tokens gone that let it go first
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
        if sequence.parent.usage.preemptions:
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
        """What was pre-empted still goes first, since part of its work is done."""
        return chain(self.preempted(), reversed(self._fresh))

    def preempted(self) -> Iterator[Sequence]:
        return (sequence for _, sequence in self._preempted)

    def before(self, sequence: Sequence) -> Backlog:
        """What arrived before ``sequence`` and waits; everything, if it has not been pushed yet."""
        departed, tokens = self._places.get(sequence, (self._departed + len(self), self._tokens_in))
        return Backlog(max(0, departed - self._departed), max(0, tokens - self._tokens_out))


class ArrivalPolicy:
    """What policies without counters share. Subclasses name the ``candidates``, in their order."""

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

    def fill_underserved(self, attempt: Attempt) -> None:
        """Places are not shared out between tenants."""

    def prefill_order(self, sequences: list[Sequence]) -> list[Sequence]:
        return sequences

    def place_victim(self, sequence: Sequence, running: Iterable[Sequence]) -> Sequence | None:
        return None

    def page_victims(self, sequence: Sequence, running: Iterable[Sequence]) -> Iterator[Sequence]:
        return iter(())

    def served(self, chunks: Iterable[Chunk]) -> None:
        """Service is not counted."""

    def decodes(self, sequence: Sequence) -> None:
        """Service is not counted."""

    def pauses(self, sequence: Sequence) -> None:
        """Service is not counted."""

    def stepped(self) -> None:
        """Service is not counted."""

    def left(self, sequence: Sequence) -> None:
        """Service is not counted."""

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
        """Offer in turn until one does not fit, so that large requests do not starve. How many were admitted."""
        admitted: list[Sequence] = []
        passed = 0
        for sequence in candidates:
            outcome = attempt(sequence)
            if outcome is Outcome.ADMITTED:
                admitted.append(sequence)
            elif outcome in (Outcome.FULL, Outcome.NO_ROOM):
                break
            else:
                passed += 1
                if passed >= LOOK_AHEAD:
                    break
        for sequence in admitted:
            self.remove(sequence)
        return len(admitted)


@queue_policies.register("fcfs")
class FirstComeFirstServed(ArrivalPolicy):
    """Oldest arrival first."""


class StarvationGuarded(ArrivalPolicy):
    """For policies under which a request might never run: past ``starvation_s`` the oldest gets every second slot."""

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context)
        self._clock = context.clock
        self._starvation_s = context.config.starvation_s
        self._owed = False  # the last slot went to the policy's own candidate

    def starving(self) -> Iterator[Sequence]:
        """Those that have waited too long, oldest first."""
        if not self._starvation_s:
            return iter(())
        latest = self._clock() - self._starvation_s
        return takewhile(lambda s: s.parent.timeline.submitted <= latest, self.queue.oldest_first())

    def fill(self, attempt: Attempt) -> None:
        own, starving = self.candidates(), self.starving()
        tried: set[Sequence] = set()
        admitted: list[Sequence] = []
        while len(tried) - len(admitted) < LOOK_AHEAD:
            turn = chain(starving, own) if self._owed else chain(own, starving)
            sequence = next((s for s in turn if s not in tried), None)
            if sequence is None:
                break
            tried.add(sequence)
            outcome = attempt(sequence)
            if outcome is Outcome.ADMITTED:
                admitted.append(sequence)
                self._owed = not self._owed
            elif outcome in (Outcome.FULL, Outcome.NO_ROOM):
                break  # it is tried first again in the next step, so that large requests do not starve
        for sequence in admitted:
            self.remove(sequence)


@queue_policies.register("lcfs")
class LastComeFirstServed(StarvationGuarded):
    """Newest arrival first; what was pre-empted still goes first, since part of its work is done."""

    def candidates(self) -> Iterator[Sequence]:
        return self.queue.newest_first()

    def ahead_of(self, sequence: Sequence) -> Backlog:
        """None: requests that will go first have not arrived yet."""
        return Backlog()
