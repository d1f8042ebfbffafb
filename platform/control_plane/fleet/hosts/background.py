"""The watcher as a part of the web process, for the embedded default; production runs ``watch_fleet`` instead."""

from __future__ import annotations

import asyncio

from control_plane.core import config
from control_plane.fleet.hosts.leader_election import make_lease
from control_plane.fleet.hosts.watcher import FleetWatcher
from control_plane.fleet.transport.endpoint import known_endpoints

_task: asyncio.Task[None] | None = None


def make_watcher() -> FleetWatcher:
    return FleetWatcher(known_endpoints, make_lease("watch-fleet"))


async def start() -> None:
    """Start the watcher; a start-up hook of the web process."""
    global _task
    if config.current().is_embedded and _task is None:
        _task = asyncio.create_task(make_watcher().run(), name="fleet-watcher")


async def stop() -> None:
    """Stop the watcher; a shut-down hook of the web process."""
    global _task
    if _task is not None:
        _task.cancel()
        await asyncio.gather(_task, return_exceptions=True)
        _task = None
