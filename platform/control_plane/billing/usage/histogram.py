"""Histograms of latencies in fixed buckets, so that counts of any hours and tenants can be added up.

Twelve bounds a decade from 100 microseconds to 1000 seconds, among them the usual targets (100, 150, 200, 250, 500 ms,
1 s, ...): the share within such a target is exact, and a percentile is off by less than the width of its bucket, at
most a third.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

_MANTISSAS = (10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80)
# Upper bounds in microseconds. Bucket `i` has the values above bound `i - 1` and at most bound `i`; one more bucket has
# all values above the last bound.
BOUNDS_US = (*(mantissa * 10**power for power in range(1, 8) for mantissa in _MANTISSAS), 10**9)


def bucket_of(value_us: float) -> int:
    return bisect_left(BOUNDS_US, value_us)


def _edges(bucket: int) -> tuple[float, float]:
    low = BOUNDS_US[bucket - 1] if bucket else 0
    high = BOUNDS_US[bucket] if bucket < len(BOUNDS_US) else BOUNDS_US[-1]
    return low, high


def percentile_us(counts: Mapping[int, int], share: float) -> int | None:
    """Return the value in microseconds that `share` (0 to 1) of the counted values do not exceed; None if none are."""
    wanted = share * sum(counts.values())
    if not wanted:
        return None
    passed = 0
    for bucket, count in sorted(counts.items()):
        if passed + count >= wanted:
            low, high = _edges(bucket)
            return round(low + (high - low) * (wanted - passed) / count)
        passed += count
    raise AssertionError("the counts add up to less than a share of themselves")


def within(counts: Mapping[int, int], limit_us: float) -> float:
    """Return how many of the counted values are at most `limit_us`; exact if that is one of the bounds."""
    met = 0.0
    for bucket, count in counts.items():
        low, high = _edges(bucket)
        if high <= limit_us and bucket < len(BOUNDS_US):
            met += count
        elif low < limit_us < high:
            met += count * (limit_us - low) / (high - low)
    return met
