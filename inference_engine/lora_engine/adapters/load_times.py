"""Load times to the next tier are predicted from earlier loads."""

from __future__ import annotations

import threading
from dataclasses import dataclass

_KEPT = 0.95  # factor on the weight of earlier loads with every new one


@dataclass(frozen=True, slots=True)
class LoadTime:
    """The time of a load: ``fixed_s + bytes * seconds_per_byte``. ``loads`` is counted since the start, 0 = unknown."""

    loads: int = 0
    fixed_s: float = 0.0
    seconds_per_byte: float = 0.0


class LoadTimes:
    """A least-squares fit over loads that forgets slowly and so follows the machine. It may be used from several
    threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads = 0
        self._weight = self._bytes = self._seconds = self._bytes_squared = self._product = 0.0

    def add(self, num_bytes: int, seconds: float) -> None:
        with self._lock:
            self._loads += 1
            self._weight = self._weight * _KEPT + 1
            self._bytes = self._bytes * _KEPT + num_bytes
            self._seconds = self._seconds * _KEPT + seconds
            self._bytes_squared = self._bytes_squared * _KEPT + num_bytes**2
            self._product = self._product * _KEPT + num_bytes * seconds

    @property
    def now(self) -> LoadTime:
        with self._lock:
            if not self._loads or not self._bytes:
                return LoadTime()
            mean_bytes, mean_s = self._bytes / self._weight, self._seconds / self._weight
            spread = self._bytes_squared / self._weight - mean_bytes**2
            per_byte = self._seconds / self._bytes  # loads of one size do not show which part is fixed
            if spread > 1e-4 * mean_bytes**2:
                slope = (self._product / self._weight - mean_bytes * mean_s) / spread
                per_byte = min(max(slope, 0.0), per_byte)  # neither part may be negative
            return LoadTime(self._loads, mean_s - per_byte * mean_bytes, per_byte)
