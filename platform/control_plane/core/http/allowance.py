"""A token bucket for limits of rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Allowance:
    """A token bucket. A cost may overdraw it; the next caller then waits."""

    per_s: float
    at_once: float
    level: float
    at: float

    @classmethod
    def full(cls, per_s: float, at_once: float, now: float) -> Allowance:
        return cls(per_s, at_once, at_once, now)

    def spend(self, cost: float) -> None:
        self.level -= cost

    def wait_s(self, now: float) -> float:
        """Return the seconds until the bucket is above zero again."""
        self.level = min(self.at_once, self.level + (now - self.at) * self.per_s)
        self.at = now
        return max(0.0, -self.level / self.per_s)
