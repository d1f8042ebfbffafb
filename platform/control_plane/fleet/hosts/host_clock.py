"""The difference of a host's clock and the database's, measured from heartbeats."""

from __future__ import annotations

import logging
import time
from collections import deque

logger = logging.getLogger(__name__)

# Heartbeats of which the one that was least delayed counts.
KEPT = 8
# Seconds of a difference that is reported: NTP keeps clocks within milliseconds.
MAX_DIFFERENCE_S = 1.0
# Seconds between two log lines about one host.
REPORT_EVERY_S = 600.0


class HostClock:
    """An estimate of how far a host's clock is ahead of the database's; negative: behind.

    A heartbeat has the host's time of its making. Its way, and a busy watcher, make that look older than it is, never
    newer. So of the last few the one with the largest difference is the nearest to the truth.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ahead_s = deque[float](maxlen=KEPT)
        self._reported_s: float | None = None

    def observe(self, host_time: float, received_at: float) -> float:
        """Take a heartbeat's time and the database's at its arrival, in seconds since 1970. Returns the estimate."""
        self._ahead_s.append(host_time - received_at)
        ahead_s = max(self._ahead_s)
        self._report(ahead_s)
        return ahead_s

    def forget(self) -> None:
        """Begin anew: another engine, or a machine that was restarted, may have another clock."""
        self._ahead_s.clear()

    def _report(self, ahead_s: float) -> None:
        """Log a difference of more than a second when it begins and every ten minutes, and its end."""
        now = time.monotonic()
        if abs(ahead_s) > MAX_DIFFERENCE_S:
            if self._reported_s is None or now - self._reported_s >= REPORT_EVERY_S:
                side = "ahead of" if ahead_s > 0 else "behind"
                logger.warning(
                    "The clock of host %s is %.1f s %s the database's. Synchronise its machine with NTP.",
                    self._name, abs(ahead_s), side,
                )  # fmt: skip
                self._reported_s = now
        elif self._reported_s is not None:
            logger.info("The clock of host %s agrees with the database's again.", self._name)
            self._reported_s = None
