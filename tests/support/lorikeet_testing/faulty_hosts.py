"""A web process with real engines on a processor, a TCP proxy in front of each, and what can happen to a host."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import httpx

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.tcp_proxy import TcpProxy
from lorikeet_testing.web import ROOT, WebProcess, eventually, free_port

MODEL, SCRAPER = "lorikeet-demo", "faults"
SETTINGS = {"LORIKEET_HOST_RETURN_S": "30", "LORIKEET_METRICS_TOKEN": SCRAPER}
SET_SERVICE = """
import django; django.setup()
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.hosts.actions import set_service
from control_plane.fleet.hosts.models import HostService
set_service(actor=SYSTEM, name="{host}", service=HostService("{service}"))
"""
# Program that collects usage from the hosts' journals, as beat does some time later.
RECOVER = """
import django; django.setup()
from control_plane.fleet.transport.endpoint import configured_endpoints
from control_plane.billing.usage.recovery import recover_usage
for endpoint in configured_endpoints().values(): recover_usage(endpoint, leave_to_web_s=0)
"""
F = TypeVar("F", bound="FaultyFleet")
# Longest pause, in seconds, of a stream whose host fails. `make test-long` has the machine to itself; in other runs
# programs on the same cores cause pauses too, but waiting for a timeout in vain still fails.
PAUSE_S = 3.0 if os.environ.get("LORIKEET_LONG") else 10.0


class Host:
    """An engine behind a proxy."""

    def __init__(self, name: str, folder: Path, max_running: int) -> None:
        self.name, self._folder, self._port, self._running = name, folder / name, free_port(), str(max_running)
        self._folder.mkdir()
        self.proxy = TcpProxy(self._port)
        self.start()

    def start(self, *options: str) -> None:
        self.process = EngineProcess(
            ROOT / "demo" / "model",
            self._folder,
            *("--model-name", MODEL, "--max-running", self._running, "--pool-mb", "64", "--drain-seconds", "1"),
            *options,
            address=f"127.0.0.1:{self._port}",
        )

    def takes(self, *, requests: bool) -> None:
        """Let the host take new requests, or drain it; web processes notice a quarter of a second later."""
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            stub = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]
            stub.Drain(pb.DrainRequest(undo=requests), timeout=5)

    def close(self) -> None:
        self.proxy.close()
        self.process.end()


@dataclass
class FaultyFleet:
    web: WebProcess
    hosts: list[Host]
    http: httpx.Client

    def ready(self) -> None:
        """All hosts are online, and what is asked now reaches each of them."""
        eventually(self._all_serve, 60, what=f"all hosts: {self.web.output()}")

    def _all_serve(self) -> bool:
        online = "select 1 from hosts_enginehost where state = 'online'"
        if len(self.web.query(online)) < len(self.hosts):
            return False
        # So many at once that also a host gets some that seems slower: it had more to do when it measured its steps.
        with ThreadPoolExecutor(8 * len(self.hosts)) as callers:
            ids = list(callers.map(self._greet, range(8 * len(self.hosts))))
        eventually(lambda: len(self.rows(ids)) == len(ids), what="their rows")
        return {row["host"] for row in self.rows(ids)} == {host.name for host in self.hosts}

    def _greet(self, number: int) -> str:
        """The id of a request whose prompt nobody sent before."""
        prompt = f"{time.monotonic()} {number}: {'Hello there. ' * 30}"
        answer = self.http.post("/v1/completions", json={"model": MODEL, "prompt": prompt, "max_tokens": 1})
        return answer.headers["x-request-id"]

    def rows(self, request_ids: Iterable[str]) -> list[dict[str, Any]]:
        """Return the ledger's rows of these requests."""
        ids = ",".join(f"'{request_id}'" for request_id in request_ids)
        return self.web.query(f"select * from usage_usageevent where request_id in ({ids})")

    def set_service(self, host: str, service: str) -> None:
        self.program(SET_SERVICE.format(host=host, service=service))

    def collect_usage(self) -> None:
        self.program(RECOVER)

    def program(self, text: str) -> None:
        """Run the Python code ``text`` in a process with the settings of the web process."""
        self.web.run("-c", text)

    def went_on(self, *codes: str) -> float:
        """Return how many requests were retried elsewhere for one of these reasons."""
        answer = self.http.get("/metrics", headers={"Authorization": f"Bearer {SCRAPER}"})
        assert answer.status_code == 200, answer.text
        names = tuple(f'lorikeet_request_retries_total{{code="{code}"}}' for code in codes)
        return sum(float(line.split()[1]) for line in answer.text.splitlines() if line.startswith(names))


@contextmanager
def running(
    kind: type[F], folder: Path, names: str, settings: Mapping[str, str], *, max_running: int = 4
) -> Iterator[F]:
    hosts = [Host(name, folder, max_running) for name in names]
    addresses = ",".join(f"{host.name}=127.0.0.1:{host.proxy.port}" for host in hosts)
    web = WebProcess(folder / "var", addresses, {**SETTINGS, **settings})
    try:
        web.seed(adapters=False)
        web.start()
        bearer = web.tenants["acme"].bearer
        with httpx.Client(
            base_url=web.url, headers=bearer, timeout=120, trust_env=False, limits=httpx.Limits(max_connections=200)
        ) as http:
            made = kind(web, hosts, http)
            made.ready()
            yield made
    finally:
        web.stop()
        for host in hosts:
            host.close()


def kill(host: Host) -> Callable[[], None]:
    host.process.signal(signal.SIGKILL)
    host.process.wait()
    return host.start


def freeze(host: Host) -> Callable[[], None]:
    host.process.signal(signal.SIGSTOP)
    return lambda: host.process.signal(signal.SIGCONT)


def cut(host: Host) -> Callable[[], None]:
    host.proxy.cut()
    return host.proxy.restore


def replace(host: Host) -> Callable[[], None]:
    """Stop the host as for another version: requests that do not end within a second must be retried elsewhere."""
    host.process.signal(signal.SIGTERM)

    def start() -> None:
        host.process.wait()
        host.start()

    return start


def silence(host: Host) -> Callable[[], None]:
    """Packets are lost without a word."""
    host.proxy.freeze()
    return host.proxy.restore


def delay(host: Host) -> Callable[[], None]:
    host.proxy.delay(0.15)
    return host.proxy.restore
