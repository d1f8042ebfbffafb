"""A step that does not end: a hung device or driver, a deadlock."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

EXIT_STATUS = 70
"""Of a process that ended itself; EX_SOFTWARE of sysexits.h."""


class StepWatchdog:
    """Ends the process when one step takes longer than ``limit_s``, so that its supervisor starts it anew.

    Until then the host looks alive, and everybody waits: the process still answers heartbeats. Its end is what the
    control plane handles as every other: requests that got no token yet go to another host, the others end with an
    error, and the journal has the usage. Only time in which this thread ran counts, so that a process that was
    stopped, or a suspended machine, is not taken for a stuck one.
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
        """``steps``: a number that changes with each step, and whether one runs now. ``on_end`` is told why the process
        is about to end."""
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
            "A step has run for %.0f s, so the device or its driver hangs. The engine ends itself (status %d) to be "
            "started anew; where its threads are is below. Steps that are rightly so long need a higher "
            "--step-timeout-s.",
            self._limit_s,
            EXIT_STATUS,
        )
        faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
        self._end()
