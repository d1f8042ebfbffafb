"""The production topology by hand: what docker-compose.yml starts, as processes of this machine."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import httpx
import pytest
from lorikeet_testing.compose import ROOT, workers
from lorikeet_testing.topology import Topology
from lorikeet_testing.web import free_port

LONG_RUNNING = ("engine-cpu", *workers(), "beat", "watcher", "web")
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    made = Topology(tmp_path_factory.mktemp("topology") / "t", free_port())
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
