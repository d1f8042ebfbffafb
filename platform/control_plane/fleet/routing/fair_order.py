"""The order in which requests go to hosts that are full: the tenant served least for its weight comes first.

The virtual token counters of the engine's fair order (Sheng et al., OSDI 2024), for what this process sends to all
hosts. A tenant's counter grows with what hosts did for it. A tenant that starts to wait is lifted to the lowest counter
among the waiting tenants, so idle time earns nothing. Service while no request waited does not count against a tenant.
No input or output: the simulation runs the same class.
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
# Maximum number of tenants whose counters are kept.
_MAX_COUNTERS = 10_000
Hosts = frozenset[str]


@dataclass(eq=False)
class Waiter:
    """A request that waits for one of several hosts."""

    tenant: str
    hosts: Hosts
    priority: int = 0
    # True once it has stopped waiting without being sent.
    gone: bool = False

    def __hash__(self) -> int:
        return id(self)


@dataclass
class _WaitingTenant:
    """A tenant's waiting requests, by the hosts that may run them, the most urgent first."""

    queues: dict[Hosts, list[tuple[int, int, Waiter]]] = field(default_factory=dict)

    def heads(self) -> Iterator[tuple[int, int, Waiter]]:
        """Yield the first request of each queue, after removing those that are gone."""
        for hosts, queue in [*self.queues.items()]:
            while queue and queue[0][2].gone:
                heapq.heappop(queue)
            if queue:
                yield queue[0]
            else:
                del self.queues[hosts]


class FairOrder:
    """The waiting requests of all tenants, and the counter of each tenant."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._waiting: dict[str, _WaitingTenant] = {}
        # The largest counter of the tenants that were served while no request waited.
        self._floor = 0.0
        self._sequence = itertools.count()

    def __len__(self) -> int:
        """Return the number of waiting tenants. It may include tenants whose requests are all gone."""
        return len(self._waiting)

    def charge(self, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count work that hosts did for a tenant, in priced tokens."""
        self._counters[tenant] = self._counters.get(tenant, self._floor) + cost / (weight or 1.0)
        if not self._waiting:
            self._floor = max(self._floor, self._counters[tenant])
        if len(self._counters) > _MAX_COUNTERS:
            self._drop_counters()

    def counter(self, tenant: str) -> float:
        return self._counters.get(tenant, self._floor)

    def wait(self, waiter: Waiter) -> None:
        """Add a request to the queue of its tenant."""
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
        """Remove and return the next request whose hosts have room, or which is guaranteed a place there; None without
        one.

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
                first = min(ready)
                heapq.heappop(tenant.queues[first[2].hosts])
                self._remove_if_empty(name)
                return first[2]
            self._remove_if_empty(name)
        return None

    def _lead(self, tenant: str, hosts: Hosts, order: list[str]) -> float:
        """Return a tenant's lead in priced tokens over the least served one that waits for some of these hosts."""
        waiting = ((name, self._waiting[name].queues) for name in order if name in self._waiting)
        least = next(self.counter(name) for name, queues in waiting if any(hosts & others for others in queues))
        return self.counter(tenant) - least

    def _remove_if_empty(self, name: str) -> None:
        """Remove a tenant without requests from the waiting ones."""
        if not any(True for _ in self._waiting[name].heads()):
            del self._waiting[name]
            self._floor = max(self._floor, self.counter(name)) if not self._waiting else self._floor

    def _drop_counters(self) -> None:
        """Drop counters below the floor, to which their tenants would be lifted anyway."""
        kept = {name: value for name, value in self._counters.items() if name in self._waiting or value > self._floor}
        if len(kept) > _MAX_COUNTERS:  # no request waited for long: only differences among the leading tenants are lost
            kept = {name: value for name, value in kept.items() if name in self._waiting}
        self._counters = kept
