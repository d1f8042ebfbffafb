"""Peers of neighbouring releases work together; others are refused with a sentence that says who is to be upgraded."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from lorikeet_testing.engine_client import EngineClient

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import versions
from lora_engine.wire.versions import SUPPORTED, WIRE_VERSION, reject_version, upgrade_text


def test_the_range_is_one_release_on_either_side(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [version for version in range(9) if reject_version("this engine", version) is None] == list(SUPPORTED)
    monkeypatch.setattr(versions, "WIRE_VERSION", 7)
    monkeypatch.setattr(versions, "SUPPORTED", range(6, 9))
    text = reject_version("this engine", 5)
    assert text is not None and text.startswith("This engine speaks version 5 of the engine protocol")
    assert text.endswith("versions 6 to 8.")
    assert "older peer" in upgrade_text(5) and "this side" in upgrade_text(9)


async def test_a_web_process_of_another_release_is_greeted_or_refused(client: EngineClient) -> None:
    async def greeting(version: int) -> pb.EngineMessage:
        call = client.stub.Session(metadata=client.metadata)
        await call.write(pb.ClientMessage(hello=pb.Hello(client_id="web", wire_version=version)))
        return await asyncio.wait_for(call.read(), 10)

    for version in SUPPORTED:
        assert (await greeting(version)).HasField("welcome")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await greeting(WIRE_VERSION + 2)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert f"This control plane speaks version {WIRE_VERSION + 2}" in str(refused.value.details())
