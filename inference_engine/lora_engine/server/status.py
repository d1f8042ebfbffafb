"""The host's status: heartbeats with the figures of the host's page, the page map, and the waiting requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

from lora_engine.adapters.device_tier import DeviceAdapter
from lora_engine.adapters.dtypes import content_of
from lora_engine.adapters.load_times import LoadTime
from lora_engine.adapters.staging import AdapterTiers
from lora_engine.engine import Engine
from lora_engine.scheduling.scheduler_stats import QueueReport
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import Heartbeat
from lora_engine.wire.prompt_prefixes import RecentPrefixes

from .adapter_probes import PROBING
from .engine_loop import EngineLoop
from .journal import UsageJournal
from .lifecycle import Lifecycle
from .messages import fill, page_map_message, waiting_message
from .open_requests import OpenRequests
from .resident_adapters import ResidentAdapters

# Seconds that a status waits for the current step before the last snapshot is sent.
_STATUS_PATIENCE_S = 1.0
# Seconds for which one load or heartbeat is shared between callers.
_SHARED_S = 0.1
T = TypeVar("T")
# Values of a message's fields by name; ``messages.fill`` converts them.
Figures = dict[str, Any]


class Snapshot(NamedTuple):
    """The engine's state between two steps."""

    figures: Figures
    on_device: list[DeviceAdapter]
    device_load_time: LoadTime
    prefix_tokens: int | None


class Shared(Generic[T]):
    """A read whose result is shared by all callers within 100 ms."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._result: asyncio.Future[T] | None = None
        self._began = 0.0

    def begin(self) -> asyncio.Future[T]:
        """Return the result of a read that began less than 100 ms ago. A caller must not cancel it."""
        now = time.monotonic()
        if self._result is None or now - self._began > _SHARED_S:
            self._result, self._began = asyncio.ensure_future(self._read()), now
        return self._result


class StatusReader:
    """A reader of one host's status. It lives on the event loop."""

    def __init__(
        self,
        engine: EngineLoop,
        tiers: AdapterTiers,
        journal: UsageJournal,
        lifecycle: Lifecycle,
        prefixes: RecentPrefixes,
        requests: OpenRequests,
        resident_adapters: ResidentAdapters,
    ) -> None:
        self._engine = engine
        self._tiers = tiers
        self._journal = journal
        self._lifecycle = lifecycle
        self._prefixes = prefixes
        self._requests = requests
        self._resident_adapters = resident_adapters
        self._snapshot: Snapshot | None = None
        self._load = Shared(self._read_load)
        self._heartbeat = Shared(self._read_heartbeat)

    async def read(self) -> pb.HostStatus:
        """Return the heartbeat. A long step delays it by at most a second; then the last snapshot is sent."""
        snapshot = await self._refresh_snapshot()
        status = self._message(snapshot)
        status.adapters.extend(self._resident_adapters.residency(snapshot.on_device))
        return status

    async def heartbeat(self) -> Heartbeat:
        """Return the heartbeat for streams that send changes, shared by all callers within 100 ms: listing thousands of
        adapters takes milliseconds.
        """
        return await asyncio.shield(self._heartbeat.begin())  # cancelling one caller must not cancel the others

    async def load(self) -> pb.HostStatus | None:
        """Return the load part of the heartbeat, shared by all callers within 100 ms; None if a step takes long."""
        load = self._load.begin()
        done, _ = await asyncio.wait([load], timeout=_STATUS_PATIENCE_S)
        return await load if done else None

    async def page_map(self) -> pb.PageMap:
        """Return the owner of each page, read between two steps."""
        pages = await asyncio.wrap_future(self._engine.call(lambda engine: engine.page_map()))
        return page_map_message(pages, self._lifecycle.boot_id)

    async def waiting(self, tenant: str, limit: int) -> list[pb.WaitingRequest]:
        """Return the requests in the engine's queue, with the reason why each waits."""
        requests = await asyncio.wrap_future(self._engine.call(lambda engine: engine.waiting_requests(tenant, limit)))
        return [waiting_message(request) for request in requests]

    async def _read_heartbeat(self) -> Heartbeat:
        snapshot = await self._refresh_snapshot()
        return Heartbeat(self._message(snapshot), self._resident_adapters.residency(snapshot.on_device))

    async def _read_load(self) -> pb.HostStatus:
        read = self._engine.call(lambda engine: _load_figures(engine, engine.queue_report()))
        figures = await asyncio.wrap_future(read)
        return fill(pb.HostStatus(load_only=True), figures | self._load_figures())

    def _message(self, snapshot: Snapshot) -> pb.HostStatus:
        """Return the heartbeat without adapters."""
        status = fill(pb.HostStatus(), snapshot.figures | self._figures(snapshot))
        status.merging.adapter_digest = content_of(status.merging.adapter_digest)
        return status

    async def _refresh_snapshot(self) -> Snapshot:
        snapshot = asyncio.wrap_future(self._engine.call(_snapshot))
        patience = _STATUS_PATIENCE_S if self._snapshot else None
        done, _ = await asyncio.wait([snapshot], timeout=patience)
        if done:
            self._snapshot = snapshot.result()
            self._prefixes.enabled = self._snapshot.prefix_tokens is not None
            self._prefixes.keep(self._snapshot.prefix_tokens or 0)
        assert self._snapshot is not None
        return self._snapshot

    # A figure of the host's page is a field of ``HostStatus`` in engine.proto with the option ``shown``, an entry in
    # one of these functions, and a ``Figure`` in the console's host-card.tsx. What lies between is derived.

    def _load_figures(self) -> Figures:
        return {
            "boot_id": self._lifecycle.boot_id,
            "unix_time": time.time(),
            "draining": self._lifecycle.draining,
            "tokens_per_second": self._requests.tokens_per_second,
        }

    def _figures(self, snapshot: Snapshot) -> Figures:
        return self._load_figures() | {
            "restarting": self._lifecycle.restarts.is_set(),
            "host_arena_bytes_used": self._tiers.arena.used,
            "unacknowledged_usage": len(self._journal),
            "adapter_readers": self._resident_adapters.readers,
            "load_times": {
                "to_device": snapshot.device_load_time,
                "from_disk": self._tiers.load_times.now,
                "download": self._tiers.download_times.now,
            },
        }


def _load_figures(engine: Engine, queue: QueueReport) -> Figures:
    return {
        "steps": engine.steps,
        "running": engine.num_running,
        "waiting": engine.num_waiting,
        "tenants": [share for share in queue.tenants if share.tenant != PROBING],
        "first_token": queue.newcomer,
    }


def _snapshot(engine: Engine) -> Snapshot:
    queue = engine.queue_report()
    figures = _load_figures(engine, queue) | {
        "refused_early": queue.refused,
        "forecast": queue.accuracy,
        "service_gap": queue.gap,
        "pool": engine.pool_stats(),
        "merging": engine.merge_report(),
        "prefill_budget": engine.prefill_budget_report(),
        "experts": engine.expert_report(),
    }
    return Snapshot(figures, engine.device_adapters(), engine.device_load_time, engine.prefix_tokens())
