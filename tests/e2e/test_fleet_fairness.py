"""Fair shares over four engine processes: summed over the hosts, what two tenants get stays within the bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.web import ROOT

from control_plane.core.config import current
from control_plane.fleet.routing.connections import Fleet
from control_plane.fleet.routing.fair_order import INPUT_PRICE, OUTPUT_PRICE
from control_plane.fleet.transport.endpoint import HostEndpoint
from lora_engine.wire import engine_pb2 as pb

# Four engines take half a minute to start on two cores.
pytestmark = [pytest.mark.e2e, pytest.mark.long]
NAMES, ON_A_HOST, RUNNING, TOKENS = "abcd", 8, 4, 24
PROMPT = "Tell me about the sea."
CALLERS = {"light": 40, "heavy": 160}


@pytest_asyncio.fixture
async def fleet(tmp_path: Path, settings: Any) -> AsyncIterator[Fleet]:
    settings.LORIKEET = current().model_copy(update={"host_requests": ON_A_HOST})
    processes = []
    for name in NAMES:
        (tmp_path / name).mkdir()
        model = ROOT / "demo" / "model"
        processes.append(EngineProcess(model, tmp_path / name, "--max-running", str(RUNNING), "--no-prefix-cache"))
    made = Fleet({name: HostEndpoint(name, each.address) for name, each in zip(NAMES, processes, strict=True)})
    made.start()
    try:
        async with asyncio.timeout(120):
            while not all(made.accepts(name, "") and made.status(name) for name in NAMES):
                await asyncio.sleep(0.1)
        yield made
    finally:
        await made.close()
        for process in processes:
            process.end()


class Load:
    """Callers that ask again and again, and what the hosts did for each tenant."""

    def __init__(self, fleet: Fleet, hosts: dict[str, str], seconds: float) -> None:
        self._fleet, self._hosts, self._until = fleet, hosts, time.monotonic() + seconds
        self.service = dict.fromkeys(hosts, 0.0)
        self.widest = 0.0
        self._least = self._most = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for tenant in self._hosts:
                for number in range(CALLERS[tenant]):
                    group.create_task(self._caller(tenant, number))

    async def _caller(self, tenant: str, number: int) -> None:
        asked = 0
        while time.monotonic() < self._until:
            asked += 1
            sampling = pb.Sampling(max_tokens=TOKENS, ignore_eos=True)
            submit = pb.Submit(request_id=f"{tenant}-{number}-{asked}", tenant=tenant, text=PROMPT, sampling=sampling)
            stream = await self._fleet.submit(submit, self._hosts[tenant], "demo")
            async for chunks in stream:
                tokens = sum(chunk.tokens for chunk in chunks)
                self._fleet.charge(submit, tokens)
                self._note(tenant, tokens * OUTPUT_PRICE)
            assert stream.usage is not None
            self._note(tenant, stream.usage.prompt_tokens * INPUT_PRICE)

    def _note(self, tenant: str, cost: float) -> None:
        if time.monotonic() < self._until:  # both wait until then
            self.service[tenant] += cost
            gap = self.service["heavy"] - self.service["light"]
            self._least, self._most = min(self._least, gap), max(self._most, gap)
            self.widest = self._most - self._least


async def test_the_gap_summed_over_four_hosts_is_within_the_bound(fleet: Fleet) -> None:
    load = Load(fleet, {"light": NAMES, "heavy": NAMES}, 12)
    await load.run()
    in_flight = len(NAMES) * ON_A_HOST * (len(PROMPT) * INPUT_PRICE + TOKENS * OUTPUT_PRICE)
    served = sum(load.service.values())
    assert served > 3 * in_flight  # long enough to tell
    assert load.widest <= 2 * in_flight
    assert 0.4 <= load.service["light"] / served <= 0.6  # of a fifth of the callers


async def test_who_can_use_one_host_only_gets_most_of_that(fleet: Fleet) -> None:
    """Were each host to divide itself alone, it would get half of one: an eighth of all."""
    load = Load(fleet, {"light": "a", "heavy": NAMES}, 12)
    await load.run()
    assert load.service["light"] / sum(load.service.values()) > 0.16
