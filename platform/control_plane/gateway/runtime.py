"""What the gateway keeps for as long as its event loop runs: the sessions to the hosts and the usage writer."""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from control_plane import config
from control_plane.fleet.connections import Fleet
from control_plane.fleet.endpoint import configured_endpoints
from control_plane.fleet.router import make_policy
from control_plane.gateway.usage_writer import UsageWriter


class Runtime:
    """Made on the running event loop; connects in the background."""

    def __init__(self) -> None:
        self.usage = UsageWriter(self._acknowledge)
        self.fleet = Fleet(
            configured_endpoints(), policy=make_policy(config.current().routing_policy), usage_sink=self.usage.put
        )
        self.usage.start()
        self.fleet.start()

    async def _acknowledge(self, host: str, request_ids: list[str]) -> None:
        await self.fleet.client(host).acknowledge(request_ids)

    async def close(self) -> None:
        """Running requests end with an error; usage that has arrived is stored and acknowledged first."""
        await self.usage.close()
        await self.fleet.close()


_runtimes: WeakKeyDictionary[asyncio.AbstractEventLoop, Runtime] = WeakKeyDictionary()


def runtime() -> Runtime:
    """The running loop's own; made at first use."""
    loop = asyncio.get_running_loop()
    if loop not in _runtimes:
        _runtimes[loop] = Runtime()
    return _runtimes[loop]


async def start() -> None:
    """A start-up hook of the web process: the first request should not wait for connections."""
    runtime()


async def stop() -> None:
    """Its shut-down hook."""
    running = _runtimes.pop(asyncio.get_running_loop(), None)
    if running is not None:
        await running.close()
