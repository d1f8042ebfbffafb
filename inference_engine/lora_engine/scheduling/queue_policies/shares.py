"""Each tenant's share of the batch's places and of the pool's pages is by weight among active tenants.

VTC is fair over time, but it never pre-empts: while another tenant has every place, a newly active tenant waits until a
sequence ends. A tenant below its guaranteed part of its share gets that at once, from tenants above their share. A
place only moves from above a whole share to below half of one, so two tenants never take the same place from each other
repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from lora_engine.scheduling.sequence import Sequence

from .accounts import Account, Accounts

# Tenants without running sequences that one step considers. This bounds pre-emptions and the time of a step.
_CANDIDATES = 16
# Steps between two pre-emptions for the same tenant while it has running sequences.
_ENTER_EVERY = 4
# Steps that a tenant whose share is less than two places waits after it ran before others are pre-empted for it: with
# about as many tenants as places, each is without one occasionally.
_SMALL_SHARE_EVERY = 16


class Shares:
    """The active tenants: those with waiting or running sequences."""

    def __init__(self, places: int, pages: int, guaranteed: float) -> None:
        """Create the shares. ``guaranteed``: part of its share that a tenant gets by pre-emption; 0 pre-empts nothing.

        The rest becomes free as running sequences end.
        """
        self._guaranteed = guaranteed
        self._places = places
        self._pages = pages
        self._running: dict[Account, None] = {}
        self._idle: dict[Account, None] = {}  # with waiting and without running sequences
        self._weights: dict[Account, float] = {}  # of active tenants
        self._total_weight = 0.0

    @property
    def guarantees(self) -> bool:
        """True if tenants below their guarantee get a place by pre-emption."""
        return self._guaranteed > 0

    @property
    def contested(self) -> bool:
        """True if a tenant runs and another one is active."""
        return len(self._weights) > 1 and bool(self._running) and self.guarantees

    def update(self, account: Account) -> None:
        """Update an account's membership after its waiting or running sequences changed."""
        waits, runs = bool(account.waiting), account.running > 0
        _set_member(self._running, account, member=runs)
        _set_member(self._idle, account, member=waits and not runs)
        self._total_weight -= self._weights.pop(account, 0.0)
        if waits or runs:
            self._weights[account] = account.weight
            self._total_weight += account.weight
        elif not self._weights:
            self._total_weight = 0.0  # keeps rounding errors from accumulating

    def below_guarantee(self) -> list[Account]:
        """Return waiting tenants below their guarantee; those without running sequences a few at a time."""
        idle = list(islice(self._idle, _CANDIDATES))
        for account in idle:  # the next step considers others first
            del self._idle[account]
            self._idle[account] = None
        some = [a for a in self._running if a.waiting and a.running < self.guaranteed_places(a)]
        return [a for a in idle + some if self._is_due(a)]

    def _is_due(self, account: Account) -> bool:
        since = account.steps.count - account.changed_at
        if account.running:
            return since >= _ENTER_EVERY
        return since >= _SMALL_SHARE_EVERY or self._places * self._fraction(account) >= 2

    def guaranteed_places(self, account: Account) -> float:
        """Return the places in the batch that a tenant gets without waiting: at least one."""
        return max(1.0, self._guaranteed * self._places * self._fraction(account))

    def above_share(self, newcomer: Account) -> list[Account]:
        """Return other tenants than ``newcomer`` with more places than their share beside it, and more than one."""
        if not self._guaranteed:
            return []
        places = self._places / self._weight_with(newcomer)
        return [a for a in self._running if a is not newcomer and a.running > max(1.0, places * a.weight)]

    def page_share(self, account: Account) -> float:
        """Return a tenant's share of the pool in pages."""
        return self._pages * self._fraction(account)

    def _fraction(self, account: Account) -> float:
        return account.weight / self._weight_with(account)

    def _weight_with(self, account: Account) -> float:
        """Return the weight of all active tenants and ``account``."""
        return self._total_weight + (0.0 if account in self._weights else account.weight)


def page_usage(sequence: Sequence) -> float:
    """Return the pages of a running sequence, with its part of its adapter's."""
    slot = sequence.slot or sequence.dormant
    return (
        len(sequence.pages)
        + len(sequence.state_pages)
        + (len(slot.pages) / max(1, slot.refs) if slot is not None else 0.0)
    )


def by_account(sequences: Iterable[Sequence], accounts: Accounts) -> dict[Account, list[Sequence]]:
    """Group running sequences by account, the first to pre-empt first: lowest priority, then newest."""
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
