"""A host that is not heard: who waits for it is told; a process that stood still itself blames no host."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from control_plane.fleet.routing import connections
from control_plane.fleet.routing.connections import HostConnection
from control_plane.fleet.transport.coalescing import Coalescing
from control_plane.fleet.transport.endpoint import HostEndpoint
from control_plane.fleet.transport.engine_client import EngineClient, RequestStream
from lora_engine.wire import engine_pb2 as pb

BEAT = pb.HostStatus(boot_id="b", steps=1)


@pytest.fixture
async def host(monkeypatch: pytest.MonkeyPatch) -> HostConnection:
    monkeypatch.setattr(connections, "SILENT_S", 0.05)
    monkeypatch.setattr(connections, "LATE_S", 0.1)
    made = HostConnection(EngineClient(HostEndpoint("local", "unix:/nonexistent/engine.sock")))
    made.client._connected.set()
    made._observe(BEAT)
    return made


async def test_whoever_waits_for_it_is_told(host: HostConnection) -> None:
    stream = RequestStream(host.client, pb.Submit(request_id="r", handle=1), Coalescing())
    host.client._streams["r"] = stream
    began = time.monotonic()
    assert await stream.take(60) is None and time.monotonic() - began < 10
    assert host.silent and not host.accepts
    host._observe(BEAT)
    assert not host.silent and host.accepts
    await host.close()


async def test_it_is_heard_after_this_process_stood_still(host: HostConnection) -> None:
    time.sleep(0.4)
    for _ in range(3):
        await asyncio.sleep(0)
    assert host.accepts, "what it sent meanwhile is still to be read"
    await asyncio.sleep(0.3)
    assert host.silent, "there was nothing to be read"
    await host.close()


async def test_one_whose_session_ended_is_not_expected_to_say_anything(host: HostConnection) -> None:
    host._expect_report(None)
    await asyncio.sleep(0.2)
    assert not host.silent
    await host.close()


async def test_one_that_is_followed_and_never_says_anything(
    host: HostConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may be there before its first heartbeat, and requests with it."""

    async def watch(*_what: float, prefixes: bool) -> AsyncIterator[pb.HostStatus]:
        await asyncio.sleep(60)
        yield BEAT

    host._expect_report(None)
    monkeypatch.setattr(host.client, "watch", watch)
    following = asyncio.ensure_future(host._read_heartbeats())
    await asyncio.sleep(0.3)
    assert host.silent and not host.accepts
    following.cancel()
    await host.close()
