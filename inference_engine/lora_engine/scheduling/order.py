"""Order policies: in which order waiting sequences are considered, and who is pre-empted first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from .registry import Registry
from .sequence import Sequence


class Order(Protocol):
    """The queue of waiting sequences."""

    def push(self, sequence: Sequence) -> None:
        """A sequence arrived, or came back pre-empted."""

    def remove(self, sequence: Sequence) -> None:
        """A sequence was admitted, aborted or refused."""

    def __iter__(self) -> Iterator[Sequence]:
        """Waiting sequences, the one to admit first first. The queue does not change meanwhile."""

    def __len__(self) -> int: ...

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        """Which running sequence gives way when pages run out."""


orders: Registry[Order] = Registry("order")


class _ByArrival:
    """Waiting sequences in arrival order; pre-empted ones keep their old place, ahead of later arrivals."""

    def __init__(self) -> None:
        self._fresh: dict[Sequence, None] = {}
        self._preempted: list[Sequence] = []

    def push(self, sequence: Sequence) -> None:
        if sequence.parent.usage.preemptions:
            self._preempted.append(sequence)
            self._preempted.sort(key=lambda s: s.arrival)
        else:
            self._fresh[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        if sequence in self._fresh:
            del self._fresh[sequence]
        else:
            self._preempted.remove(sequence)

    def __len__(self) -> int:
        return len(self._fresh) + len(self._preempted)

    def victim(self, running: Iterable[Sequence]) -> Sequence:
        return max(running, key=lambda s: s.arrival)


@orders.register("fcfs")
class FirstComeFirstServed(_ByArrival):
    """Oldest arrival first."""

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._preempted
        yield from self._fresh


@orders.register("lcfs")
class LastComeFirstServed(_ByArrival):
    """Newest arrival first; what was pre-empted still goes ahead, since its work is half paid for."""

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._preempted
        yield from reversed(self._fresh)
