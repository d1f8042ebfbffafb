"""A request that combines adapters, from the wire to its usage, on a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lora_engine.config import EngineConfig
from lora_engine.model.loading import load_model
from lora_engine.peft_format import Part, adapter_digest, combined_digest, folder_digests
from lora_engine.server.host import HostServer
from lora_engine.server.process import build_host
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[3] / "demo"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[HostServer]:
    config = EngineConfig(model=DEMO / "model", data_dir=tmp_path)
    host = build_host(config, load_model(config))
    host.start()
    yield host
    host.stop()


async def stage(host: HostServer, name: str) -> str:
    folder = DEMO / "adapters" / name
    files = folder_digests(folder)
    request = pb.StageAdapterRequest(digest=adapter_digest(files), source_uri=folder.as_uri(), file_digests=files)
    events = [event async for event in host.tiers.stage(request)]
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return request.digest


async def ask(host: HostServer, digest: str, name: str) -> pb.UsageRecord:
    sampling = pb.Sampling(max_tokens=4, ignore_eos=True)
    host.requests.submit(
        ClientSession(), pb.Submit(request_id=name, text="Once", adapter_digest=digest, sampling=sampling)
    )
    async with asyncio.timeout(60):
        while not host.requests.idle:
            await asyncio.sleep(0.005)
    records = await asyncio.wrap_future(host.journal.pull(0, 100))
    return next(record for record in records if record.request_id == name)


async def test_parts_are_put_together_by_the_first_request(host: HostServer) -> None:
    pirate, haiku = await stage(host, "pirate"), await stage(host, "haiku")
    digest = combined_digest([Part(pirate, 0.5), Part(haiku, 1.5)])
    for number in range(2):
        usage = await ask(host, digest, f"r{number}")
        assert (usage.adapter_digest, usage.outcome, usage.completion_tokens) == (digest, "finished", 4)
    assert {adapter.digest for adapter in (await host.status.read()).adapters} == {pirate, haiku}
    assert host.tiers.get(digest) is not None
    assert await host.resident_adapters.drop(haiku)
    assert host.tiers.get(digest) is None and not host.tiers.knows(digest) and host.tiers.knows(pirate)
