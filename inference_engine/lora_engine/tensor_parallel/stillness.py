"""The detection of hung ranks: ranks that do not answer, and ranks that make no progress within a step.

Ranks beat once a second. Time is counted in beats that this process took part in, so that the suspension of a machine,
or of a whole group of processes, does not count as a hang.

On CPUs the ranks' counts of exchanges change many times a step, however long it takes. If a rank waits for others, or
the ranks have begun different numbers of exchanges, and no count has changed for some beats, then either one rank hangs
in its work, or all hang in an exchange.

On GPUs a whole step is launched on the device, and an event after it marks its end. A step that all ranks have launched
no longer waits for any host, neither for a compiler nor for masks; a device that does not finish it for some beats
hangs, or waits for one that hangs. Until every rank has launched the whole step, only ``StepWatchdog`` bounds its time:
the first step of a kind may compile for tens of seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from lora_engine.model.parallel import DeviceSteps, Exchanges, Parallel

# Seconds between two beats of a rank.
BEAT_S = 1.0
# Beats without an answer after which a rank on a CPU counts as hung.
SILENT_BEATS = 6
# The same on a GPU, where a compiler or a driver may hold the interpreter lock for seconds.
SILENT_BEATS_ON_GPUS = 10
# Beats for which a rank may be stopped by a signal: neither a compiler nor a driver does that.
STOPPED_BEATS = 2
# Beats without progress after which ranks on CPUs count as hung.
STILL_BEATS = 6

# Numbers of exchanges begun and ended; on a GPU, of steps launched and finished.
Counts = tuple[int, int]
# Divisor of the maximum time of a step for the time that a device may take once the whole step is launched.
_DEVICES_SHARE = 6


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of this rank: its exchanges and, on a GPU, its steps."""

    exchanges: Exchanges
    steps: DeviceSteps | None

    @classmethod
    def on(cls, device: str) -> Progress:
        return cls(Exchanges(), DeviceSteps() if torch.device(device).type == "cuda" else None)

    def of(self, parallel: Parallel) -> Parallel:
        """Return ``parallel`` with this object's counter of steps."""
        return replace(parallel, steps=self.steps)

    @property
    def counts(self) -> Counts:
        """Counts of exchanges, or of steps on a GPU; any thread may read them."""
        return self.exchanges.counts if self.steps is None else self.steps.counts


def device_beats(step_timeout_s: float) -> float:
    """Return the number of beats that a device may take for a launched step; infinite if steps have no time limit."""
    return max(2.0, step_timeout_s / _DEVICES_SHARE / BEAT_S) if step_timeout_s else float("inf")


class Still(NamedTuple):
    """A hang: the first rank that others wait for, and whether all wait for each other."""

    rank: int
    all_wait: bool


class Stillness:
    """A hang detector for ranks on CPUs."""

    most_beats: float = STILL_BEATS

    def __init__(self) -> None:
        self._seen: list[object] = []
        self._still = 0

    def beat(self, counts: Sequence[Counts]) -> Still | None:
        """Take each rank's counts after another beat; return the hang if the others have waited for too long."""
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
    """A hang detector for ranks on GPUs, which may have launched different numbers of steps."""

    def __init__(self, most_beats: float) -> None:
        super().__init__()
        self.most_beats = most_beats

    def _waits(self, counts: Sequence[Counts]) -> bool:
        return min(finished for _, finished in counts) < min(launched for launched, _ in counts)

    def _progress(self, counts: Sequence[Counts]) -> list[object]:
        return [*self._how_far(counts)]

    def _how_far(self, counts: Sequence[Counts]) -> list[int]:
        return [finished for _, finished in counts]
