"""Each tenant's share of the batch's places and of the pool's pages, by weight among the tenants that are active.

VTC is fair over time, but it never takes back what runs: behind a tenant that has every place, an idle tenant waits
until a sequence ends. A tenant that has less than its guaranteed part of its share gets it at once, from tenants that
have more than their share. A place only moves from above a whole share to below half of one, so two tenants never take
the same place from each other in turn, whatever they send.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from lora_engine.scheduling.sequence import Sequence

from .accounts import Account, Accounts

# Tenants with nothing running that are considered in one step: bounds pre-emptions, and the time that a step takes.
_CANDIDATES = 16
# Steps between two sequences of a tenant that enter in place of others, while it has some running.
_ENTER_EVERY = 4
# Steps that a tenant whose share is less than two places waits in its turn after it ran, before others give way: where
# there are about as many tenants as places, each is without one now and then.
_IN_TURN = 16


class Shares:
    """Follows which tenants are active: those with something that waits or runs."""

    def __init__(self, places: int, pages: int, guaranteed: float) -> None:
        """``guaranteed``: the part of its share that a tenant need not wait for; 0 = nobody gives way.

        The rest of it comes as running sequences end.
        """
        self._guaranteed = guaranteed
        self._places = places
        self._pages = pages
        self._running: dict[Account, None] = {}
        self._idle: dict[Account, None] = {}  # with something that waits, and nothing that runs
        self._weights: dict[Account, float] = {}  # of the active ones
        self._total_weight = 0.0

    @property
    def contested(self) -> bool:
        """Whether somebody runs, and somebody else is active."""
        return len(self._weights) > 1 and bool(self._running) and self._guaranteed > 0

    def update(self, account: Account) -> None:
        """Take note of what an account has waiting and running now."""
        waits, runs = bool(account.waiting), account.running > 0
        _set_member(self._running, account, member=runs)
        _set_member(self._idle, account, member=waits and not runs)
        self._total_weight -= self._weights.pop(account, 0.0)
        if waits or runs:
            self._weights[account] = account.weight
            self._total_weight += account.weight
        elif not self._weights:
            self._total_weight = 0.0  # rounding errors do not add up for ever

    def below_guarantee(self) -> list[Account]:
        """Tenants that wait and have less than they are guaranteed; of those with nothing running a few at a time."""
        idle = list(islice(self._idle, _CANDIDATES))
        for account in idle:  # whatever comes of it, the next step considers others first
            del self._idle[account]
            self._idle[account] = None
        some = [a for a in self._running if a.waiting and a.running < self.guaranteed_places(a)]
        return [a for a in idle + some if self._is_due(a)]

    def _is_due(self, account: Account) -> bool:
        since = account.steps.count - account.changed_at
        if account.running:
            return since >= _ENTER_EVERY
        return since >= _IN_TURN or self._places * self._fraction(account) >= 2

    def guaranteed_places(self, account: Account) -> float:
        """Places in the batch that a tenant need not wait for: at least one."""
        return max(1.0, self._guaranteed * self._places * self._fraction(account))

    def above_share(self, newcomer: Account) -> list[Account]:
        """Other tenants than ``newcomer`` with more places than their share beside it, and more than one."""
        if not self._guaranteed:
            return []
        places = self._places / self._weight_with(newcomer)
        return [a for a in self._running if a is not newcomer and a.running > max(1.0, places * a.weight)]

    def page_share(self, account: Account) -> float:
        """Pages that are a tenant's share of the pool."""
        return self._pages * self._fraction(account)

    def _fraction(self, account: Account) -> float:
        return account.weight / self._weight_with(account)

    def _weight_with(self, account: Account) -> float:
        """Weight of all active tenants and ``account``."""
        return self._total_weight + (0.0 if account in self._weights else account.weight)


def pages_held(sequence: Sequence) -> float:
    """Pages of a running sequence, and its part of its adapter's."""
    slot = sequence.slot or sequence.dormant
    return len(sequence.pages) + (len(slot.pages) / max(1, slot.refs) if slot is not None else 0.0)


def by_account(sequences: Iterable[Sequence], accounts: Accounts) -> dict[Account, list[Sequence]]:
    """Running sequences of each tenant, the one to pre-empt first first: of the lowest priority, the newest."""
    groups: dict[Account, list[Sequence]] = {}
    for sequence in sequences:
        groups.setdefault(accounts[sequence.request.tenant], []).append(sequence)
    for members in groups.values():
        members.sort(key=lambda s: (s.request.slo.priority, -s.arrival))
    return groups


def _set_member(members: dict[Account, None], account: Account, *, member: bool) -> None:
    if member:
        members.setdefault(account)
    else:
        members.pop(account, None)
