"""The distance of adapters on a quantised base from themselves on the unquantised one, and the cost of measuring it.

    python benchmarks/base_agreement.py --out benchmarks/results/base_agreement.jsonl

Each adapter of a folder is staged and tried in a host of this process with ``--quantization fp8`` (or a checkpoint that
is in FP8), and its comparison waited for; then again beside requests, whose time between tokens is measured with and
without.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from adapter_probes import DEMO, PATIENCE_S, busy, stage
from rows import append, parser_of

from lora_engine.config import EngineConfig
from lora_engine.model.loading import load_model
from lora_engine.server.host import HostServer
from lora_engine.server.process import build_host
from lora_engine.wire import engine_pb2 as pb


async def compared(host: HostServer, digest: str) -> pb.AdapterEffect:
    while True:
        effect = (await host.resident_adapters.probe(digest, PATIENCE_S)).effect
        if effect.agreement.outcome != pb.Agreement.PENDING:
            return effect
        await asyncio.sleep(0.01)


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    config = EngineConfig(
        model=arguments.model, data_dir=folder, device=arguments.device, quantization=arguments.quantization
    )
    host = build_host(config, load_model(config))
    host.start()
    try:
        digests = [(await stage(host, adapter))[0] for adapter in sorted(arguments.adapters.iterdir())]
        effects = [await compared(host, digest) for digest in digests]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await busy(host, "warm", arguments.tokens)
        alone = await busy(host, "alone", arguments.tokens)
        running = asyncio.create_task(busy(host, "beside", arguments.tokens))
        await asyncio.sleep(0.05)
        beside = [await compared(host, digest) for digest in digests[: arguments.beside]]
        still_running = not running.done()
        with_adapter, base = [[getattr(e.agreement, side) for e in effects] for side in ("adapter", "base")]
        return {
            "model": host.description.base_model,
            "device": host.description.device,
            "adapters": len(digests),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),  # of the machine, this benchmark included
            "outcomes": sorted({pb.Agreement.Outcome.Name(e.agreement.outcome).lower() for e in effects}),
            "reasons": sorted({e.agreement.reason for e in effects} - {""}),
            "tokens": sum(f.tokens for f in with_adapter),
            "agreeing": sum(f.agreeing for f in with_adapter),
            "base_agreeing": sum(f.agreeing for f in base),
            "distance": [round(f.mean_distance, 3) for f in with_adapter],
            "base_distance": round(base[0].mean_distance, 3),
            "adapter_changes": [round(statistics.mean(p.mean_change for p in e.prompts), 2) for e in effects],
            "comparison_ms": [e.agreement.elapsed_ms for e in effects],
            "comparison_beside_requests_ms": [e.agreement.elapsed_ms for e in beside],
            "requests_ran_all_the_time": still_running,
            "inter_token_ms": round(alone, 2),
            "inter_token_beside_comparisons_ms": round(await running, 2),
            "peak_host_mib": memory >> 10,
            "peak_device_mib": torch.cuda.max_memory_reserved() >> 20 if config.device != "cpu" else None,
        }
    finally:
        host.stop()


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", type=Path, default=DEMO / "model")
    parser.add_argument("--adapters", type=Path, default=DEMO / "adapters", help="a folder of adapters' folders")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quantization", default="fp8")
    parser.add_argument("--tokens", type=int, default=400, help="tokens of each request that runs beside")
    parser.add_argument("--beside", type=int, default=None, help="how many adapters are compared beside requests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = {"benchmark": "base_agreement", **asyncio.run(measure(arguments, Path(folder)))}
    append(arguments.out, [row])


if __name__ == "__main__":
    main()
