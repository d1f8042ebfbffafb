"""Writes the engine's counts to the ledger: one writer for each event loop, in batches, on a thread.

The engine keeps each record until it is acknowledged, and that happens only after the commit. What this process
cannot store, or dies with, is collected from the engine's journal later; the ledger takes each request once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import DatabaseError, InterfaceError, transaction

from control_plane.adapters.registry.resolve import ResolvedModel
from control_plane.billing.usage.actions import Ended, abandon_attempts, record_events
from control_plane.billing.usage.counters import Details
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.db import run_db
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.recording.flusher import Flusher
from control_plane.identity.access.principal import Principal

logger = logging.getLogger(__name__)

GATHER_S = 0.2
LARGEST_BATCH = 256
# Beyond this the engine's journal is the better place to wait.
MOST_WAITING = 20_000


@dataclass(frozen=True)
class RequestContext:
    """What the ledger records of a request besides the engine's count."""

    principal: Principal
    model: ResolvedModel
    endpoint: ApiEndpoint
    streamed: bool
    created_at: datetime
    details: Details
    keep: Callable[[Settled], object] | None = None
    """Takes what the ledger must hold of it, instead of the usage writer: a batch stores it with the line's result."""
    trace_parent: str = ""
    """Of the caller's span, as `traceparent` has it."""


@dataclass(frozen=True)
class Settled:
    """A request that is over; ``reported`` by its engine, which keeps its record until that is acknowledged."""

    host: str
    engine_id: str
    ended: Ended
    reported: bool


@dataclass(frozen=True)
class _Entry:
    """An attempt that ended: what it adds to the ledger, or that it adds nothing; whether its engine keeps a record."""

    host: str
    engine_id: str
    ended: Ended | None = None
    abandoned: bool = False
    acknowledge: bool = False


Acknowledge = Callable[[str, list[str]], Awaitable[object]]


class UsageWriter:
    """Takes what each request really used, once it is known."""

    def __init__(self, acknowledge: Acknowledge) -> None:
        self._acknowledge = acknowledge
        self._entries: list[_Entry] = []
        self._flusher = Flusher("usage-writer", GATHER_S, self._write_all)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        """Write what is there, then stop."""
        await self._flusher.close()

    def put(self, host: str, engine_id: str, ended: Ended, *, reported: bool) -> None:
        """A request is over. ``reported``: by its engine, which keeps its record until that is acknowledged."""
        self._add(_Entry(host, engine_id, ended=ended, acknowledge=reported))

    def abandon(self, host: str, engine_id: str, *, reported: bool) -> None:
        """The request went to another host after this attempt."""
        self._add(_Entry(host, engine_id, abandoned=True, acknowledge=reported))

    def acknowledge(self, host: str, engine_id: str) -> None:
        """The engine reports the end of an attempt that is accounted for already."""
        self._add(_Entry(host, engine_id, acknowledge=True))

    def _add(self, entry: _Entry) -> None:
        if len(self._entries) < MOST_WAITING:
            self._entries.append(entry)
            self._flusher.wake()

    async def _write_all(self) -> bool:
        """Whether everything is stored now."""
        while self._entries:
            batch = self._entries[:LARGEST_BATCH]
            try:
                await run_db(store, batch)
            except (DatabaseError, InterfaceError, ValueError) as error:
                if as_unavailable(error) is not None or not await self._store_each(batch):
                    logger.warning("%d usage events could not be stored; trying again: %s", len(batch), error)
                    return False
            del self._entries[: len(batch)]
            await self._acknowledge_all(batch)
        return True

    async def _store_each(self, batch: list[_Entry]) -> bool:
        """One that cannot be stored must not hold up the others: it is given up. False if the database is away."""
        for entry in batch:
            try:
                await run_db(store, [entry])
            except (DatabaseError, InterfaceError, ValueError) as error:
                if as_unavailable(error) is not None:
                    return False
                logger.exception("The usage of %s on %s cannot be stored, ever.", entry.engine_id, entry.host)
        return True

    async def _acknowledge_all(self, batch: list[_Entry]) -> None:
        by_host: defaultdict[str, list[str]] = defaultdict(list)
        for entry in batch:
            if entry.acknowledge:
                by_host[entry.host].append(entry.engine_id)
        for host, request_ids in by_host.items():
            try:
                await self._acknowledge(host, request_ids)
            except HostError as failure:
                # They stay in the engine's journal, are collected from there, and found to be stored.
                logger.info("usage of %s not acknowledged: %s", host, failure)


def store(batch: list[_Entry]) -> None:
    """One transaction for the whole batch."""
    with transaction.atomic():
        abandon_attempts([entry.engine_id for entry in batch if entry.abandoned])
        record_events([entry.ended for entry in batch if entry.ended is not None])
