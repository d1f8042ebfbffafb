"""The progress of a start: its phases and their durations, for the log and for ``/readyz`` of the metrics port."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

# Seconds between log lines of a phase's progress.
_LOG_EVERY_S = 2.0


@dataclass(slots=True)
class Phase:
    """A phase of the start; ``seconds`` is None while it runs, ``done`` is its progress from 0 to 1."""

    name: str
    began: float
    seconds: float | None = None
    done: float = 0.0


class StartProgress:
    """The phases of a start, which may overlap. The starting thread writes them; any thread may read them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, began: float | None = None) -> None:
        """Begin a start at ``began`` of ``clock``, by default now."""
        self._clock = clock
        self._began = clock() if began is None else began
        self._phases: list[Phase] = []
        self._logged = 0.0
        self._ready_after: float | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[Callable[[float], None]]:
        """Time a block as a phase; the yielded function reports its progress from 0 to 1."""
        phase = Phase(name, self._clock())
        self._phases.append(phase)

        def progress(done: float) -> None:
            phase.done = done
            if self._clock() - max(self._logged, phase.began) >= _LOG_EVERY_S:
                self._logged = self._clock()
                log.info("start: %s, %.0f %%", name, 100 * done)

        yield progress
        phase.done, phase.seconds = 1.0, self._clock() - phase.began
        log.info("start: %s took %.1f s", name, phase.seconds)

    def ready(self) -> None:
        """Record that the engine is ready to serve requests."""
        self._ready_after = self._clock() - self._began
        parts = ", ".join(f"{phase.name} {phase.seconds:.1f}" for phase in self._phases if phase.seconds is not None)
        log.info("ready after %.1f s (%s)", self._ready_after, parts)

    @property
    def is_ready(self) -> bool:
        return self._ready_after is not None

    def text(self) -> str:
        """Return the progress as a line of JSON."""
        now = self._clock()
        return json.dumps(
            {
                "ready": self.is_ready,
                "seconds": round(now - self._began if self._ready_after is None else self._ready_after, 2),
                "phases": [
                    {
                        "name": phase.name,
                        "done": round(phase.done, 3),
                        "seconds": round(now - phase.began if phase.seconds is None else phase.seconds, 2),
                    }
                    for phase in self._phases
                ],
            }
        )


def process_start() -> float:
    """Return the start time of this process by ``time.monotonic``, before the first line of Python runs."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return time.monotonic()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(age, 0.0)
