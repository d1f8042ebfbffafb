"""When ranks count as hung: those that answer nothing, and those that stand still within a step.

Ranks beat once a second; time is counted in beats that this process took part in, so that a machine that was
suspended, or a whole group of processes that was stopped, is not taken for a stuck one.

On CPUs the ranks' counts of exchanges move many times a step, however long it takes. If one of them waits for the
others, or they have begun different numbers, and nothing has moved for some beats, one is stuck: in its own work, or
all in an exchange that does not end. On GPUs nothing of that can be seen, as a step is handed to the device as a whole;
there ``StepWatchdog`` bounds the step.
"""

from __future__ import annotations

from collections.abc import Sequence

BEAT_S = 1.0
SILENT_BEATS = 6
SILENT_BEATS_ON_GPUS = 10
"""A compiler or a driver may hold the interpreter for seconds."""
STILL_BEATS = 6

Counts = tuple[int, int]  # exchanges begun, exchanges ended


class Stillness:
    """Of ranks on CPUs."""

    def __init__(self) -> None:
        self._seen: list[Counts] = []
        self._still = 0

    def beat(self, counts: Sequence[Counts]) -> int | None:
        """After another beat, each rank's counts. The rank that the others have waited for too long for, if there is
        one; of several the first.
        """
        begun = [begun for begun, _ in counts]
        waits = max(begun) != min(begun) or any(begun != ended for begun, ended in counts)
        self._still = self._still + 1 if waits and [*counts] == self._seen else 0
        self._seen = [*counts]
        return begun.index(min(begun)) if self._still >= STILL_BEATS else None

    @property
    def all_wait(self) -> bool:
        """Whether, as seen last, all ranks are in the same exchange."""
        return len({begun for begun, _ in self._seen}) == 1
