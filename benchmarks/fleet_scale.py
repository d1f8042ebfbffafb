"""A web process's cost per engine host: heartbeats, their bytes, routing.

    python benchmarks/fleet_scale.py [--hosts 2 10 100 1000] [--adapters 200] [--tenants 50] [--changed 0.05] [--dry]

Nothing is connected: heartbeats as engines send them, each host with so many adapters and active tenants, are read from
their bytes (of adapters those that changed since the last) and observed by the gateway's own connections; a request is
compared over the hosts that the product compares, and over all. Processor time, one core. What is written follows from
the watcher's interval."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("platform", "inference_engine", ".")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
RESULTS = ROOT / "benchmarks" / "results" / "fleet_scale.jsonl"

import django  # noqa: E402
from rows import append, machine, parser_of, row  # noqa: E402

django.setup()

from control_plane.fleet.hosts.host_status import status_json  # noqa: E402
from control_plane.fleet.hosts.watcher import HEARTBEAT_S as WATCH_S  # noqa: E402
from control_plane.fleet.routing.connections import HEARTBEAT_S, LOAD_EVERY_S, HostConnection  # noqa: E402
from control_plane.fleet.routing.router import SoonestFirstToken, compared  # noqa: E402
from control_plane.fleet.transport.endpoint import HostEndpoint  # noqa: E402
from control_plane.fleet.transport.engine_client import EngineClient  # noqa: E402
from lora_engine.wire import engine_pb2 as pb  # noqa: E402
from lora_engine.wire.adapter_list import AdapterChanges, Heartbeat  # noqa: E402
from lora_engine.wire.prompt_prefixes import prefix_marks  # noqa: E402


def heartbeat(adapters: int, tenants: int, *, load_only: bool) -> pb.HostStatus:
    status = pb.HostStatus(
        boot_id="b" * 32, unix_time=time.time(), steps=10**6, running=128, waiting=9, tokens_per_second=9000,
        first_token=pb.FirstTokenForecast(seconds=0.1, prompt_token_s=4e-5), load_only=load_only,
        tenants=[
            pb.TenantShare(tenant=f"{n:036}", weight=1, waiting=3, running=4, counter=1e6, owed=0.02, received=0.02,
                           first_token_s=0.2)
            for n in range(tenants)
        ],
    )  # fmt: skip
    if not load_only:
        status.pool.CopyFrom(pb.PoolPages(total=50_000, free=20_000, kv=20_000, adapter=9_000, reserved=1))
        for number in range(adapters):
            status.adapters.add(digest=f"sha256:{number:064}", tier=pb.AdapterResidency.HOST, bytes=27 << 20, rank=16)
    return status


def microseconds(step: Callable[[], object], times: int) -> float:
    """Return the processor time of a step in microseconds: the median of five rounds."""
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(times):
            step()
        rounds.append((time.process_time() - begun) / times * 1e6)
    return statistics.median(rounds)


def connections(count: int, status: pb.HostStatus) -> list[HostConnection]:
    made = []
    for number in range(count):
        client = EngineClient(HostEndpoint(f"host-{number}", f"10.0.{number // 250}.{number % 250}:7000"))
        client._connected.set()
        made.append(HostConnection(client))
        made[-1]._observe(status)
    return made


def following(adapters: int, tenants: int, changed: float) -> tuple[pb.HostStatus, pb.HostStatus, float]:
    """Return the first heartbeat of a stream, a later one with this share of adapters changed, and the microseconds
    that the host needs to compute the difference.
    """
    first, later = (heartbeat(adapters, tenants, load_only=False) for _ in range(2))
    for adapter in later.adapters[: round(adapters * changed)]:
        adapter.running += 1
    moments = [Heartbeat(heartbeat(0, tenants, load_only=False), status.adapters) for status in (first, later)]
    changes = AdapterChanges()
    whole, part = map(changes.message, moments)
    alternating = itertools.cycle(moments)
    return whole, part, microseconds(lambda: changes.message(next(alternating)), 20)


async def measure(hosts: int, adapters: int, tenants: int, changed: float) -> dict[str, Any]:
    full, later, reduce_us = following(adapters, tenants, changed)
    load = heartbeat(adapters, tenants, load_only=True)
    whole, part = later.SerializeToString(), load.SerializeToString()
    one = connections(1, full)[0]
    full_us = microseconds(lambda: one._observe(pb.HostStatus.FromString(whole)), 100)
    load_us = microseconds(lambda: one._observe(pb.HostStatus.FromString(part)), 200)
    fleet, policy = connections(hosts, full), SoonestFirstToken()
    submit = pb.Submit(tenant=f"{1:036}", adapter_digest=f"sha256:{1:064}", text="x" * 900)

    by_name = {host.client.host: host for host in fleet}

    def choose(names: list[str]) -> None:
        marks = prefix_marks(submit)
        policy.choose([by_name[name].load(submit, marks) for name in names if by_name[name].accepts])

    choose_us = microseconds(lambda: choose(compared([*by_name])[0]), max(2, 2000 // min(hosts, 32)))
    all_us = microseconds(lambda: choose([*by_name]), max(2, 2000 // hosts))
    loads_per_s = 1 / LOAD_EVERY_S - 1 / HEARTBEAT_S
    core = hosts * (full_us / HEARTBEAT_S + load_us * loads_per_s) / 1e6
    stored = len(json.dumps(status_json(full)))
    return {
        "hosts": hosts,
        "adapters_on_each": adapters,
        "tenants_on_each": tenants,
        "adapters_changed": changed,
        "first_heartbeat_bytes": len(full.SerializeToString()),
        "host_us_a_heartbeat": round(reduce_us, 1),
        "heartbeat_bytes": len(whole),
        "load_bytes": len(part),
        "heartbeat_us": round(full_us, 1),
        "load_us": round(load_us, 1),
        "core_for_heartbeats": round(core, 4),
        "megabytes_per_s": round(hosts * (len(whole) / HEARTBEAT_S + len(part) * loads_per_s) / 1e6, 3),
        "choice_us": round(choose_us, 1),
        "choice_of_all_us": round(all_us, 1),
        "rows_per_s": hosts / WATCH_S,
        "adapter_rows_per_s": hosts / WATCH_S * adapters * changed,
        "row_bytes": stored,
        "stored_megabytes_per_s": round(hosts / WATCH_S * stored / 1e6, 3),
    }


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--hosts", type=int, nargs="*", default=[2, 10, 100, 1000])
    parser.add_argument("--adapters", type=int, default=200)
    parser.add_argument("--tenants", type=int, default=50)
    parser.add_argument(
        "--changed", type=float, default=0.05, help="share of the adapters that change from one heartbeat to the next"
    )
    args = parser.parse_args()
    rows = []
    for hosts in args.hosts:
        result = asyncio.run(measure(hosts, args.adapters, args.tenants, args.changed))
        print(result, flush=True)
        rows.append(row("fleet_scale", f"{hosts} hosts", "choice", result["choice_us"], "us", {**machine(), **result}))
    append(RESULTS, rows, dry=args.dry)


if __name__ == "__main__":
    main()
