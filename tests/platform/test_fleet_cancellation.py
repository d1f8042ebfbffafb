"""Whoever is asked to end ends, also where the call breaks at that moment and its status comes out instead."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from control_plane.fleet.hosts.watcher import HostWatcher
from control_plane.fleet.routing.connections import Fleet, HostConnection
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import EngineClient
from lora_engine.wire import engine_pb2 as pb

NOWHERE = HostEndpoint("local", "unix:/nonexistent/engine.sock")


async def breaks_when_cancelled(*_: Any) -> Any:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "broke") from None


class BreaksWhenCancelled(EngineClient):
    async def _session(self) -> None:
        await breaks_when_cancelled()

    async def watch(self, interval_s: float) -> AsyncIterator[pb.HostStatus]:
        yield await breaks_when_cancelled()

    async def describe(self, timeout_s: float = 5.0) -> pb.EngineDescription:
        return await breaks_when_cancelled()


async def session() -> None:
    client = BreaksWhenCancelled(NOWHERE)
    client.start()
    await asyncio.sleep(0.01)
    await client.close()


async def connection() -> None:
    connection = HostConnection(BreaksWhenCancelled(NOWHERE))
    connection.start()
    await asyncio.sleep(0.01)
    await connection.close()


async def watcher() -> None:
    watcher = HostWatcher(NOWHERE)
    watcher._client = BreaksWhenCancelled(NOWHERE)
    task = asyncio.create_task(watcher.run())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("ends", [session, connection, watcher], ids=lambda ends: ends.__name__)
async def test_ends_when_its_call_breaks_at_that_moment(ends: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(30):
        await ends()


def test_event_loops_end_while_sessions_are_connecting() -> None:
    async def a_moment() -> None:
        Fleet({"local": NOWHERE}).start()
        await asyncio.sleep(random.uniform(0, 0.012))

    for _ in range(200):
        asyncio.run(a_moment())
