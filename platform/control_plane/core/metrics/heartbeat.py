"""The heartbeat of a process without a web server: workers, beat and the watcher call `beat` from their main loops.

`/livez` of the metrics port reports its age, so that a process that lives and does nothing is noticed.
"""

from __future__ import annotations

import time

# Seconds without a heartbeat after which a process counts as hung. Beat and the watcher's lease wake at least every few
# seconds, a worker sends one every two seconds; while PostgreSQL or Redis hangs one of them may wait for its timeouts.
HUNG_AFTER_S = 90.0

_beaten_at = time.monotonic()


def beat() -> None:
    """Note that the main loop of this process runs."""
    global _beaten_at
    _beaten_at = time.monotonic()


def age_s() -> float:
    """Return the seconds since the last heartbeat, or since the start."""
    return time.monotonic() - _beaten_at
