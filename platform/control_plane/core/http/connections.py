"""Limits of a web process's connections, by holder, and of the rate of strangers' requests.

A connection begins as a stranger's and counts for its address. The first request or message on it that proves its
sender moves it to that tenant or person. So the address does not limit a client with many streams, it does limit an
attacker without a key, and neither strangers nor one tenant can take all connections. A refusal costs processor time
too, so the strangers of an address may send a limited number of requests a second, and fewer if they are refused;
more of them wait.
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

# Key of a request's `scope["state"]` that holds the slot of its connection.
SLOT = "lorikeet.connection"
RETRY_S = 2.0  # sent to the client in Retry-After
# Seconds of a stranger's rate that may come at once: a page of the console is a dozen requests.
BURST_S = 10.0
# Requests that one answered with an error counts as: browsers meet few errors, an attacker who guesses keys or
# passwords meets nothing else.
REFUSAL = 5.0
# Addresses whose rate is remembered: the most recent ones.
ADDRESSES = 1 << 14


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
    """The place of one open connection. `holder` is an address until `prove`."""

    _table: ConnectionTable
    holder: Hashable
    proven: bool = False

    def ask(self, requests: float = 1.0) -> None:
        """Count requests, or something as costly, that begin on the connection."""
        if not self.proven:
            self._table.rate.spend(self.holder, requests)

    def refused(self) -> None:
        """Count a stranger's request that was answered with an error."""
        self.ask(REFUSAL - 1.0)

    def wait_s(self) -> float:
        """Return the seconds that its next request has to wait because strangers of its address sent too many."""
        return 0.0 if self.proven else self._table.rate.wait_s(self.holder)

    def prove(self, holder: Hashable) -> None:
        """Count the connection for `holder` from now on. Only the first proof counts.

        Raises TooManyConnectionsError.
        """
        if not self.proven:
            self._table.move(self, holder)

    def give_back(self) -> None:
        """Release the place. Idempotent."""
        self._table.drop(self)


class StrangerRate:
    """A limit on the requests a second from each address, on connections that are not proven.

    per_s: 0 for no limit. Used on the event loop and on threads.
    """

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._allowances: OrderedDict[Hashable, Allowance] = OrderedDict()
        self._lock = threading.Lock()

    def spend(self, holder: Hashable, requests: float = 1.0) -> None:
        """Count requests of an address; a negative number returns them."""
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
    """The open connections of one process. Thread-safe: views on threads prove connections too.

    most: connections in all; strangers have half of them at most, and so has each tenant. per_address: connections of
    strangers from one address, 0 for no limit, as behind a proxy, where all come from one address. requests_per_s:
    requests of the strangers of one address, 0 for no limit; unlimited too where `per_address` is 0.
    """

    def __init__(self, most: int, per_address: int, requests_per_s: float = 0.0) -> None:
        self.most, self.per_address = most, per_address
        self.rate = StrangerRate(requests_per_s if per_address else 0.0)
        self._slots: set[Slot] = set()
        self._strangers = 0
        self._by_holder: Counter[Hashable] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def _share(self) -> int:
        return max(self.most // 2, 1)

    def take(self, client: tuple[str, int] | None) -> Slot | None:
        """Return a place for a new connection, or None if there is none for it."""
        # A Unix socket has no address: the process that may open it is trusted to bound its requests.
        holder = ("address", network_of(client[0])) if client and self.per_address else ("address", "")
        limit = self.per_address if client and self.per_address else self.most
        with self._lock:
            if len(self._slots) >= self.most or self._strangers >= self._share or self._by_holder[holder] >= limit:
                return None
            slot = Slot(self, holder)
            self._slots.add(slot)
            self._by_holder[holder] += 1
            self._strangers += 1
            return slot

    def move(self, slot: Slot, holder: Hashable) -> None:
        with self._lock:
            if slot not in self._slots or slot.proven:
                return
            # Behind a proxy a connection carries requests of many callers, so no tenant's share applies.
            if self.per_address and self._by_holder[holder] >= self._share:
                raise TooManyConnectionsError
            self._forget(slot)
            self.rate.spend(slot.holder, -1.0)  # the sender was no stranger: return its request to the address
            slot.holder, slot.proven = holder, True
            self._by_holder[holder] += 1

    def drop(self, slot: Slot) -> None:
        with self._lock:
            if slot in self._slots:
                self._slots.discard(slot)
                self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        if not slot.proven:
            self._strangers -= 1
        self._by_holder[slot.holder] -= 1
        if not self._by_holder[slot.holder]:
            del self._by_holder[slot.holder]


def tenant_holder(tenant_id: object) -> Hashable:
    """Return the holder of connections that presented an API key of a tenant."""
    return ("tenant", tenant_id)


def user_holder(user_id: object) -> Hashable:
    """Return the holder under which the connections of an account's sessions are counted."""
    return ("user", user_id)


def prove(scope: Mapping[str, Any], holder: Hashable) -> None:
    """Count the connection of this request for `holder`. Raises TooManyConnectionsError."""
    slot = scope.get("state", {}).get(SLOT)
    if slot is not None:
        slot.prove(holder)
