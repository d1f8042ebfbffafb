"""How many connections a web process holds, and for whom.

A connection begins as a stranger's and counts for its address. The first request or message on it that proves who
sent it moves it to that tenant or person. So a client with many streams is not limited by its address, an attacker
without a key is, and neither strangers nor one tenant can take all the connections that there are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.errors import LorikeetError
from control_plane.http.client_address import network_of

SLOT = "lorikeet.connection"
"""Under which name a request's `scope["state"]` has the slot of its connection."""
RETRY_S = 2.0


class TooManyConnectionsError(LorikeetError):
    """A tenant or person has as many connections as one may have."""

    retry_after_s = RETRY_S

    def __init__(self) -> None:
        super().__init__(
            "too_many_connections",
            "You have as many connections open as one tenant may have in one process.",
            "Close some, or send more than one request over each.",
            status=429,
        )


@dataclass(eq=False)
class Slot:
    """One open connection's place. `holder` is an address until `prove`."""

    _table: ConnectionTable
    holder: Hashable
    proven: bool = False

    def prove(self, holder: Hashable) -> None:
        """Count it for `holder` from now on. Only the first proof counts. Raises TooManyConnectionsError."""
        if not self.proven:
            self._table.move(self, holder)

    def give_back(self) -> None:
        """Idempotent."""
        self._table.drop(self)


class ConnectionTable:
    """Of one process. Views that run on threads prove connections too.

    most: connections in all; strangers have half of them at most, and so has each tenant. per_address: of strangers,
    0 for no such limit, as behind a proxy, where all come from one address.
    """

    def __init__(self, most: int, per_address: int) -> None:
        self.most, self.per_address = most, per_address
        self._slots: set[Slot] = set()
        self._strangers = 0
        self._held: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def _share(self) -> int:
        return max(self.most // 2, 1)

    def take(self, client: tuple[str, int] | None) -> Slot | None:
        """A place for a new connection, or None if there is none for it."""
        # A Unix socket has no address: whoever may open it is trusted to bound what passes.
        holder = ("address", network_of(client[0])) if client and self.per_address else ("address", "")
        limit = self.per_address if client and self.per_address else self.most
        with self._lock:
            if len(self._slots) >= self.most or self._strangers >= self._share or self._held[holder] >= limit:
                return None
            slot = Slot(self, holder)
            self._slots.add(slot)
            self._held[holder] += 1
            self._strangers += 1
            return slot

    def move(self, slot: Slot, holder: Hashable) -> None:
        with self._lock:
            if slot not in self._slots or slot.proven:
                return
            # Behind a proxy a connection carries requests of many.
            if self.per_address and self._held[holder] >= self._share:
                raise TooManyConnectionsError
            self._forget(slot)
            slot.holder, slot.proven = holder, True
            self._held[holder] += 1

    def drop(self, slot: Slot) -> None:
        with self._lock:
            if slot in self._slots:
                self._slots.discard(slot)
                self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        if not slot.proven:
            self._strangers -= 1
        self._held[slot.holder] -= 1
        if not self._held[slot.holder]:
            del self._held[slot.holder]


def tenant_holder(tenant_id: object) -> Hashable:
    """Of connections that an API key was shown on."""
    return ("tenant", tenant_id)


def user_holder(user_id: object) -> Hashable:
    """Of connections with a session."""
    return ("user", user_id)


def prove(scope: Mapping[str, Any], holder: Hashable) -> None:
    """The connection of this request is `holder`'s. Raises TooManyConnectionsError."""
    slot = scope.get("state", {}).get(SLOT)
    if slot is not None:
        slot.prove(holder)
