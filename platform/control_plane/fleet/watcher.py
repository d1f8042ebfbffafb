"""Follows every engine host and writes what it reports: the one source of observed state in the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import grpc.aio
from django.db import DatabaseError

from control_plane.db import run_db
from control_plane.fleet import actions
from control_plane.fleet.cancellation import end_if_cancelled
from control_plane.fleet.endpoint import Endpoint
from control_plane.fleet.engine_client import EngineClient
from control_plane.fleet.errors import HostError
from control_plane.fleet.leader_election import Lease
from control_plane.fleet.models import EngineHost
from control_plane.fleet.signals import host_changed
from control_plane.writes import enqueue
from lora_engine.wire import engine_pb2 as pb

logger = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
SILENT_HEARTBEATS = 4
RETRY_S = 1.0
LEASE_CHECK_S = 3.0


class HostWatcher:
    """One host: its boots, its heartbeats, its absence."""

    def __init__(self, endpoint: Endpoint, *, interval_s: float = HEARTBEAT_S) -> None:
        self.name = endpoint.name
        self._client = EngineClient(endpoint)
        self._interval_s = interval_s
        self._online: bool | None = None
        self._boot_id = ""

    async def run(self) -> None:
        try:
            while True:
                await self._survive(self._follow)
                await self._survive(self._went_offline)
                await asyncio.sleep(RETRY_S)
        finally:
            await self._client.close()

    async def _survive(self, step: Callable[[], Awaitable[None]]) -> None:
        """An engine or a database that is away for a while is waited for."""
        try:
            await step()
        except (grpc.aio.AioRpcError, HostError, TimeoutError, DatabaseError) as error:
            end_if_cancelled()
            logger.info("following host %s: %s", self.name, error)

    async def _follow(self) -> None:
        await self._booted(await self._client.describe())
        heartbeats = aiter(self._client.watch(self._interval_s))
        with contextlib.suppress(StopAsyncIteration):
            while True:
                async with asyncio.timeout(self._interval_s * SILENT_HEARTBEATS):
                    status = await anext(heartbeats)
                if status.boot_id != self._boot_id:  # another engine answers on this connection
                    await self._booted(await self._client.describe())
                await run_db(actions.record_status, self.name, status)
                await run_db(partial(host_changed.send, EngineHost, name=self.name))

    async def _booted(self, description: pb.EngineDescription) -> None:
        """A connection breaks when an engine restarts, so a boot is always seen at the start of a new one."""
        is_new = await run_db(actions.record_boot, self.name, description)
        if is_new or not self._online:
            logger.info("host %s is up (boot %s)", self.name, description.boot_id)
            await run_db(enqueue, "fleet.reconcile", self.name)
            await run_db(enqueue, "adapters.validate_next")
        self._online, self._boot_id = True, description.boot_id

    async def _went_offline(self) -> None:
        if self._online is not False:
            self._online = False
            await run_db(actions.record_offline, self.name)
            await run_db(partial(host_changed.send, EngineHost, name=self.name))


class FleetWatcher:
    """All configured hosts, while this process holds the lease."""

    def __init__(self, endpoints: Mapping[str, Endpoint], lease: Lease, *, interval_s: float = HEARTBEAT_S) -> None:
        self._endpoints, self._lease, self._interval_s = endpoints, lease, interval_s
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until cancelled. Leads whenever it can; steps back at once when it cannot renew."""
        try:
            while True:
                if await run_db(self._lease.hold):
                    await self._lead()
                else:
                    await self._step_back()
                await asyncio.sleep(LEASE_CHECK_S)
        finally:
            await self._step_back()
            await run_db(self._lease.release)

    async def _lead(self) -> None:
        if not self._tasks:
            await run_db(actions.sync_hosts, self._endpoints)
            watchers = [HostWatcher(endpoint, interval_s=self._interval_s) for endpoint in self._endpoints.values()]
            self._tasks = [asyncio.create_task(watcher.run(), name=f"watch-{watcher.name}") for watcher in watchers]
        for task in self._tasks:
            if task.done():
                task.result()  # a bug in a watcher ends this process's leadership loudly

    async def _step_back(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
