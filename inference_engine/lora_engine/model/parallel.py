"""Where this process stands among its tensor-parallel peers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist

# Its name up to torch 2.12 is deprecated in 2.13.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class SmallSums(Protocol):
    """A quicker way to sums of some sizes. All ranks have it, or none."""

    def takes(self, x: torch.Tensor) -> bool:
        """Whether it is for tensors of this size and type; the same on all ranks."""

    def all_reduce(self, x: torch.Tensor) -> None:
        """Sum over the group, in place, in the order of the stream."""


@dataclass(slots=True)
class Exchanges:
    """How many exchanges between all ranks this one has begun and ended. On CPUs that shows how far in a step it is; on
    GPUs, where they run later, it shows nothing, and ``DeviceSteps`` are counted.
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


class Mark(Protocol):
    """Of a place in what a device was given, as an event is."""

    def query(self) -> bool:
        """Whether the device is past it."""


def device_mark() -> Mark:
    """Behind what the current stream has."""
    event = torch.cuda.Event()
    event.record()
    return event


class DeviceSteps:
    """How many steps this rank has given to its device, each as a whole, and how many of them are over there.

    One thread gives, any asks.
    """

    def __init__(self, mark: Callable[[], Mark] = device_mark) -> None:
        self._mark = mark
        self._marks: deque[Mark] = deque()
        self._asking = threading.Lock()
        self._given = self._over = 0

    def given(self) -> None:
        """The device has all of a step."""
        self._marks.append(self._mark())
        self._given += 1

    @property
    def counts(self) -> tuple[int, int]:
        """Given, and over."""
        given = self._given
        with self._asking:
            while self._marks and _is_over(self._marks[0]):
                self._marks.popleft()
                self._over += 1
            return max(given, self._over), self._over


def _is_over(mark: Mark) -> bool:
    try:
        return mark.query()
    except RuntimeError:  # the device failed: whoever waits for the step says so
        return False


@dataclass(frozen=True, slots=True)
class Parallel:
    """Rank and world size of a tensor-parallel group; world 1 needs no process group.

    The base model is sharded as Megatron does (column layers by output, row layers by input), and adapters as
    ``adapters/targets.py`` says.
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None
    small: SmallSums | None = None
    exchanges: Exchanges = field(default_factory=Exchanges, compare=False)
    steps: DeviceSteps | None = field(default=None, compare=False)  # of several ranks on GPUs

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """Sum of ``x`` over the group, in place. Nothing on the meta device."""
        if self.world > 1 and not x.is_meta:
            with self.exchanges:
                if self.small is not None and self.small.takes(x):
                    self.small.all_reduce(x)
                else:
                    dist.all_reduce(x, group=self.group)
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """``[world, *x.shape]`` of every rank's ``x``, which has to be contiguous."""
        out = x.new_empty(self.world, *x.shape)
        if self.world == 1:
            out[0] = x
        elif not x.is_meta:
            with self.exchanges:
                _gather(out.flatten(0, 1), x, group=self.group)
        return out

    def broadcast(self, x: torch.Tensor) -> None:
        """Rank 0's ``x`` to the whole group, in place."""
        if self.world > 1:
            with self.exchanges:
                dist.broadcast(x, src=0, group=self.group)

    def smallest(self, value: int, device: torch.device) -> int:
        """The least of the group's values. Waits for all ranks."""
        if self.world == 1:
            return value
        least = torch.tensor(value, device=device)
        with self.exchanges:
            dist.all_reduce(least, op=dist.ReduceOp.MIN, group=self.group)
        return int(least)

    def sums(self, values: list[float], device: torch.device) -> list[float]:
        """Of each value, its sum over the group. Waits for all ranks."""
        if self.world == 1:
            return values
        return [float(value) for value in self.all_reduce(torch.tensor(values, dtype=torch.float64, device=device))]

    def shard(self, size: int, what: str) -> int:
        """This rank's share of ``size``. Raises ``ValueError`` if it does not divide."""
        if size % self.world:
            raise ValueError(
                f"{what} ({size}) cannot be split over {self.world} tensor-parallel ranks; choose a --tensor-parallel "
                "that divides the model's heads and sizes"
            )
        return size // self.world
