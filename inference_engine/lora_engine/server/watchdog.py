"""A watchdog detects a step that does not end: a hung device or driver, a deadlock."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

# Exit status of a process that ended itself: EX_SOFTWARE of sysexits.h.
EXIT_STATUS = 70


class StepWatchdog:
    """A watchdog that ends the process when one step takes longer than ``limit_s``, so that its supervisor restarts it.

    Until then the host seems alive, as the process still answers heartbeats, and its requests wait. The control plane
    handles this end like any other: requests without a token go to another host, the others fail, and the journal has
    the usage. Only time in which this thread ran counts, so a stopped process or a suspended machine does not count as
    stuck.
    """

    def __init__(
        self,
        steps: Callable[[], tuple[int, bool]],
        limit_s: float,
        *,
        tick_s: float = 1.0,
        on_end: Callable[[str], None] = lambda reason: None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """Create the watchdog. ``steps`` returns a number that changes with each step, and whether one runs now.
        ``on_end`` gets the reason before the process ends.
        """
        self._steps, self._limit_s, self._tick_s = steps, limit_s, tick_s
        self._on_end, self._end = on_end, end or (lambda: os._exit(EXIT_STATUS))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="step-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        seen, ticks = -1, 0
        while not self._stopped.wait(self._tick_s):
            step, running = self._steps()
            ticks = ticks + 1 if running and step == seen else 0
            seen = step
            if ticks * self._tick_s >= self._limit_s:
                self._give_up()
                return

    def _give_up(self) -> None:
        self._on_end(f"a step had run for {self._limit_s:.0f} s, so the device or its driver hung")
        log.critical(
            "A step has run for %.0f s, so the device or its driver hangs. The engine exits (status %d) to be "
            "restarted; the stacks of its threads follow. If steps are expected to take this long, raise "
            "--step-timeout-s.",
            self._limit_s,
            EXIT_STATUS,
        )
        faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
        self._end()
