"""The rank of this process in its tensor-parallel group, and the exchanges between ranks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
import torch.distributed as dist

# torch 2.13 deprecates the name that the function has up to 2.12.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
# Maximum size in bytes of a sum that more than two GPUs add up in one part (benchmarks/results/w7.jsonl).
_ONE_PART = 1 << 20


class SmallSums(Protocol):
    """A faster all-reduce for tensors of some sizes. All ranks have it, or none."""

    def takes(self, x: torch.Tensor) -> bool:
        """Return whether it supports this tensor's size and dtype; the answer is the same on all ranks."""

    def all_reduce(self, x: torch.Tensor) -> None:
        """Sum ``x`` over the group, in place, in the order of the stream."""


@dataclass(frozen=True, slots=True)
class PartialSum:
    """A sum over the ranks whose addends all ranks can read, for a kernel that adds them up as it reads them.

    It must be read before the sum after the next one: see ``SharedAddends``.
    """

    addend: torch.Tensor  # this rank's
    addresses: torch.Tensor  # [ranks] int64 on the device: of each rank's addend in this rank's address space


def in_two_parts(num_bytes: int, ranks: int) -> bool:
    """Return whether the ranks add up a sum of so many bytes before a norm reads it; otherwise the norm does."""
    return ranks > 2 and num_bytes > _ONE_PART


class SharedAddends(Protocol):
    """Memory of this rank that all ranks can read, where products write the addends of sums. All have it, or none."""

    def addend(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the place of the next sum's addend, ``[rows, columns]`` with undefined contents; None: too large."""

    def contains(self, x: torch.Tensor) -> bool:
        """Return whether ``x`` is such a place."""

    def sum(self, addend: torch.Tensor) -> PartialSum | torch.Tensor:
        """Wait, in the order of the stream, until every rank has written its addend, or until ``addend`` is the sum."""


@dataclass(slots=True)
class Exchanges:
    """The numbers of collective operations that this rank has begun and ended.

    On CPUs they show a rank's progress within a step. On GPUs, where the operations run later, ``DeviceSteps`` do.
    """

    begun: int = 0
    ended: int = 0

    @property
    def counts(self) -> tuple[int, int]:
        return self.begun, self.ended

    def __enter__(self) -> None:
        self.begun += 1

    def __exit__(self, *_error: object) -> None:
        self.ended += 1


class DeviceEvent(Protocol):
    """A point in a device's stream, such as a CUDA event."""

    def query(self) -> bool:
        """Return whether the device has passed the point."""


def record_event() -> DeviceEvent:
    """Record an event at the end of the current stream."""
    event = torch.cuda.Event()
    event.record()
    return event


class DeviceSteps:
    """The numbers of whole steps that this rank has launched on its device, and of those that have finished there.

    One thread launches steps; any thread may read the counts.
    """

    def __init__(self, mark: Callable[[], DeviceEvent] = record_event) -> None:
        self._mark = mark
        self._marks: deque[DeviceEvent] = deque()
        self._lock = threading.Lock()
        self._launched = self._finished = 0

    def launched(self) -> None:
        """Record that all of a step was launched on the current stream."""
        self._marks.append(self._mark())
        self._launched += 1

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of steps launched and finished."""
        launched = self._launched
        with self._lock:
            while self._marks and _is_passed(self._marks[0]):
                self._marks.popleft()
                self._finished += 1
            return max(launched, self._finished), self._finished


def _is_passed(mark: DeviceEvent) -> bool:
    try:
        return mark.query()
    except RuntimeError:  # the device failed; the thread that waits for the step reports it
        return False


@dataclass(frozen=True, slots=True)
class Parallel:
    """A rank of a tensor-parallel group with ``world`` ranks; a world of 1 needs no process group.

    The base model is sharded as Megatron does (column layers by output, row layers by input), and adapters as
    ``adapters/targets.py`` says.
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None
    small: SmallSums | None = None
    shared: SharedAddends | None = None
    exchanges: Exchanges = field(default_factory=Exchanges, compare=False)
    steps: DeviceSteps | None = field(default=None, compare=False)  # only with several ranks on GPUs
    joining: Future[Parallel] | None = field(default=None, compare=False)  # while the ranks meet: see ``joined``

    def joined(self) -> Parallel:
        """Wait until the ranks have met, if they have not; before, a rank has its number but exchanges nothing."""
        if self.joining is None:
            return self
        met = self.joining.result()
        return replace(self, group=met.group, small=met.small, shared=met.shared, joining=None)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum ``x`` over the group, in place; does nothing on the meta device."""
        if self.world > 1 and not x.is_meta:
            with self.exchanges:
                if self.small is not None and self.small.takes(x):
                    self.small.all_reduce(x)
                else:
                    dist.all_reduce(x, group=self.group)
        return x

    def addend(self, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Return the place for this rank's addend of the next ``sum``; None where there is no shared memory for it."""
        return None if self.shared is None else self.shared.addend(rows, columns, dtype)

    def sum(self, addend: torch.Tensor) -> torch.Tensor | PartialSum:
        """Sum a tensor over the group: for a kernel that adds it up if it is at the place of ``addend``, or at once."""
        if self.shared is None or not self.shared.contains(addend):
            return self.all_reduce(addend)
        with self.exchanges:
            return self.shared.sum(addend)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Gather every rank's contiguous ``x`` as ``[world, *x.shape]``."""
        out = x.new_empty(self.world, *x.shape)
        if self.world == 1:
            out[0] = x
        elif not x.is_meta:
            with self.exchanges:
                _gather(out.flatten(0, 1), x, group=self.group)
        return out

    def broadcast(self, x: torch.Tensor) -> None:
        """Copy rank 0's ``x`` to the whole group, in place."""
        if self.world > 1:
            with self.exchanges:
                dist.broadcast(x, src=0, group=self.group)

    def smallest(self, value: int, device: torch.device) -> int:
        """Return the minimum of ``value`` over the group. Waits for all ranks."""
        if self.world == 1:
            return value
        least = torch.tensor(value, device=device)
        with self.exchanges:
            dist.all_reduce(least, op=dist.ReduceOp.MIN, group=self.group)
        return int(least)

    def sums(self, values: list[float], device: torch.device) -> list[float]:
        """Return the sum of each value over the group. Waits for all ranks."""
        if self.world == 1:
            return values
        return [float(value) for value in self.all_reduce(torch.tensor(values, dtype=torch.float64, device=device))]

    def shard(self, size: int, what: str) -> int:
        """Return this rank's share of ``size``. Raises ``ValueError`` if ``size`` is not divisible."""
        if size % self.world:
            raise ValueError(
                f"{what} ({size}) cannot be split over {self.world} tensor-parallel ranks; choose a --tensor-parallel "
                "that divides the model's heads and sizes"
            )
        return size // self.world
