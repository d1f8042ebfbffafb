"""The time for which tokens gather before they leave: none while the event loop has time, longer while it is behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

# Seconds between two measurements of the loop, while a host has streams.
EVERY_S = 0.05
# Shares of time that the loop's thread computed: above the first tokens gather longer, below the second less long.
BUSY, IDLE = 0.7, 0.45
# Seconds by which the loop calls back late: above the first it is behind (or other processes have the processor), below
# the second it is not.
LATE_S, PUNCTUAL_S = 0.010, 0.004
# Shortest delay other than none, in seconds. The delay doubles and halves.
LEAST_S = 0.004


class Pace:
    """The time for which new tokens of a stream may gather, from none up to ``most_s``.

    A token costs about as much processor time to send as a chunk of several. A loop that has time sends each token in
    the step that made it. When the loop is behind, tokens gather, which frees time; so the delay settles where the loop
    is busy, but keeps up.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = time.thread_time) -> None:
        """``clock`` counts the seconds that the calling thread has computed."""
        self.delay_s = 0.0
        self._most_s = most_s
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def start(self, needed: Callable[[], bool]) -> None:
        """Measure the running loop as long as ``needed``. Idempotent."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._schedule(loop, needed, loop.time(), self._clock())

    def _schedule(self, loop: asyncio.AbstractEventLoop, needed: Callable[[], bool], now: float, spent: float) -> None:
        def measure() -> None:
            self._timer = None
            if not needed():
                return
            end, computed = loop.time(), self._clock()
            self.adapt(max(0.0, end - now - EVERY_S), (computed - spent) / max(end - now, 1e-9))
            self._schedule(loop, needed, end, computed)

        self._timer = loop.call_at(now + EVERY_S, measure)

    def adapt(self, late_s: float, busy: float) -> None:
        """Adapt to a measurement: how late the loop called back, and the share of time that it computed."""
        if late_s > LATE_S or busy > BUSY:
            self.delay_s = min(max(2 * self.delay_s, LEAST_S), self._most_s)
        elif late_s < PUNCTUAL_S and busy < IDLE:
            self.delay_s = self.delay_s / 2 if self.delay_s > LEAST_S else 0.0
