"""Whose turn it is when a host has room for one more request: the tenant that was served least for its weight.

The virtual token counters of the engine's fair order (Sheng et al., OSDI 2024), for what this process sends to all
hosts: a tenant's counter grows with what hosts did for it, and one that comes to wait is lifted to the least of those
that wait, so time away earns nothing. What a tenant had while nobody waited does not count against it. No input or
output: the simulation runs the same class.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# The engine's default prices of tokens. An adapter's rank is not known here; each host's own order counts that.
INPUT_PRICE, OUTPUT_PRICE = 1.0, 2.0
# Priced tokens that a tenant below its guaranteed share may be ahead of the least served one that waits for the same
# hosts. About one long prompt, so that a tenant's second request does not wait until a flood has had as much.
GUARANTEE_SLACK = 16_384.0
_MOST_COUNTERS = 10_000
Hosts = frozenset[str]


@dataclass(eq=False)
class Waiter:
    """One request that waits for one of these hosts."""

    tenant: str
    hosts: Hosts
    priority: int = 0
    gone: bool = False  # it waits no longer, and has not had its turn

    def __hash__(self) -> int:
        return id(self)


@dataclass
class _WaitingTenant:
    """The requests of a tenant that wait, by the hosts that may have them, the most urgent first."""

    queues: dict[Hosts, list[tuple[int, int, Waiter]]] = field(default_factory=dict)

    def heads(self) -> Iterator[tuple[int, int, Waiter]]:
        """The next of each queue; forgets those that are gone."""
        for hosts, queue in [*self.queues.items()]:
            while queue and queue[0][2].gone:
                heapq.heappop(queue)
            if queue:
                yield queue[0]
            else:
                del self.queues[hosts]


class FairTurns:
    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._waiting: dict[str, _WaitingTenant] = {}
        self._floor = 0.0  # the largest counter of those served while nobody waited
        self._sequence = itertools.count()

    def __len__(self) -> int:
        """Tenants that wait; some may be gone."""
        return len(self._waiting)

    def charge(self, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Hosts did so much for it, in priced tokens."""
        self._counters[tenant] = self._counters.get(tenant, self._floor) + cost / (weight or 1.0)
        if not self._waiting:
            self._floor = max(self._floor, self._counters[tenant])
        if len(self._counters) > _MOST_COUNTERS:
            self._forget()

    def counter(self, tenant: str) -> float:
        return self._counters.get(tenant, self._floor)

    def wait(self, waiter: Waiter) -> None:
        tenant = waiter.tenant
        if tenant not in self._waiting:
            least = min((self.counter(other) for other in self._waiting), default=self._floor)
            self._counters[tenant] = max(self.counter(tenant), least)
            self._waiting[tenant] = _WaitingTenant()
        queue = self._waiting[tenant].queues.setdefault(waiter.hosts, [])
        heapq.heappush(queue, (-waiter.priority, next(self._sequence), waiter))

    def next(
        self, has_room: Callable[[Hosts], bool], is_guaranteed: Callable[[Waiter], bool] = lambda _waiter: False
    ) -> Waiter | None:
        """Take out the next request whose hosts have room, or that is guaranteed a place there; None if there is none.

        A guarantee holds while the tenant is at most ``GUARANTEE_SLACK`` ahead of those that wait for the same hosts.
        """
        order = sorted(self._waiting, key=self.counter)
        for name in order:
            tenant = self._waiting[name]
            ready = [
                head
                for head in tenant.heads()
                if has_room(head[2].hosts)
                or (is_guaranteed(head[2]) and self._lead(name, head[2].hosts, order) <= GUARANTEE_SLACK)
            ]
            if ready:
                taken = min(ready)
                heapq.heappop(tenant.queues[taken[2].hosts])
                self._settle(name)
                return taken[2]
            self._settle(name)
        return None

    def _lead(self, tenant: str, hosts: Hosts, order: list[str]) -> float:
        """Return a tenant's lead in priced tokens over the least served one that waits for some of these hosts."""
        waiting = ((name, self._waiting[name].queues) for name in order if name in self._waiting)
        least = next(self.counter(name) for name, queues in waiting if any(hosts & others for others in queues))
        return self.counter(tenant) - least

    def _settle(self, name: str) -> None:
        """A tenant without requests waits no longer."""
        if not any(True for _ in self._waiting[name].heads()):
            del self._waiting[name]
            self._floor = max(self._floor, self.counter(name)) if not self._waiting else self._floor

    def _forget(self) -> None:
        """Who is below the floor would be lifted to it."""
        kept = {name: value for name, value in self._counters.items() if name in self._waiting or value > self._floor}
        if len(kept) > _MOST_COUNTERS:  # nobody has waited for long: only differences among those in the lead are left
            kept = {name: value for name, value in kept.items() if name in self._waiting}
        self._counters = kept
