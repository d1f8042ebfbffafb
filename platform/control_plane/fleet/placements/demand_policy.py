"""The placement policy: which hosts should hold which adapters, by each adapter's load. No database, no clock.

Popular adapters are on several hosts, by their burst tolerance (dLoRA, section 5.2): how many times its usual load the
spare time of an adapter's hosts would bear. The adapter with the lowest tolerance gets another host, until each bears
enough or the lowest tolerance would fall. All other adapters are on one host, or in the store only if none has room.

A batch of several ranks costs part of the work of its largest rank. So large ranks are placed first, and each host
takes adapters of one rank up to its share of all load.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

# Least load, as a share of a device, of an adapter that gets several hosts: smaller bursts fit into spare time.
MIN_REPLICATED = 0.02
# Burst tolerance, in times of the usual load, at which an adapter gets no further host.
ENOUGH = 4.0
# Load, as a share of a device, by which another host must be better before an adapter moves.
STAYING = 0.1
# Ranks below a host's largest rank at which its whole load counts once more as wasted work.
RANK_UNIT = 256.0
# A host's share of all load, in times of the mean. Load above it costs more than ranks do.
FAIR_SHARE = 1.2
# Cost of a unit of load above a host's share.
OVERLOAD = 4.0


@dataclass(frozen=True)
class HostRoom:
    """A host, and how many bytes of adapters it should hold at most."""

    host: int
    bytes: int


@dataclass(frozen=True)
class Demand:
    """A callable version with its load, a share of one device's time in its busiest recent hour."""

    version: Hashable
    load: float
    bytes: int
    rank: int
    # The hosts that it is on now.
    hosts: frozenset[int]
    # It is not ready anywhere yet, so it gets a host even without room.
    needs_host: bool = False


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
        """Return the load above the host's share, and the work added by running small ranks beside larger ones."""
        wasted = self.rank * self.load - self.rank_load
        would_waste = max(self.rank, rank) * (self.load + load) - self.rank_load - rank * load
        return OVERLOAD * max(0.0, self.load + load - share) + (would_waste - wasted) / RANK_UNIT

    def change(self, load: float, rank: int) -> None:
        self.load += load
        self.rank_load += load * rank


def plan(hosts: Iterable[HostRoom], demands: Iterable[Demand]) -> dict[Hashable, frozenset[int]]:
    """Return the hosts that each version should be on; none means in the store only."""
    rooms = {room.host: _Host(room.bytes) for room in hosts}
    ordered = sorted(demands, key=lambda each: (each.load == 0, -each.rank, -each.load, str(each.version)))
    popular = [demand for demand in ordered if demand.load >= MIN_REPLICATED]
    others = [demand for demand in ordered if demand.load < MIN_REPLICATED]
    share = FAIR_SHARE * sum(demand.load for demand in ordered) / max(1, len(rooms))
    chosen: dict[Hashable, set[int]] = {}
    # The other adapters fill the room that these copies leave; until then each host has its part of their load.
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
    """Return the one host for an adapter of any load; None if none has room and it may be left to the store."""

    def cost(host: int) -> tuple[float, int, int]:
        load_cost = rooms[host].cost_of(demand.load, demand.rank, share) if demand.load else 0.0
        stays = STAYING * (host in demand.hosts)
        return round(load_cost - stays, 9), -rooms[host].room if not demand.load else 0, host

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
    """Undo `_put`; ``rank`` is the host's largest rank before it."""
    _spread(rooms, demand, on, -1)
    on.remove(host)
    _spread(rooms, demand, on, 1)
    rooms[host].room += demand.bytes
    rooms[host].rank = rank


def _spread(rooms: dict[int, _Host], demand: Demand, on: set[int], sign: int) -> None:
    for host in on:
        rooms[host].change(sign * demand.load / len(on), demand.rank)


def _replicate(rooms: dict[int, _Host], demands: Sequence[Demand], chosen: dict[Hashable, set[int]]) -> None:
    """Give the adapter with the lowest tolerance another host, until the lowest tolerance would fall.

    An adapter that no further host improves is left as it is.
    """
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
    """Return how many times its usual load an adapter's hosts could take in their spare time."""
    return sum(rooms[host].spare for host in on) / demand.load
