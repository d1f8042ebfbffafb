"""How many connections a web process holds, and for whom, and how fast strangers may ask.

A connection begins as a stranger's and counts for its address. The first request or message on it that proves who
sent it moves it to that tenant or person. So a client with many streams is not limited by its address, an attacker
without a key is, and neither strangers nor one tenant can take all the connections that there are. Refusing costs
processor time too, so the strangers of an address may send only so many requests a second, and fewer that are
refused; more of them wait.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from control_plane.core.errors import LorikeetError
from control_plane.core.http.allowance import Allowance
from control_plane.core.http.client_address import network_of

SLOT = "lorikeet.connection"
"""Under which name a request's `scope["state"]` has the slot of its connection."""
RETRY_S = 2.0
BURST_S = 10.0
"""Strangers' requests of so many seconds may come at once: a page of the console is a dozen of them."""
REFUSAL = 5.0
"""A request that is answered with an error counts as so many: people's browsers meet few, and whoever tries keys and
passwords nothing else."""
ADDRESSES = 1 << 14
"""Of which the rate is remembered: those that asked last."""


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

    def ask(self, requests: float = 1.0) -> None:
        """A request begins on it, or something as costly happens."""
        if not self.proven:
            self._table.rate.spend(self.holder, requests)

    def refused(self) -> None:
        """What a stranger asked was answered with an error."""
        self.ask(REFUSAL - 1.0)

    def wait_s(self) -> float:
        """For how long its next request has to wait, because strangers of its address sent too many."""
        return 0.0 if self.proven else self._table.rate.wait_s(self.holder)

    def prove(self, holder: Hashable) -> None:
        """Count it for `holder` from now on. Only the first proof counts. Raises TooManyConnectionsError."""
        if not self.proven:
            self._table.move(self, holder)

    def give_back(self) -> None:
        """Idempotent."""
        self._table.drop(self)


class StrangerRate:
    """How many requests a second may begin, from each address, on connections that nobody has proven.

    per_s: 0 for no limit. Used on the event loop and on threads.
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._allowances: OrderedDict[Hashable, Allowance] = OrderedDict()
        self._lock = threading.Lock()

    def spend(self, holder: Hashable, requests: float = 1.0) -> None:
        """Negative requests are given back."""
        if not self.per_s:
            return
        with self._lock:
            if holder not in self._allowances:
                self._allowances[holder] = Allowance.full(self.per_s, self.per_s * BURST_S, time.monotonic())
                if len(self._allowances) > ADDRESSES:
                    self._allowances.popitem(last=False)
            self._allowances.move_to_end(holder)
            self._allowances[holder].spend(requests)

    def wait_s(self, holder: Hashable) -> float:
        with self._lock:
            allowance = self._allowances.get(holder)
            return allowance.wait_s(time.monotonic()) if allowance else 0.0


class ConnectionTable:
    """Of one process. Views that run on threads prove connections too.

    most: connections in all; strangers have half of them at most, and so has each tenant. per_address: of strangers,
    0 for no such limit, as behind a proxy, where all come from one address. requests_per_s: of the strangers of one
    address, 0 for no limit; none either without one of connections.
    """

    def __init__(self, most: int, per_address: int, requests_per_s: float = 0.0) -> None:
        self.most, self.per_address = most, per_address
        self.rate = StrangerRate(requests_per_s if per_address else 0.0)
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
            self.rate.spend(slot.holder, -1.0)  # it was no stranger that opened it
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
