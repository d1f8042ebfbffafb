"""Routing policies: each chooses the host of a request."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from control_plane.fleet.transport.errors import HostError

# Predictions that differ by less than this factor and these seconds count as equal: their error is about as large.
_AS_SOON, _AS_SOON_S = 1.25, 0.005
# Maximum number of hosts that one request is compared over.
MAX_COMPARED = 32


@dataclass(frozen=True)
class HostLoad:
    """The load of a host. ``pending`` counts requests; ``resident`` tells whether it has the requested adapter.

    ``first_token_s`` is when the request would have its first token there; None if that cannot be predicted.
    ``cached`` is the share of its prompt that need not be computed there.
    """

    name: str
    pending: int
    tokens_per_second: float = 0.0
    resident: bool = True
    first_token_s: float | None = None
    cached: float = 0.0


class RoutingPolicy(Protocol):
    """A policy that chooses among at least one host."""

    def choose(self, hosts: Sequence[HostLoad]) -> HostLoad: ...


class LeastPending:
    """The policy that takes the host with the fewest open requests, preferring hosts with the adapter; ties rotate."""

    def __init__(self) -> None:
        self._counter = itertools.count()

    def choose(self, hosts: Sequence[HostLoad]) -> HostLoad:
        best = min(self._cost(host) for host in hosts)
        equals = [host for host in hosts if self._cost(host) == best]
        return equals[next(self._counter) % len(equals)]

    @staticmethod
    def _cost(host: HostLoad) -> tuple[bool, int]:
        return (not host.resident, host.pending)


class SoonestFirstToken:
    """The policy that takes the host with the soonest predicted first token.

    Of hosts that are about as soon, it takes those that have most of the prompt cached, and of these the least loaded.
    A prediction includes the queue ahead in fair order, the uncached part of the prompt, and the load of the adapter
    (``first_token.py``). While one host cannot predict, as after its start, open requests are counted instead.
    """

    def __init__(self) -> None:
        self._others = LeastPending()

    def choose(self, hosts: Sequence[HostLoad]) -> HostLoad:
        known = [host.first_token_s for host in hosts if host.first_token_s is not None]
        if len(known) < len(hosts):
            return self._others.choose(hosts)
        as_soon = min(known) * _AS_SOON + _AS_SOON_S
        sooner = [host for host in hosts if host.first_token_s is not None and host.first_token_s <= as_soon]
        most_cached = max(host.cached for host in sooner)
        return self._others.choose([host for host in sooner if host.cached >= most_cached])


class RoundRobin:
    """The policy that takes every host in rotation, whatever its load."""

    def __init__(self) -> None:
        self._counter = itertools.count()

    def choose(self, hosts: Sequence[HostLoad]) -> HostLoad:
        return hosts[next(self._counter) % len(hosts)]


ROUTING_POLICIES: Mapping[str, type[RoutingPolicy]] = {
    "first_token": SoonestFirstToken,
    "least_pending": LeastPending,
    "round_robin": RoundRobin,
}


def compared(hosts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the hosts that a request is compared over, and the others, for when none of these has room for it.

    Evaluating a host takes about as long as sending a token; the best of a few dozen, drawn anew for each request, is
    about as good as the best of all (Mitzenmacher, "The power of two choices", 2001).
    """
    if len(hosts) <= MAX_COMPARED:
        return [*hosts], []
    drawn = random.sample(hosts, MAX_COMPARED)
    chosen = {*drawn}
    return drawn, [host for host in hosts if host not in chosen]


def make_policy(name: str) -> RoutingPolicy:
    if name not in ROUTING_POLICIES:
        raise ValueError(f'There is no routing policy "{name}". Supported: {", ".join(sorted(ROUTING_POLICIES))}.')
    return ROUTING_POLICIES[name]()


def no_host(model: str) -> HostError:
    return HostError(
        "no_ready_host",
        f"No engine host is ready to serve {model} right now.",
        "Send the request again in a few seconds. If it persists, see the hosts page for what they wait for.",
        param="model",
        retry_after_s=3.0,
    )
