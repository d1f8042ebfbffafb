"""Migration of requests to other hosts when some hosts have far more to do than others.

dLoRA's migration (Wu et al., OSDI 2024, section 5.3): when a trigger fires, an integer program over the K most and the
K least loaded hosts. Its relaxation is solved (HiGHS) and rounded: at a vertex of that polytope, at most as many
requests are split as there are rows besides those that place each once (Lenstra, Shmoys, Tardos 1990), two per host.
Loads are seconds of work: a request's expected output at the host's measured rate, and prompts that have to be computed
(again). No input or output: the simulation runs the same classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from control_plane.fleet.routing.first_token import prompt_tokens
from lora_engine.wire import engine_pb2 as pb

if TYPE_CHECKING:
    import highspy

# Tokens of a page on most hosts: heartbeats report pages, requests are known in tokens.
PAGE_TOKENS = 16
# Moves that one request may have.
MAX_MOVES = 2
# Maximum number of requests in one program; the solver's time grows faster than their number.
_MAX_REQUESTS = 500
# Requests above the mean at which a host counts as overloaded: dLoRA's batch.
_BATCH = 16
# Share of a host's pages in use at which its memory counts as full.
_FULL = 0.9
# Share of the longest work that must remain at most after the moves, for them to be made.
_WORTH = 0.9
# Cost of a move, as a share of the moved work.
_PENALTY = 0.01
# Seconds that the solver may take.
_LIMIT_S = 0.05
# Weight of the past in the moving average of answer lengths.
_WINDOW = 5
# Tokens expected of an adapter's first answer.
_FIRST_LENGTH = 128.0
# Adapters with a moving average; the one seen longest ago is dropped.
_MAX_LENGTHS = 10_000
# Rate per second at which a host's highest observed speed decays.
_DECAY_PER_S = 0.01


@dataclass(frozen=True, slots=True)
class HostNow:
    """The state of a host that takes requests. ``pages_used`` are those of running requests."""

    name: str
    waiting: int
    running: int
    tokens_per_second: float
    prompt_token_s: float = 0.0
    pages_used: int = 0
    pages: int = 0

    @property
    def pending(self) -> int:
        return self.waiting + self.running

    @property
    def is_full(self) -> bool:
        """True if requests wait because the memory is full."""
        return self.waiting > 0 and self.pages > 0 and self.pages_used >= _FULL * self.pages


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """An open request of this process. ``hosts`` could continue it; ``more`` is the expected number of new tokens."""

    name: str
    host: str
    hosts: frozenset[str]
    prompt_tokens: float
    output_tokens: int
    more: float

    def may_go_to(self, host: HostNow) -> bool:
        return host.name in self.hosts and not (self.output_tokens and host.waiting)

    def work_s(self, host: HostNow, rate: float) -> float:
        """Return the seconds that it still takes on a host. Another host computes its tokens again."""
        known = self.prompt_tokens + self.output_tokens
        computed = self.host == host.name and self.output_tokens > 0
        return self.more / rate + (0.0 if computed else known * host.prompt_token_s)

    @property
    def pages(self) -> int:
        """Number of pages that it will occupy at its end."""
        return math.ceil((self.prompt_tokens + self.output_tokens + self.more) / PAGE_TOKENS)


@dataclass(frozen=True, slots=True)
class Moves:
    """A plan: the new hosts of requests, and the hosts' longest work before and after it, in seconds."""

    to: Mapping[str, str] = field(default_factory=dict)
    before_s: float = 0.0
    after_s: float = 0.0
    relaxed_s: float = 0.0  # the longest work where requests may be split


class MigrationPolicy(Protocol):
    """A policy that plans moves between hosts that take requests. It may take a while: not on an event loop."""

    def moves(self, hosts: Sequence[HostNow], requests: Sequence[OpenRequest], rates: Mapping[str, float]) -> Moves: ...


class Lengths:
    """Predicted answer lengths of each tenant's adapters: VTC's moving average, ``(4 * predicted + seen) / 5``."""

    def __init__(self) -> None:
        self._mean: dict[tuple[str, str], float] = {}

    def ended(self, tenant: str, adapter: str, tokens: int) -> None:
        known = self._mean.pop((tenant, adapter), float(tokens))
        if len(self._mean) >= _MAX_LENGTHS:
            del self._mean[next(iter(self._mean))]  # seen longest ago
        self._mean[tenant, adapter] = ((_WINDOW - 1) * known + tokens) / _WINDOW

    def more(self, tenant: str, adapter: str, so_far: int, most: int) -> float:
        """Return the expected number of further tokens, with at most ``most`` in all (0: no limit).

        An answer that is already long is expected to go on for half its length.
        """
        expected = max(self._mean.get((tenant, adapter), _FIRST_LENGTH) - so_far, so_far / 2, 1.0)
        return min(expected, max(1.0, most - so_far)) if most else expected


def open_request(submit: pb.Submit, host: str, hosts: Iterable[str], so_far: int, lengths: Lengths) -> OpenRequest:
    """Return a request of a host as migration sees it, with its output tokens so far in all choices."""
    most = submit.sampling.max_tokens * max(1, submit.sampling.n)
    more = lengths.more(submit.tenant, submit.adapter_digest, so_far, most)
    return OpenRequest(submit.request_id, host, frozenset(hosts), prompt_tokens(submit), so_far, more)


class Rates:
    """The generation rates of hosts, from the highest of late: an idle host's current rate is no measure."""

    def __init__(self) -> None:
        self._most: dict[str, float] = {}
        self._seen_at = 0.0

    def observe(self, hosts: Sequence[HostNow], now: float) -> None:
        keeps = math.exp(-_DECAY_PER_S * max(0.0, now - self._seen_at))
        self._seen_at = now
        self._most = {host.name: max(host.tokens_per_second, self._most.get(host.name, 0.0) * keeps) for host in hosts}

    def of(self, hosts: Sequence[HostNow]) -> dict[str, float]:
        """Return tokens per second by host. A host that was not busy yet counts as the fastest."""
        busy = {host.name: self._most.get(host.name, 0.0) for host in hosts}
        best = max(busy.values(), default=0.0) or 1.0
        waited = {host.name for host in hosts if host.waiting}
        return {name: rate if name in waited and rate > 0 else max(rate, best) for name, rate in busy.items()}


def is_uneven(hosts: Sequence[HostNow]) -> bool:
    """Return whether one of dLoRA's triggers fires: one host's memory is full and another's is not, or one host has a
    batch more to do than the mean and some of it waits."""
    if len(hosts) < 2:
        return False
    if any(host.is_full for host in hosts) and any(host.pages_used < _FULL * host.pages for host in hosts):
        return True
    mean = sum(host.pending for host in hosts) / len(hosts)
    return any(host.waiting and host.pending - mean >= _BATCH for host in hosts)


class Program:
    """The integer program over ``most`` hosts of either end; ``limit_s`` bounds the solver's time."""

    def __init__(self, most: int = 4, limit_s: float = _LIMIT_S) -> None:
        self._most, self._limit_s = most, limit_s

    def moves(self, hosts: Sequence[HostNow], requests: Sequence[OpenRequest], rates: Mapping[str, float]) -> Moves:
        imbalance = Imbalance.of(hosts, requests, rates, self._most)
        if imbalance is None:
            return Moves()
        shares, relaxed_s = imbalance.relaxed(self._limit_s)
        chosen = imbalance.rounded(shares)
        before_s, after_s = imbalance.longest_s(imbalance.now), imbalance.longest_s(chosen)
        if after_s > _WORTH * before_s:
            return Moves({}, before_s, before_s, relaxed_s)
        to = {
            request.name: imbalance.hosts[host].name
            for request, host, now in zip(imbalance.requests, chosen, imbalance.now, strict=True)
            if host != now
        }
        return Moves(to, before_s, after_s, relaxed_s)


MIGRATION_POLICIES: Mapping[str, type[MigrationPolicy]] = {"ilp": Program}


def make_migration(name: str) -> MigrationPolicy | None:
    """Return the named policy, or None for "off"."""
    if name == "off":
        return None
    if name not in MIGRATION_POLICIES:
        known = ", ".join(["off", *sorted(MIGRATION_POLICIES)])
        raise ValueError(f'There is no migration policy "{name}". Supported: {known}.')
    return MIGRATION_POLICIES[name]()


@dataclass(frozen=True)
class Imbalance:
    """The requests of the most loaded hosts, which may stay or move to one of the least loaded."""

    hosts: list[HostNow]  # the overloaded first
    requests: list[OpenRequest]
    work: NDArray[np.float64]  # seconds, of each request on each host; infinite where it may not go
    pages: NDArray[np.float64]  # of each request
    others_s: NDArray[np.float64]  # seconds of work on each host that cannot move
    room: NDArray[np.float64]  # free pages of each host
    now: list[int]

    @classmethod
    def of(
        cls, hosts: Sequence[HostNow], requests: Sequence[OpenRequest], rates: Mapping[str, float], most: int
    ) -> Imbalance | None:
        """Return the movable requests, or None if no request can move."""
        by_name = {host.name: host for host in hosts}
        mine = [request for request in requests if request.host in by_name]
        if not mine:
            return None
        mean_more = sum(request.more for request in mine) / len(mine)
        known = Counter(request.host for request in mine)
        total = {name: max(0, host.pending - known[name]) * mean_more / rates[name] for name, host in by_name.items()}
        for request in mine:
            total[request.host] += request.work_s(by_name[request.host], rates[request.host])
        ranked = sorted(hosts, key=lambda host: (-total[host.name], host.name))
        over = ranked[: min(most, len(ranked) // 2)]
        names = {host.name for host in over}
        # A request that has output would wait again: it moves only if memory is short, to a host without a queue.
        leaving = [r for r in mine if r.host in names and (not r.output_tokens or by_name[r.host].is_full)]
        mean_s = sum(total.values()) / len(total)
        # Time that each host could take over: the least loaded host may have none of these adapters.
        gains = {
            host.name: min(
                mean_s - total[host.name],
                sum(r.work_s(host, rates[host.name]) for r in leaving if r.may_go_to(host)),
            )
            for host in ranked[len(over) :]
            if not host.is_full
        }
        targets = {name for name in sorted(gains, key=lambda name: -gains[name])[:most] if gains[name] > 0}
        movable = [r for r in leaving if any(r.may_go_to(by_name[name]) for name in targets)]
        if not movable:
            return None
        movable = sorted(movable, key=lambda r: (r.output_tokens > 0, -r.more))[:_MAX_REQUESTS]  # waiting ones first
        under = [host for host in ranked if host.name in targets]
        chosen = [*over, *under]
        column = {host.name: number for number, host in enumerate(chosen)}
        now = [column[request.host] for request in movable]
        places = [(index, column[host.name]) for index, r in enumerate(movable) for host in under if r.may_go_to(host)]
        work = np.full((len(movable), len(chosen)), math.inf)
        rows, columns = np.array(places).T
        tokens = np.array([request.prompt_tokens + request.output_tokens for request in movable])
        more = np.array([request.more for request in movable])
        rate = np.array([rates[host.name] for host in chosen])
        token_s = np.array([host.prompt_token_s for host in chosen])
        work[rows, columns] = more[rows] / rate[columns] + tokens[rows] * token_s[columns]
        here = np.array([request.work_s(chosen[at], rate[at]) for request, at in zip(movable, now, strict=True)])
        work[np.arange(len(movable)), now] = here
        others = np.array([total[host.name] for host in chosen])
        np.subtract.at(others, now, here)
        pages = np.array([request.pages for request in movable], dtype=np.float64)
        room = np.array([max(0.0, _FULL * host.pages - host.pages_used) if host.pages else math.inf for host in chosen])
        return cls(chosen, movable, work, pages, np.maximum(others, 0.0), room, now)

    def program(self) -> highspy.HighsLp:
        """Return the program: the part of each request on each host, so that the longest work is least.

        A move costs a hundredth of the moved work, so that a request that gains nothing stays.

        Rows: each request once, each host's work below the longest, each host's memory. Columns: each request on each
        host where it may be, one after the other, and the longest work.
        """
        import highspy  # an option of the platform: config.py says what to install

        request, host = np.nonzero(np.isfinite(self.work))
        count, hosts, placed = len(self.requests), len(self.hosts), len(request)
        work = self.work[request, host]
        moved = host != np.array(self.now)[request]
        rows = np.column_stack([request, count + host, count + hosts + host]).ravel()
        values = np.column_stack([np.ones(placed), work, self.pages[request] * moved]).ravel()
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = placed + 1, count + 2 * hosts
        lp.col_cost_ = np.append(_PENALTY * work * moved, 1.0)
        lp.col_lower_, lp.col_upper_ = np.zeros(placed + 1), np.append(np.ones(placed), math.inf)
        lp.row_lower_ = np.append(np.ones(count), np.full(2 * hosts, -math.inf))
        lp.row_upper_ = np.concatenate([np.ones(count), -self.others_s, self.room])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.append(3 * np.arange(placed + 1), 3 * placed + hosts).astype(np.int32)
        lp.a_matrix_.index_ = np.append(rows, count + np.arange(hosts)).astype(np.int32)
        lp.a_matrix_.value_ = np.append(values, -np.ones(hosts))
        return lp

    def relaxed(self, limit_s: float) -> tuple[NDArray[np.float64], float]:
        """Solve the relaxation. Returns the share of each request on each host, and the longest work in seconds."""
        import highspy

        solver = highspy.Highs()
        for name, value in (("output_flag", False), ("threads", 1), ("time_limit", limit_s)):
            solver.setOptionValue(name, value)
        solver.passModel(self.program())
        solver.run()
        shares = np.zeros_like(self.work)
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:  # out of time: nothing moves
            shares[np.arange(len(self.requests)), self.now] = 1.0
            return shares, 0.0
        solution = np.array(solver.getSolution().col_value)
        shares[np.isfinite(self.work)] = solution[:-1]
        return shares, float(solution[-1])

    def rounded(self, shares: NDArray[np.float64]) -> list[int]:
        """Round the shares to one host per request.

        Split requests, the largest first, go to the least loaded of their hosts that has memory for them.
        """
        best, now = shares.argmax(axis=1), np.array(self.now)
        whole = shares[np.arange(len(shares)), best] > 1 - 1e-6
        work, room = self.others_s.copy(), self.room.copy()
        np.add.at(work, best[whole], self.work[whole, best[whole]])
        np.subtract.at(room, best[whole], (self.pages * (best != now))[whole])
        for index in sorted(np.flatnonzero(~whole), key=lambda i: -float(self.work[i, self.now[i]])):
            among = [
                host
                for host in np.flatnonzero(shares[index] > 1e-6)
                if host == now[index] or self.pages[index] <= room[host]
            ] or [now[index]]
            best[index] = host = min(among, key=lambda host: float(work[host] + self.work[index, host]))
            work[host] += self.work[index, host]
            room[host] -= self.pages[index] * (host != now[index])
        return [int(host) for host in best]

    def longest_s(self, placed: Sequence[int]) -> float:
        work = self.others_s.copy()
        np.add.at(work, np.array(placed), self.work[np.arange(len(placed)), placed])
        return float(work.max())
