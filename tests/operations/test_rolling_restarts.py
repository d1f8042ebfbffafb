"""Web processes and workers are replaced one after the other under load, behind HAProxy, nginx and Caddy.

The balancers run with the files of `deploy/balancers`, over TLS, all three in front of the same two web processes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from lorikeet_testing.balancers import KINDS, Balancer
from lorikeet_testing.drills import SOCKET, STREAM, WHOLE, Load, check_ledger, report
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.web import WebProcess, eventually, new_installation

pytestmark = pytest.mark.services
# Seconds for which a process that stops still accepts requests: twice the interval of the balancers' checks.
NOTICE_S = 2
# An upload that is larger than a proxy's usual limits.
LARGE = {"adapter_config.json": b"{}", "adapter_model.safetensors": bytes(12 << 20)}


@dataclass
class Installation:
    webs: list[WebProcess]
    workers: WebProcess  # a process with worker, watcher and beat inside, which is behind no balancer
    balancers: dict[str, Balancer]
    engine: FakeEngineThread

    @property
    def key(self) -> str:
        return self.webs[0].tenants["acme"].key

    def client(self, balancer: Balancer) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        verify = balancer.certificate.trusted()
        return httpx.Client(base_url=balancer.url, headers=headers, timeout=60, trust_env=False, verify=verify)

    def upload(self, balancer: Balancer, name: str, seed: int) -> str:
        files = [("files", (file, content)) for file, content in adapter_files(seed=seed).items()]
        with self.client(balancer) as http:
            answer = http.post("/api/tenants/acme/uploads", data={"name": name}, files=files)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def upload_states(self, *ids: str) -> set[str]:
        named = ", ".join(f"'{each}'" for each in ids)
        return {row["state"] for row in self.webs[0].query(f"SELECT state FROM uploads_upload WHERE id IN ({named})")}


def body(number: int) -> dict[str, Any]:
    """Return a chat request: short and long answers, the longest of about two seconds."""
    words = (3, 8, 60, 80)[number % 4]
    return {"model": "support", "messages": [{"role": "user", "content": f"words {words}"}], "max_tokens": words}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("rolling")
    env = {
        "LORIKEET_EMBEDDED": "0",
        "LORIKEET_TRUST_PROXY": "1",
        "LORIKEET_SECURE_COOKIES": "1",
        "LORIKEET_DRAIN_NOTICE_S": str(NOTICE_S),
        "LORIKEET_LOG_REQUESTS": "1",
        "LORIKEET_ARTIFACT_DIR": str(folder / "artifacts"),
        "LORIKEET_SECRET_KEY": "s" * 50,
    }
    # An artifact's weights are not read by this engine.
    engine = FakeEngineThread(f"unix:{folder}/e.sock", Behaviour(steps_per_second=40))
    made = new_installation()
    hosts = f"local={engine.engine.address}"
    webs = [WebProcess(folder / f"web{n}", hosts, env, installation=made, graceful_s=20) for n in (1, 2)]
    inside = {**env, "LORIKEET_EMBEDDED": "1", "LORIKEET_DRAIN_NOTICE_S": "0"}
    workers = WebProcess(folder / "workers", hosts, inside, installation=made)
    with ExitStack() as stack:
        stack.callback(engine.close)
        webs[0].seed()
        for web in (webs[1], workers):
            web.var.mkdir()
            web.tenants = webs[0].tenants
        for web in (workers, *webs):
            web.start()
            stack.callback(web.stop)
        webs[0].wait_until_ready("support")
        balancers = {}
        for kind in KINDS:
            balancers[kind] = Balancer(kind, folder / kind, [web.port for web in webs])
            stack.callback(balancers[kind].stop)
        yield Installation(webs, workers, balancers, engine)


def serves(web: WebProcess, offset: int, callers: int) -> bool:
    """Return whether the process has got requests of the load since `offset` bytes of its log."""
    return web.log.read_text(errors="replace")[offset:].count(" chat.completions ") >= callers


def test_the_files_do_what_they_promise(installation: Installation) -> None:
    """Streams are not buffered, forged headers change nothing, and a large upload passes."""
    for kind, balancer in installation.balancers.items():
        with installation.client(balancer) as http:
            request = {**body(2), "stream": True}
            with http.stream("POST", "/v1/chat/completions", json=request) as answer:
                times = [time.monotonic() for line in answer.iter_lines() if line.startswith("data: {")]
            assert len(times) >= 60 and times[-1] - times[0] > 0.5, kind
            pauses = [after - before for before, after in itertools.pairwise(times)]
            assert max(pauses) < times[-1] - times[0], f"{kind} sends all at once"
            assert sorted(pauses)[len(pauses) // 2] < 0.1, f"{kind} sends in lumps"
            forged = {"X-Forwarded-For": "203.0.113.7", "X-Forwarded-Proto": "http"}
            assert http.get("/api/session", headers=forged).status_code == 200, kind
            files = [
                ("files", ("adapter_config.json", b"{}")),
                ("files", ("adapter_model.safetensors", bytes(12 << 20))),
            ]
            large = http.post("/api/tenants/acme/uploads", data={"name": kind}, files=files)
            assert large.status_code == 202, large.text


@contextmanager
def under_load(installation: Installation, drill: str, what: str) -> Iterator[dict[str, Load]]:
    """Run callers behind each balancer while the block runs. No request fails, and the ledger has every answer."""
    loads = {}
    for kind, balancer in installation.balancers.items():
        tls = balancer.certificate.trusted()
        loads[kind] = Load(balancer.url, installation.key, body, (WHOLE, STREAM, SOCKET), tls)
    with ExitStack() as stack:
        for load in loads.values():
            stack.enter_context(load.running())
        yield loads
    report(drill, loads, what)
    assert [load.failures for load in loads.values()] == [[], [], []]
    check_ledger(installation.webs[0], [answer for load in loads.values() for answer in load.answers])


@pytest.mark.long
def test_web_processes_are_replaced(installation: Installation) -> None:
    with under_load(installation, "rolling_restart", "two web processes, one after the other") as loads:
        for web in installation.webs:
            offset = web.log.stat().st_size
            web.stop()
            web.start()
            eventually(lambda web=web, offset=offset: serves(web, offset, 3), 60, what="requests at the new process")
            for load in loads.values():
                load.progress()
    assert all(load.moves for load in loads.values()), "sockets were asked to connect again"


@pytest.mark.long
def test_workers_are_replaced(installation: Installation) -> None:
    with under_load(installation, "workers_restart", "worker, watcher and beat; an upload before and meanwhile"):
        haproxy = installation.balancers["haproxy"]
        first = installation.upload(haproxy, "before", 1)
        installation.workers.stop()
        second = installation.upload(haproxy, "meanwhile", 2)
        installation.workers.start()
        eventually(lambda: installation.upload_states(first, second) == {"accepted"}, 120, what="both uploads")
