"""The cost of probing an adapter when it is staged, on the demo model.

    python benchmarks/adapter_probes.py --out benchmarks/results/adapter_probes.jsonl

Each of the demo's adapters is staged and tried in a host of its own process, first with nothing else to do, then again
beside requests that keep the host busy; the time between these requests' tokens is measured with and without probes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rows import append, parser_of

from lora_engine.config import EngineConfig
from lora_engine.model.loading import load_model
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server.host import HostServer
from lora_engine.server.process import build_host
from lora_engine.server.session import ClientSession
from lora_engine.wire import engine_pb2 as pb

DEMO = Path(__file__).parents[1] / "demo"
BUSY = 8
PATIENCE_S = 60.0


async def stage(host: HostServer, folder: Path) -> tuple[str, float]:
    """Stage an adapter; return its digest, and the milliseconds until it was in host memory."""
    files = folder_digests(folder)
    request = pb.StageAdapterRequest(
        digest=adapter_digest(files), source_uri=folder.resolve().as_uri(), file_digests=files
    )
    began = time.perf_counter()
    events = [event async for event in host.tiers.stage(request)]
    assert events[-1].phase == pb.StageEvent.READY, events[-1]
    return request.digest, 1000 * (time.perf_counter() - began)


async def probe(host: HostServer, digest: str) -> float:
    """Probe an adapter; return the milliseconds."""
    began = time.perf_counter()
    reply = await host.resident_adapters.probe(digest, PATIENCE_S)
    assert reply.effect.verdict == pb.AdapterEffect.ACTS, reply
    return 1000 * (time.perf_counter() - began)


async def busy(host: HostServer, name: str, tokens: int = 400) -> float:
    """Return the milliseconds between tokens of requests that run at the same time."""
    for number in range(BUSY):
        sampling = pb.Sampling(max_tokens=tokens, ignore_eos=True)
        host.requests.submit(
            ClientSession(), pb.Submit(request_id=f"{name}{number}", text="Once", tenant="a", sampling=sampling)
        )
    began = time.perf_counter()
    while not host.requests.idle:
        await asyncio.sleep(0.002)
    return 1000 * (time.perf_counter() - began) / tokens


async def measure(folder: Path) -> dict[str, Any]:
    config = EngineConfig(model=DEMO / "model", data_dir=folder)
    host = build_host(config, load_model(config))
    host.start()
    try:
        staged = [await stage(host, adapter) for adapter in sorted((DEMO / "adapters").iterdir())]
        digests = [digest for digest, _ in staged]
        first = await probe(host, digests[0])
        idle = [await probe(host, digest) for digest in digests]
        await busy(host, "warm")
        alone = await busy(host, "alone")
        running = asyncio.create_task(busy(host, "beside"))
        await asyncio.sleep(0.05)
        beside = [await probe(host, digest) for digest in digests]
        return {
            "adapters": len(digests),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),  # of the machine, this benchmark included
            "stage_ms": round(statistics.median(ms for _, ms in staged), 1),
            "first_probe_ms": round(first, 1),
            "probe_ms": round(statistics.median(idle), 1),
            "slowest_probe_ms": round(max(idle), 1),
            "probe_beside_requests_ms": round(statistics.median(beside), 1),
            "inter_token_ms": round(alone, 2),
            "inter_token_beside_probes_ms": round(await running, 2),
        }
    finally:
        host.stop()


def main() -> None:
    parser = parser_of(__doc__, out=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = {"benchmark": "adapter_probes", **asyncio.run(measure(Path(folder)))}
    append(arguments.out, [row])


if __name__ == "__main__":
    main()
