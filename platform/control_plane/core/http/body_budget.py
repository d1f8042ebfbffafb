"""How many bytes of request bodies a web process holds in memory at once, and how many of them for one caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import Self

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError

RETRY_S = 1.0


class BodiesInFlightError(LorikeetError):
    """There is no room for more of this body now."""

    retry_after_s = RETRY_S

    def __init__(self, *, own: bool) -> None:
        whose = "Your requests that are being answered hold" if own else "The requests that are being answered hold"
        super().__init__(
            "too_many_bytes_in_flight",
            f"{whose} as many bytes as this process keeps at once.",
            "Send it again when some have been answered, or send smaller bodies.",
            status=429 if own else 503,
        )


class BodyBudget:
    """For one event loop. A caller has a quarter of it at most."""

    def __init__(self) -> None:
        self.held = 0
        self._by_owner: Counter[Hashable] = Counter()

    def take(self, owner: Hashable, count: int) -> None:
        """Raises BodiesInFlightError, and takes nothing then."""
        most = current().bodies_max_bytes
        if self._by_owner[owner] + count > most // 4:
            raise BodiesInFlightError(own=True)
        if self.held + count > most:
            raise BodiesInFlightError(own=False)
        self.held += count
        self._by_owner[owner] += count

    def give_back(self, owner: Hashable, count: int) -> None:
        self.held -= count
        self._by_owner[owner] -= count
        if not self._by_owner[owner]:
            del self._by_owner[owner]


class HeldBody:
    """What one request holds of it, given back at the end of the block."""

    def __init__(self, budget: BodyBudget, owner: Hashable) -> None:
        self._budget, self._owner, self._count = budget, owner, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give_back(self._owner, self._count)
        self._count = 0

    def grow(self, count: int) -> None:
        """Raises BodiesInFlightError."""
        self._budget.take(self._owner, count)
        self._count += count


budget = BodyBudget()
"""The process's own: a web process has one event loop."""
