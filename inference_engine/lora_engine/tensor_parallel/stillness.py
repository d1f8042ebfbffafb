"""When ranks count as hung: those that answer nothing, and those that stand still within a step.

Ranks beat once a second; time is counted in beats that this process took part in, so that a machine that was
suspended, or a whole group of processes that was stopped, is not taken for a stuck one.

On CPUs the ranks' counts of exchanges move many times a step, however long it takes. If one of them waits for the
others, or they have begun different numbers, and nothing has moved for some beats, one is stuck: in its own work, or
all in an exchange that does not end.

On GPUs a step is handed to the device as a whole, and an event behind it says when it is over. What all ranks have
given to their devices waits for no host any more, neither for a compiler nor for masks; a device that is not through
with it for some beats is stuck, or waits for one that is. As long as a rank has not given all of a step, only
``StepWatchdog`` bounds it: the first step of a kind rightly compiles for tens of seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from lora_engine.model.parallel import DeviceSteps, Exchanges, Parallel

BEAT_S = 1.0
SILENT_BEATS = 6
SILENT_BEATS_ON_GPUS = 10
"""A compiler or a driver may hold the interpreter for seconds."""
STILL_BEATS = 6

Counts = tuple[int, int]
"""Of exchanges begun and ended; on a GPU of steps given to the device, and over there."""
_DEVICES_SHARE = 6
"""Of the longest time of a step, how many times less a device may take with it once it has all of it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far this rank is. ``steps``: on a GPU."""

    exchanges: Exchanges
    steps: DeviceSteps | None

    @classmethod
    def on(cls, device: str) -> Progress:
        return cls(Exchanges(), DeviceSteps() if torch.device(device).type == "cuda" else None)

    def of(self, parallel: Parallel) -> Parallel:
        """It, whose steps are counted."""
        return replace(parallel, steps=self.steps)

    @property
    def counts(self) -> Counts:
        """From any thread."""
        return self.exchanges.counts if self.steps is None else self.steps.counts


def device_beats(step_timeout_s: float) -> float:
    """How many beats devices may take with a step that they have; infinite if steps have no bound."""
    return max(2.0, step_timeout_s / _DEVICES_SHARE / BEAT_S) if step_timeout_s else float("inf")


class Still(NamedTuple):
    """The rank that others wait for, of several the first; and whether all wait alike."""

    rank: int
    all_wait: bool


class Stillness:
    """Of ranks on CPUs."""

    most_beats: float = STILL_BEATS

    def __init__(self) -> None:
        self._seen: list[object] = []
        self._still = 0

    def beat(self, counts: Sequence[Counts]) -> Still | None:
        """After another beat, each rank's counts. Not None: the others have waited for too long."""
        progress = self._progress(counts)
        self._still = self._still + 1 if self._waits(counts) and progress == self._seen else 0
        self._seen = progress
        if self._still < self.most_beats:
            return None
        far = self._how_far(counts)
        return Still(far.index(min(far)), len(set(far)) == 1)

    def _waits(self, counts: Sequence[Counts]) -> bool:
        return len({begun for begun, _ in counts}) > 1 or any(begun != ended for begun, ended in counts)

    def _progress(self, counts: Sequence[Counts]) -> list[object]:
        return [*counts]

    def _how_far(self, counts: Sequence[Counts]) -> list[int]:
        return [begun for begun, _ in counts]


class DeviceStillness(Stillness):
    """Of ranks on GPUs, which have given their devices more steps or fewer; all of them some that are not over."""

    def __init__(self, most_beats: float) -> None:
        super().__init__()
        self.most_beats = most_beats

    def _waits(self, counts: Sequence[Counts]) -> bool:
        return min(over for _, over in counts) < min(given for given, _ in counts)

    def _progress(self, counts: Sequence[Counts]) -> list[object]:
        return [*self._how_far(counts)]

    def _how_far(self, counts: Sequence[Counts]) -> list[int]:
        return [over for _, over in counts]
