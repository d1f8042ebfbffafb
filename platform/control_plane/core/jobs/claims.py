"""A worker's claim on a row: good for some seconds, renewed while the worker lives.

A worker that is killed stops renewing, so another takes its job CLAIM_S later. A worker that was only paused finds its
claim gone: each claim has an id, and a write that decides a job checks under a lock that the row still has this id. The
clock is the database's, so the machines' clocks may differ.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from django.db import Error, close_old_connections
from django.db.models import Q
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from control_plane.core.db import close_thread_connections
from control_plane.core.jobs.models import Claimable

logger = logging.getLogger(__name__)

CLAIM_S = 12.0  # duration of a claim
RENEW_S = 3.0  # between two renewals
# Longest time that a row may rest without a claim.
LONGEST_REST = timedelta(minutes=10)


class ClaimLostError(Exception):
    """The claim on a job was lost to another worker: there is nothing left to do."""


def unclaimed() -> Q:
    """Return the filter of rows that are not claimed and whose rest is over.

    A claim or rest that ends later than possible was taken before the database's clock stepped back, and counts as
    over.
    """
    return Q(claimed_until=None) | ~claimed()


def claimed() -> Q:
    longest_claim = timedelta(seconds=CLAIM_S + RENEW_S)  # small steps of the clock end no claim
    taken = Q(claim__isnull=False, claimed_until__lte=Now() + longest_claim)
    rests = Q(claim__isnull=True, claimed_until__lte=Now() + LONGEST_REST)
    return Q(claimed_until__gte=Now()) & (taken | rests)


def _end() -> CombinedExpression:
    return Now() + timedelta(seconds=CLAIM_S)


def take(job: Claimable) -> None:
    """Claim a row that the caller's transaction has locked and that is unclaimed."""
    job.claim = uuid4()
    type(job)._default_manager.filter(pk=job.pk).update(claim=job.claim, claimed_until=_end())


def holds(job: Claimable, locked: Claimable) -> bool:
    """Return True if `locked`, the row as it is now, is still under the claim of `job`."""
    return job.claim is not None and job.claim == locked.claim


def rest(job: Claimable, seconds: float) -> None:
    """Keep workers from claiming the row for some seconds, at most LONGEST_REST. In the transaction that locked it."""
    until = Now() + min(timedelta(seconds=seconds), LONGEST_REST)
    type(job)._default_manager.filter(pk=job.pk).update(claim=None, claimed_until=until)


def end(job: Claimable) -> None:
    """Release the claim, unless another worker has taken it."""
    type(job)._default_manager.filter(pk=job.pk, claim=job.claim).update(claim=None, claimed_until=None)


def end_all() -> None:
    """Release all claims. Only right when no worker runs that could have one."""
    for model in Claimable.__subclasses__():
        model._default_manager.exclude(claimed_until=None).update(claim=None, claimed_until=None)


@contextmanager
def keep(job: Claimable, on_lost: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Renew the claim as long as the block runs; call `on_lost`, on another thread, when another worker took it."""
    kept = _Kept(type(job), job.pk, job.claim, on_lost)
    _keeper.add(kept)
    try:
        yield
    finally:
        _keeper.remove(kept)


@dataclass(eq=False)
class _Kept:
    model: type[Claimable]
    pk: object
    claim: UUID | None
    on_lost: Callable[[], object]
    renewed: float = field(default_factory=time.monotonic)

    def renew(self) -> bool:
        """Renew the claim. Returns False once it is lost."""
        try:
            renewed_rows = self.model._default_manager.filter(pk=self.pk, claim=self.claim).update(claimed_until=_end())
        except Error:
            logger.warning("A claim could not be renewed.", exc_info=True)
            return time.monotonic() - self.renewed < CLAIM_S
        self.renewed = time.monotonic()
        return bool(renewed_rows)


class _Keeper:
    """The thread that renews all claims of this process, with one connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: set[_Kept] = set()
        self._running = False

    def add(self, kept: _Kept) -> None:
        with self._lock:
            self._kept.add(kept)
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="lorikeet-claims", daemon=True).start()

    def remove(self, kept: _Kept) -> None:
        with self._lock:
            self._kept.discard(kept)

    def _run(self) -> None:
        try:
            while self._go_on():
                time.sleep(RENEW_S)
                close_old_connections()  # replaces a broken connection
                for kept in self._all():
                    self._renew(kept)
        finally:
            close_thread_connections()

    def _go_on(self) -> bool:
        with self._lock:
            self._running = bool(self._kept)
            return self._running

    def _all(self) -> list[_Kept]:
        with self._lock:
            return list(self._kept)

    def _renew(self, kept: _Kept) -> None:
        if kept.renew():
            return
        with self._lock:
            lost = kept in self._kept  # else the block ended meanwhile
            self._kept.discard(kept)
        if lost:
            logger.warning("Another worker has taken the claim on %s %s.", kept.model.__name__, kept.pk)
            try:
                kept.on_lost()
            except Exception:  # the thread must go on renewing other claims
                logger.exception("A job that lost its claim could not be stopped.")


_keeper = _Keeper()
