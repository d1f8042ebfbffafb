"""A budget of bytes for the request bodies that a web process holds in memory, in all and for each caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import Self

from control_plane.core.config import current
from control_plane.core.errors import LorikeetError

RETRY_S = 1.0  # sent to the client in Retry-After


class BodiesInFlightError(LorikeetError):
    """The budget has no room for more of this body now."""

    retry_after_s = RETRY_S

    def __init__(self, *, by_caller: bool) -> None:
        whose = "Your requests in progress hold" if by_caller else "The requests in progress hold"
        super().__init__(
            "too_many_bytes_in_flight",
            f"{whose} as many bytes as this process keeps at once.",
            "Send it again when some have been answered, or send smaller bodies.",
            status=429 if by_caller else 503,
        )


class BodyBudget:
    """The bytes of bodies in flight on one event loop. A caller may hold a quarter of the budget at most."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._by_owner: Counter[Hashable] = Counter()

    def take(self, owner: Hashable, count: int) -> None:
        """Reserve bytes for `owner`. Raises BodiesInFlightError, and reserves nothing then."""
        most = current().bodies_max_bytes
        if self._by_owner[owner] + count > most // 4:
            raise BodiesInFlightError(by_caller=True)
        if self.in_flight + count > most:
            raise BodiesInFlightError(by_caller=False)
        self.in_flight += count
        self._by_owner[owner] += count

    def give_back(self, owner: Hashable, count: int) -> None:
        self.in_flight -= count
        self._by_owner[owner] -= count
        if not self._by_owner[owner]:
            del self._by_owner[owner]


class BodyReservation:
    """Bytes of the budget that one request holds, released at the end of the block."""

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
        """Reserve more bytes. Raises BodiesInFlightError."""
        self._budget.take(self._owner, count)
        self._count += count


# The budget of this process: a web process has one event loop.
budget = BodyBudget()
