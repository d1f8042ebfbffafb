"""A worker's claim on a row: good for some seconds, renewed while the worker lives.

A worker that is killed renews nothing, so another takes its job CLAIM_S later. One that only stood still finds that
its claim is gone: each claim has an id, and what decides a job asks under a lock whether the id is still that of the
row. The clock is the database's, so that those of the machines may differ.
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

CLAIM_S = 12.0
RENEW_S = 3.0
# How long a row may rest without a claim.
LONGEST_REST = timedelta(minutes=10)


class ClaimLostError(Exception):
    """The job is another worker's now: there is nothing left to do."""


def unclaimed() -> Q:
    """Rows that nobody claims and whose rest is over.

    A claim or a rest that ends later than any can was taken before the database's clock stepped back.
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
    """Claim a row that the caller's transaction has locked and found unclaimed."""
    job.claim = uuid4()
    type(job)._default_manager.filter(pk=job.pk).update(claim=job.claim, claimed_until=_end())


def holds(job: Claimable, locked: Claimable) -> bool:
    """Whether `locked`, the row as it is now, is still under the claim of `job`."""
    return job.claim is not None and job.claim == locked.claim


def rest(job: Claimable, seconds: float) -> None:
    """Keep others from claiming the row for so long, at most LONGEST_REST. In the transaction that locked it."""
    until = Now() + min(timedelta(seconds=seconds), LONGEST_REST)
    type(job)._default_manager.filter(pk=job.pk).update(claim=None, claimed_until=until)


def end(job: Claimable) -> None:
    """Let others claim the row, unless they have already."""
    type(job)._default_manager.filter(pk=job.pk, claim=job.claim).update(claim=None, claimed_until=None)


def end_all() -> None:
    """Right when no worker lives that could hold one."""
    for model in Claimable.__subclasses__():
        model._default_manager.exclude(claimed_until=None).update(claim=None, claimed_until=None)


@contextmanager
def keep(job: Claimable, on_lost: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Renew the claim as long as the block runs; call `on_lost`, on another thread, when it is somebody else's."""
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
        """False once it is lost."""
        try:
            found = self.model._default_manager.filter(pk=self.pk, claim=self.claim).update(claimed_until=_end())
        except Error:
            logger.warning("A claim could not be renewed.", exc_info=True)
            return time.monotonic() - self.renewed < CLAIM_S
        self.renewed = time.monotonic()
        return bool(found)


class _Keeper:
    """One thread, with one connection, for all claims of this process."""

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
                close_old_connections()  # one that broke
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
            lost = kept in self._kept  # else it ended meanwhile
            self._kept.discard(kept)
        if lost:
            logger.warning("The claim on %s %s is another worker's now.", kept.model.__name__, kept.pk)
            try:
                kept.on_lost()
            except Exception:  # this thread is everybody's
                logger.exception("A job that lost its claim could not be stopped.")


_keeper = _Keeper()
