"""The production topology by hand: what docker-compose.yml starts, as processes of this machine.

Commands and settings are read out of the file; only host names, ports and
folders are translated. PostgreSQL and Redis are the throw-away ones of the run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from lorikeet_testing.compose import ROOT, load_compose

DATABASE = "lorikeet_topology"
REDIS_DATABASE = "9"
LONG_RUNNING = ("engine-cpu", "worker", "beat", "watcher", "web")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


def service_urls() -> tuple[str, str]:
    """A fresh database, and a Redis database of its own."""
    database, redis = os.environ.get("LORIKEET_TEST_DATABASE_URL"), os.environ.get("LORIKEET_TEST_REDIS_URL")
    assert database and redis, "Run this through scripts/test_services.py, which starts PostgreSQL and Redis."
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return f"{database.rsplit('/', 1)[0]}/{DATABASE}", f"{redis.rsplit('/', 1)[0]}/{REDIS_DATABASE}"


@dataclass
class Topology:
    """The services of the compose file, translated to this machine."""

    folder: Path
    port: int
    database_url: str
    redis_url: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.services: dict[str, Any] = load_compose({"POSTGRES_PASSWORD": "unused", "LORIKEET_SECRET_KEY": "s" * 40})[
            "services"
        ]
        for name in ("data", "engine", "run", "log"):
            (self.folder / name).mkdir(parents=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def translate(self, text: str) -> str:
        for theirs, ours in (
            ("/var/lib/lorikeet-engine", str(self.folder / "engine")),
            ("/var/lib/lorikeet", str(self.folder / "data")),
            ("/run/lorikeet", str(self.folder / "run")),
            ("/tmp/celerybeat", str(self.folder / "celerybeat")),
            ("redis://redis:6379/0", self.redis_url),
            ("0.0.0.0", "127.0.0.1"),
        ):
            text = text.replace(theirs, ours)
        whole = {"/model": str(ROOT / "demo" / "model"), "8000": str(self.port), "python": sys.executable}
        return whole.get(text, text)

    def command(self, service: str) -> list[str]:
        return [self.translate(part) for part in self.services[service]["command"]]

    def environment(self, service: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
        settings = self.services[service].get("environment", {})
        given = {name: self.translate(str(value)) for name, value in settings.items()}
        if "LORIKEET_DATABASE_URL" in given:
            given["LORIKEET_DATABASE_URL"] = self.database_url
        return {**own, **given, "PYTHONUNBUFFERED": "1"}

    def run(self, service: str, *command: str) -> str:
        """To its end, like the migrations; returns what it printed."""
        done = subprocess.run(
            command or self.command(service), cwd=ROOT, env=self.environment(service), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, service: str) -> None:
        with (self.folder / "log" / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(
                self.command(service), cwd=ROOT, env=self.environment(service), stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def stop(self) -> dict[str, int]:
        """SIGTERM as Docker sends it; exit codes by service."""
        for name in reversed(self.processes):
            self.processes[name].send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                codes[name] = process.wait()
        return codes

    def logs(self) -> str:
        files = sorted((self.folder / "log").iterdir())
        return "\n".join(f"── {path.stem}\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def eventually(self, what: str, found: Any, limit_s: float = 60) -> Any:
        """The first true answer of `found`; the logs when there is none."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}\n{self.logs()}"
            try:
                if answer := found():
                    return answer
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {limit_s} s\n{self.logs()}")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    made = Topology(tmp_path_factory.mktemp("topology") / "t", port, *service_urls())
    made.run("migrate")
    try:
        for service in LONG_RUNNING:
            made.start(service)
        yield made
    finally:
        codes = made.stop()
        assert set(codes.values()) <= {0, -signal.SIGTERM}, codes


@pytest.fixture(scope="module")
def client(topology: Topology) -> Iterator[httpx.Client]:
    """With a key made by the same command as an operator would use."""
    topology.eventually("web answers", lambda: httpx.get(f"{topology.url}/livez", trust_env=False).status_code == 200)
    create = ("manage.py", "create_tenant", "acme", "--owner", "ada@example.org", "--key", "first")
    made = topology.run("web", sys.executable, *create)
    key = next(word for word in made.split() if word.startswith("lk_"))
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=topology.url, headers=headers, timeout=60, trust_env=False) as opened:
        yield opened


def test_an_uploaded_adapter_answers(topology: Topology, client: httpx.Client) -> None:
    folder = next(path.parent for path in sorted((ROOT / "demo" / "adapters").rglob("adapter_config.json")))
    files = [("files", (name, (folder / name).read_bytes())) for name in ADAPTER_FILES]
    answer = client.post("/api/tenants/acme/uploads", data={"name": "mine"}, files=files)
    assert answer.status_code == 202, answer.text
    upload = answer.json()["id"]

    def accepted() -> bool:
        state = client.get(f"/api/tenants/acme/uploads/{upload}").json()
        assert state["state"] != "refused", state
        return bool(state["state"] == "accepted")

    topology.eventually("the upload is accepted", accepted)
    version = "/api/tenants/acme/adapters/mine/versions/1"
    topology.eventually("the version is ready", lambda: client.get(version).json()["state"] == "ready")
    body = {"model": "mine", "messages": [{"role": "user", "content": "Where is my order?"}], "max_tokens": 20}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
    assert answer.json()["usage"]["completion_tokens"] > 0


def test_usage_is_written(topology: Topology, client: httpx.Client) -> None:
    body = {"model": "lorikeet-demo", "prompt": "Hello", "max_tokens": 5}
    assert client.post("/v1/completions", json=body).status_code == 200

    def counted() -> bool:
        totals = client.get("/api/tenants/acme/usage").json()["totals"]
        return bool(totals["requests"] >= 1 and totals["completion_tokens"] >= 1)

    topology.eventually("usage is counted", counted)


def test_hosts_are_seen(topology: Topology, client: httpx.Client) -> None:
    hosts = topology.eventually("the host reports", lambda: client.get("/api/tenants/acme/hosts").json())
    pool = hosts[0]["pool"]
    assert sum(pool[name] for name in ("free", "kv", "cached_prefix", "adapter", "reserved")) == pool["total"]
