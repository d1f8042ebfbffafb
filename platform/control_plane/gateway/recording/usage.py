"""Writes the engine's counts to the ledger: one writer for each event loop, in batches, on a thread.

The engine keeps each record until it is acknowledged, which happens only after the commit. Records that this process
cannot store, or loses when it dies, are collected from the engine's journal later; the ledger stores each request once.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from django.db import DatabaseError, InterfaceError, transaction

from control_plane.billing.usage.actions import Ended, abandon_attempts, record_events
from control_plane.billing.usage.counters import Details
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.db import run_db
from control_plane.core.unavailable import as_unavailable
from control_plane.fleet.transport.errors import HostError
from control_plane.gateway.dispatch.answer_checks import CheckedSchemas
from control_plane.gateway.recording.flusher import Flusher

logger = logging.getLogger(__name__)

# Seconds for which entries are gathered, and the entries of one transaction.
GATHER_S = 0.2
LARGEST_BATCH = 256
# Entries that wait; further ones are dropped here, and collected from the engine's journal later.
MAX_WAITING = 20_000


@dataclass(frozen=True)
class RequestContext:
    """Data of a request that the ledger records besides its admission and the engine's counts."""

    endpoint: ApiEndpoint
    streamed: bool
    created_at: datetime
    details: Details
    # Receives the usage instead of the usage writer: a batch stores it together with the line's result.
    keep: Callable[[Settled], object] | None = None
    # The `traceparent` of the caller's span.
    trace_parent: str = ""
    # Fields of the request that were left out, shared by its prompts.
    ignored: list[str] = field(default_factory=list)
    # Fields to leave out if the engine's chat template does not read them: the client's name, by the engine's.
    optional: Mapping[str, str] = field(default_factory=dict)
    # Schemas that finished answers are checked against.
    schemas: CheckedSchemas | None = None
    # The id that the client sent for the request, for logs.
    client_request_id: str = ""


@dataclass(frozen=True)
class Settled:
    """A request that has ended; ``reported`` if its engine did so, and keeps the record until acknowledged."""

    host: str
    engine_id: str
    ended: Ended
    reported: bool


@dataclass(frozen=True)
class _Entry:
    """An attempt that ended: its usage, or that it has none, and whether its engine keeps a record."""

    host: str
    engine_id: str
    ended: Ended | None = None
    abandoned: bool = False
    acknowledge: bool = False


Acknowledge = Callable[[str, list[str]], Awaitable[object]]


class UsageWriter:
    """A writer that stores the usage of each request once it is known."""

    def __init__(self, acknowledge: Acknowledge) -> None:
        self._acknowledge = acknowledge
        self._entries: list[_Entry] = []
        self._flusher = Flusher("usage-writer", GATHER_S, self._write_all)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        """Write what is pending, then stop."""
        await self._flusher.close()

    def put(self, host: str, engine_id: str, ended: Ended, *, reported: bool) -> None:
        """Record a request's end; ``reported`` if its engine did so, and keeps the record until acknowledged."""
        self._add(_Entry(host, engine_id, ended=ended, acknowledge=reported))

    def abandon(self, host: str, engine_id: str, *, reported: bool) -> None:
        """Record that the request moved to another host after this attempt."""
        self._add(_Entry(host, engine_id, abandoned=True, acknowledge=reported))

    def acknowledge(self, host: str, engine_id: str) -> None:
        """Acknowledge the end of an attempt that is already accounted for."""
        self._add(_Entry(host, engine_id, acknowledge=True))

    def _add(self, entry: _Entry) -> None:
        if len(self._entries) < MAX_WAITING:
            self._entries.append(entry)
            self._flusher.wake()

    async def _write_all(self) -> bool:
        """Write all entries. Returns whether everything is stored."""
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
        """Store the entries one by one; one that cannot be stored is dropped. Returns False if the database is
        unavailable.
        """
        for entry in batch:
            try:
                await run_db(store, [entry])
            except (DatabaseError, InterfaceError, ValueError) as error:
                if as_unavailable(error) is not None:
                    return False
                logger.exception("The usage of %s on %s cannot be stored and is lost.", entry.engine_id, entry.host)
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
                # The records stay in the engine's journal; collecting them later skips those that are stored.
                logger.info("usage of %s not acknowledged: %s", host, failure)


def store(batch: list[_Entry]) -> None:
    """Store a batch in one transaction."""
    with transaction.atomic():
        abandon_attempts([entry.engine_id for entry in batch if entry.abandoned])
        record_events([entry.ended for entry in batch if entry.ended is not None])
