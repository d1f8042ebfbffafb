"""The watcher: follows every engine host and writes what it reports, the only source of host state in the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from functools import partial

import grpc.aio
from redis.exceptions import RedisError

from control_plane.core.cancellation import end_if_cancelled, to_completion
from control_plane.core.db import run_db
from control_plane.core.jobs import clocks
from control_plane.core.metrics import heartbeat
from control_plane.core.unavailable import as_unavailable
from control_plane.core.writes import enqueue
from control_plane.fleet.hosts import actions
from control_plane.fleet.hosts.host_clock import HostClock
from control_plane.fleet.hosts.leader_election import Lease
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.hosts.signals import host_changed
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import EngineClient
from control_plane.fleet.transport.errors import HostError
from control_plane.fleet.transport.plausible import IMPLAUSIBLE, require_plausible
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterList, AdapterListError

logger = logging.getLogger(__name__)

# Seconds between two heartbeats of a host.
HEARTBEAT_S = 2.0
# Heartbeats missed in a row before a host is offline.
SILENT_HEARTBEATS = 4
# Heartbeats between two comparisons of all adapter rows: a former leader may have written late.
WHOLE_EVERY = 30
# Seconds before a host that cannot be followed is tried again.
RETRY_S = 1.0
# Seconds between two attempts to acquire or renew the lease.
LEASE_CHECK_S = 3.0


class HostWatcher:
    """A follower of one host: it records boots, heartbeats and absence."""

    def __init__(self, endpoint: HostEndpoint, *, interval_s: float = HEARTBEAT_S) -> None:
        self.name = endpoint.name
        self._client = EngineClient(endpoint)
        self._interval_s = interval_s
        self._online: bool | None = None
        self._boot_id = ""
        self._clock = HostClock(endpoint.name)

    async def run(self) -> None:
        try:
            while True:
                await self._survive(self._follow)
                await self._survive(self._went_offline)
                await asyncio.sleep(RETRY_S)
        finally:
            await self._client.close()

    async def _survive(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step, and only log when an engine or the database is away: the caller tries again."""
        try:
            await step()
        except (grpc.aio.AioRpcError, HostError, AdapterListError, TimeoutError) as error:
            end_if_cancelled()
            # Warn once about implausible values: the host is tried again every second.
            odd = isinstance(error, HostError) and error.code == IMPLAUSIBLE and self._online is not False
            logger.log(logging.WARNING if odd else logging.INFO, "following host %s: %s", self.name, error)
        except Exception as error:
            end_if_cancelled()
            if as_unavailable(error) is None:
                raise
            logger.warning("following host %s: %s", self.name, error)

    async def _follow(self) -> None:
        await self._booted(await self._described())
        heartbeats, adapters, beats = aiter(self._client.watch(self._interval_s)), AdapterList(), 0
        with contextlib.suppress(StopAsyncIteration):
            while True:
                async with asyncio.timeout(self._interval_s * SILENT_HEARTBEATS):
                    status = await anext(heartbeats)
                received_s = time.monotonic()
                if status.boot_id != self._boot_id:  # another engine answers on this connection
                    await self._booted(await self._described())
                require_plausible(self.name, status)
                adapters.observe(status)
                whole = adapters.by_digest if beats % WHOLE_EVERY == 0 else None
                await run_db(self._record, status, whole, received_s)
                beats += 1
                await run_db(partial(host_changed.send, EngineHost, name=self.name))

    def _record(
        self, status: pb.HostStatus, whole: Mapping[str, pb.AdapterResidency] | None, received_s: float
    ) -> None:
        """Store a heartbeat that arrived at ``received_s`` by this process's monotonic clock."""
        ahead_s = None
        if status.unix_time:  # older engines send none
            received_at = clocks.database_time().timestamp() - (time.monotonic() - received_s)
            ahead_s = self._clock.observe(status.unix_time, received_at)
        actions.record_status(self.name, status, whole, clock_ahead_s=ahead_s)

    async def _described(self) -> pb.EngineDescription:
        description = await self._client.describe()
        require_plausible(self.name, description)
        return description

    async def _booted(self, description: pb.EngineDescription) -> None:
        """Record a boot. An engine's restart breaks the connection, so each new connection starts here."""
        is_new = await run_db(actions.record_boot, self.name, description)
        if is_new or not self._online:
            logger.info("host %s is up (boot %s)", self.name, description.boot_id)
            await run_db(enqueue, "placements.reconcile", self.name)
            await run_db(enqueue, "uploads.validate_next")
        self._clock.forget()
        self._online, self._boot_id = True, description.boot_id

    async def _went_offline(self) -> None:
        if self._online is not False:
            self._online = False
            await run_db(actions.record_offline, self.name)
            await run_db(partial(host_changed.send, EngineHost, name=self.name))


class FleetWatcher:
    """A follower of all hosts, configured or joined, while this process holds the lease."""

    def __init__(
        self, endpoints: Callable[[], Mapping[str, HostEndpoint]], lease: Lease, *, interval_s: float = HEARTBEAT_S
    ) -> None:
        """``endpoints`` is called every few seconds, as hosts join and are revoked. It may read the database."""
        self._endpoints, self._lease, self._interval_s = endpoints, lease, interval_s
        self._followed: dict[HostEndpoint, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Lead whenever the lease can be acquired, until cancelled. Outages and errors do not end it."""
        try:
            while True:
                heartbeat.beat()
                try:
                    await self._lead_or_step_back()
                except Exception:
                    end_if_cancelled()
                    logger.exception("The watcher continues after an error.")
                await asyncio.sleep(LEASE_CHECK_S)
        finally:
            await self._step_back()
            with contextlib.suppress(RedisError, OSError):  # it expires
                await run_db(self._lease.release)

    async def _lead_or_step_back(self) -> None:
        try:
            leads = await to_completion(run_db(self._lease.hold))  # a cancelled call could acquire it after the release
        except (RedisError, OSError) as error:
            # No other process can acquire the lease either, so the leader goes on. Two leaders write the same facts.
            logger.warning("The watcher's lease cannot be renewed: %s", error)
            return
        if leads:
            await self._lead()
        else:
            await self._step_back()

    async def _lead(self) -> None:
        try:
            known = await run_db(self._endpoints)
            if not self._followed:
                named = {name: endpoint for name, endpoint in known.items() if not endpoint.credential}
                await run_db(actions.sync_hosts, named)
        except Exception as unread:
            if not self._followed or as_unavailable(unread) is None:
                raise
            return  # the database is away: keep following the same hosts
        await self._leave(self._followed.keys() - set(known.values()))
        for endpoint in known.values():
            task = self._followed.get(endpoint)
            if task is None or task.done():
                if task is not None and not task.cancelled() and (error := task.exception()) is not None:
                    logger.error("Following host %s ended with an error; starting anew.", endpoint.name, exc_info=error)
                watcher = HostWatcher(endpoint, interval_s=self._interval_s)
                self._followed[endpoint] = asyncio.create_task(watcher.run(), name=f"watch-{endpoint.name}")

    async def _step_back(self) -> None:
        await self._leave(set(self._followed))

    async def _leave(self, endpoints: Set[HostEndpoint]) -> None:
        tasks = [self._followed.pop(endpoint) for endpoint in endpoints]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
