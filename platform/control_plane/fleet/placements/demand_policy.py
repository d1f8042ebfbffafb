"""Which hosts should hold which adapters, by what each takes of a device. Pure: no database, no clock.

Popular adapters are on several hosts, by their burst tolerance (dLoRA, section 5.2): how often its usual load the
spare time of an adapter's hosts would bear. The adapter that bears least gets another host, until each bears enough or
the least of all would fall. All others are on one host; what finds no room there is in the store only.

In a batch of several ranks part of the work is that of the largest, so large ranks are placed first and each host takes
of one kind what is its share of all load.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

LEAST_REPLICATED = 0.02
"""Of a device. What takes less is on one host: its bursts are small beside what a host has to spare."""
ENOUGH = 4.0
"""Times its usual load."""
STAYING = 0.1
"""Of a device: another host must be that much better for an adapter to leave the one it is on."""
RANK_UNIT = 256.0
"""A host's whole load at a rank so much below its largest counts as much as the load itself."""
FAIR_SHARE = 1.2
"""Of the mean load of all hosts. What a host has above it counts more than ranks do."""
OVERLOAD = 4.0


@dataclass(frozen=True)
class HostRoom:
    host: int
    bytes: int
    """Of adapters that it should hold at most."""


@dataclass(frozen=True)
class Demand:
    """A version that can be called."""

    version: Hashable
    load: float
    """Of one device's time, as of its busiest hour lately."""
    bytes: int
    rank: int
    hosts: frozenset[int]
    """Where it is now."""
    needs_host: bool = False
    """Even if there is no room: it is not ready anywhere yet."""


@dataclass
class _Host:
    room: int
    load: float = 0.0
    rank_load: float = 0.0
    rank: int = 0

    @property
    def spare(self) -> float:
        return max(0.0, 1.0 - self.load)

    def cost_of(self, load: float, rank: int, share: float) -> float:
        """What it would have above its share, and how much more of its work would be that of a larger rank."""
        wasted = self.rank * self.load - self.rank_load
        would_waste = max(self.rank, rank) * (self.load + load) - self.rank_load - rank * load
        return OVERLOAD * max(0.0, self.load + load - share) + (would_waste - wasted) / RANK_UNIT

    def change(self, load: float, rank: int) -> None:
        self.load += load
        self.rank_load += load * rank


def plan(hosts: Iterable[HostRoom], demands: Iterable[Demand]) -> dict[Hashable, frozenset[int]]:
    """The hosts that each version should be on; none: in the store only."""
    rooms = {room.host: _Host(room.bytes) for room in hosts}
    ordered = sorted(demands, key=lambda each: (each.load == 0, -each.rank, -each.load, str(each.version)))
    popular = [demand for demand in ordered if demand.load >= LEAST_REPLICATED]
    others = [demand for demand in ordered if demand.load < LEAST_REPLICATED]
    share = FAIR_SHARE * sum(demand.load for demand in ordered) / max(1, len(rooms))
    chosen: dict[Hashable, set[int]] = {}
    # The others fill the room that all copies of these have left; until then each host has its part of their load.
    background = sum(demand.load for demand in others) / max(1, len(rooms))
    for room in rooms.values():
        room.change(background, 0)
    _settle(rooms, popular, chosen, share)
    _replicate(rooms, popular, chosen)
    for room in rooms.values():
        room.change(-background, 0)
    _settle(rooms, others, chosen, share)
    return {version: frozenset(on) for version, on in chosen.items()}


def _settle(rooms: dict[int, _Host], demands: Iterable[Demand], chosen: dict[Hashable, set[int]], share: float) -> None:
    for demand in demands:
        on = chosen[demand.version] = set()
        home = _home(rooms, demand, share)
        if home is not None:
            _put(rooms, demand, on, home)


def _home(rooms: dict[int, _Host], demand: Demand, share: float) -> int | None:
    """The one host that it is on, whatever its load."""

    def cost(host: int) -> tuple[float, int, int]:
        own = rooms[host].cost_of(demand.load, demand.rank, share) if demand.load else 0.0
        return round(own - STAYING * (host in demand.hosts), 9), -rooms[host].room if not demand.load else 0, host

    fitting = [host for host in rooms if rooms[host].room >= demand.bytes]
    if fitting:
        return min(fitting, key=cost)
    if demand.load > 0 or demand.needs_host:  # the engine keeps on its disk what its memory does not hold
        return max(rooms, key=lambda host: (host in demand.hosts, rooms[host].room, -host), default=None)
    return None


def _put(rooms: dict[int, _Host], demand: Demand, on: set[int], host: int) -> None:
    _spread(rooms, demand, on, -1)
    on.add(host)
    _spread(rooms, demand, on, 1)
    rooms[host].room -= demand.bytes
    rooms[host].rank = max(rooms[host].rank, demand.rank)


def _take(rooms: dict[int, _Host], demand: Demand, on: set[int], host: int, rank: int) -> None:
    """Undo `_put`; ``rank`` is the host's of before."""
    _spread(rooms, demand, on, -1)
    on.remove(host)
    _spread(rooms, demand, on, 1)
    rooms[host].room += demand.bytes
    rooms[host].rank = rank


def _spread(rooms: dict[int, _Host], demand: Demand, on: set[int], sign: int) -> None:
    for host in on:
        rooms[host].change(sign * demand.load / len(on), demand.rank)


def _replicate(rooms: dict[int, _Host], demands: Sequence[Demand], chosen: dict[Hashable, set[int]]) -> None:
    """The adapter that bears least gets another host, until the least of all would fall. One for which no host makes it
    better is left as it is."""
    left = list(demands)
    while left:
        tolerances = {demand.version: _tolerance(rooms, demand, chosen[demand.version]) for demand in left}
        weakest = min(left, key=lambda demand: tolerances[demand.version])
        before, on = tolerances[weakest.version], chosen[weakest.version]
        if before >= ENOUGH:
            return
        fitting = [host for host in rooms if host not in on and rooms[host].room >= weakest.bytes]
        stays = {host: STAYING * (host in weakest.hosts) for host in fitting}
        another = min(fitting, key=lambda host: (rooms[host].load - stays[host], host), default=None)
        if another is None:
            left.remove(weakest)
            continue
        rank = rooms[another].rank
        _put(rooms, weakest, on, another)
        least = min(_tolerance(rooms, demand, chosen[demand.version]) for demand in left)
        if least < before or _tolerance(rooms, weakest, on) <= before:
            _take(rooms, weakest, on, another, rank)
            left.remove(weakest)


def _tolerance(rooms: dict[int, _Host], demand: Demand, on: set[int]) -> float:
    """How often its usual load its hosts could take besides what they do."""
    return sum(rooms[host].spare for host in on) / demand.load
