"""Memory of the idle processes of docker-compose.yml, on this machine.

    python -m scripts.test_services -- python benchmarks/idle_memory.py

Starts the commands of the compose file as the end-to-end tests do (`lorikeet_testing/topology.py`), with the demo
model on a CPU, waits until web answers and then for --idle seconds, and prints the proportional set size (PSS) of each
service with its children, from /proc/PID/smaps_rollup. Pages that several processes share count once in all.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests/support", "platform", "inference_engine", "kernels")]

from lorikeet_testing.compose import load_compose  # noqa: E402
from lorikeet_testing.topology import Topology  # noqa: E402
from lorikeet_testing.web import free_port  # noqa: E402

# Services whose work the web process does itself with docker-compose.small.yml.
OWN_PROCESS = ("worker-", "beat", "watcher")
NOT_STARTED = ("postgres", "redis", "migrate", "engine-gpu", "prometheus", "grafana")


def children(pid: int) -> list[int]:
    """Return a process and all below it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in children(int(child)))]


def pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=float, default=30, help="seconds without requests before measuring")
    parser.add_argument("--small", action="store_true", help="with docker-compose.small.yml: web has the workers")
    args = parser.parse_args()
    services = load_compose({"POSTGRES_PASSWORD": "p", "LORIKEET_SECRET_KEY": "s"})["services"]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"LORIKEET_EMBEDDED": "true"} if args.small else {}
        topology = Topology(Path(folder) / "t", free_port(), settings)
        topology.run("migrate")
        try:
            for name in services:
                if name not in NOT_STARTED and not (args.small and name.startswith(OWN_PROCESS)):
                    topology.start(name)
            url = f"{topology.url}/readyz"
            topology.eventually("web", lambda: httpx.get(url, trust_env=False).status_code == 200, 180)
            time.sleep(args.idle)
            servers = set(children(os.getppid())) - set(children(os.getpid())) - {os.getppid()}
            total = sum(map(pss_mb, servers))
            print(f"{'PostgreSQL, Redis':<20} {total:7.0f} MB in {len(servers)} processes")
            for name, process in topology.processes.items():
                sizes = [pss_mb(pid) for pid in children(process.pid)]
                total += sum(sizes)
                print(f"{name:<20} {sum(sizes):7.0f} MB in {len(sizes)} processes")
            print(f"{'all':<20} {total:7.0f} MB")
        finally:
            topology.stop()


if __name__ == "__main__":
    main()
