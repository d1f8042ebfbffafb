"""The engine's counts into the ledger: one writer for the event loop, in batches, off the loop.

The engine keeps each record until it is acknowledged, and that happens only after the commit. What this process
cannot store, or dies with, is collected from the engine's journal later; the ledger takes each request once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import DatabaseError, InterfaceError

from control_plane.access.principal import Principal
from control_plane.adapters.resolve import ResolvedModel
from control_plane.db import run_db
from control_plane.fleet.errors import HostError
from control_plane.gateway.recording.flusher import Flusher
from control_plane.usage.actions import Ended, record_events
from control_plane.usage.models import Endpoint
from control_plane.usage.recovery import counts_of
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

GATHER_S = 0.2
LARGEST_BATCH = 256
# Beyond this the engine's journal is the better place to wait.
MOST_WAITING = 20_000


@dataclass(frozen=True)
class RequestContext:
    """What the ledger wants to know of a request beside the engine's count."""

    principal: Principal
    model: ResolvedModel
    endpoint: Endpoint
    streamed: bool
    created_at: datetime


@dataclass(frozen=True)
class _Entry:
    host: str
    finished: pb.Finished
    context: RequestContext


Acknowledge = Callable[[str, list[str]], Awaitable[object]]


class UsageWriter:
    """``expect`` before a request is submitted, ``put`` for every end that an engine reports."""

    def __init__(self, acknowledge: Acknowledge) -> None:
        self._acknowledge = acknowledge
        self._contexts: OrderedDict[str, RequestContext] = OrderedDict()
        self._entries: list[_Entry] = []
        self._flusher = Flusher("usage-writer", GATHER_S, self._write_all)

    def start(self) -> None:
        self._flusher.start()

    async def close(self) -> None:
        """Write what is there, then stop."""
        await self._flusher.close()

    def expect(self, request_id: str, context: RequestContext) -> None:
        self._contexts[request_id] = context
        if len(self._contexts) > MOST_WAITING:
            self._contexts.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """No end of this request will be reported here."""
        self._contexts.pop(request_id, None)

    def put(self, host: str, finished: pb.Finished) -> None:
        """Called by the sessions for every finished request."""
        context = self._contexts.pop(finished.request_id, None)
        if context is not None and len(self._entries) < MOST_WAITING:
            self._entries.append(_Entry(host, finished, context))
            self._flusher.wake()

    async def _write_all(self) -> bool:
        """Whether everything is stored now."""
        while self._entries:
            batch = self._entries[:LARGEST_BATCH]
            try:
                await run_db(store, batch)
            except (DatabaseError, InterfaceError) as error:
                logger.warning("%d usage events could not be stored; trying again: %s", len(batch), error)
                return False
            del self._entries[: len(batch)]
            await self._acknowledge_all(batch)
        return True

    async def _acknowledge_all(self, batch: list[_Entry]) -> None:
        by_host: defaultdict[str, list[str]] = defaultdict(list)
        for entry in batch:
            by_host[entry.host].append(entry.finished.request_id)
        for host, request_ids in by_host.items():
            try:
                await self._acknowledge(host, request_ids)
            except HostError as failure:
                # They stay in the engine's journal, are collected from there, and found to be stored.
                logger.info("usage of %s not acknowledged: %s", host, failure)


def store(batch: list[_Entry]) -> None:
    """One transaction for the whole batch."""
    record_events([_ended(entry) for entry in batch])


def _ended(entry: _Entry) -> Ended:
    context, usage = entry.context, entry.finished.usage
    return Ended(
        request_id=entry.finished.request_id,
        tenant=context.principal.tenant,
        api_key=context.principal.api_key,
        user=context.principal.user,
        adapter=context.model.adapter,
        version=context.model.version,
        model=context.model.display_name,
        endpoint=context.endpoint,
        streamed=context.streamed,
        host=entry.host,
        outcome=usage.outcome,
        error_code=entry.finished.error.code,
        created_at=context.created_at,
        counts=counts_of(usage),
    )
