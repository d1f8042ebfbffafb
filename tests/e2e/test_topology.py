"""The production topology by hand: what docker-compose.yml starts, as processes of this machine."""

from __future__ import annotations

import json
import signal
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from lorikeet_testing.compose import ROOT, workers
from lorikeet_testing.monitoring import all_metrics, shown
from lorikeet_testing.topology import Topology
from lorikeet_testing.web import free_port
from prometheus_client.parser import text_string_to_metric_families

LONG_RUNNING = ("engine-cpu", *workers(), "beat", "watcher", "web")
METRICS_TOKEN = "scrape-me"
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    made = Topology(tmp_path_factory.mktemp("topology") / "t", free_port(), {"LORIKEET_METRICS_TOKEN": METRICS_TOKEN})
    made.run("migrate")
    try:
        for service in LONG_RUNNING:
            made.forked = service in workers()[1:]  # which differ in their queues only
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


def scrape(topology: Topology, name: str, token: str = METRICS_TOKEN) -> httpx.Response:
    port = topology.port if name == "web" else topology.metrics_ports[name]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers, trust_env=False, timeout=10)


def series(text: str) -> dict[str, float]:
    """Return the values of a page by name and labels."""
    parsed = (one for family in text_string_to_metric_families(text) for one in family.samples)
    return {f"{one.name}{sorted(one.labels.items())}": one.value for one in parsed}


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_every_process_shows_its_metrics_to_callers_with_the_token(topology: Topology, name: str) -> None:
    page = topology.eventually(f"{name} shows metrics", lambda: scrape(topology, name))
    assert page.status_code == 200
    assert series(page.text)
    for token in ("", "wrong"):
        assert scrape(topology, name, token).status_code == (404 if name == "web" else 401)


def test_what_happened_is_in_the_metrics(topology: Topology, client: httpx.Client) -> None:
    body = {"model": "lorikeet-demo", "prompt": "Hello", "max_tokens": 5}
    assert client.post("/v1/completions", json=body).status_code == 200
    web = series(scrape(topology, "web").text)
    base = "('base_model', 'lorikeet-demo')"
    assert web[f"lorikeet_requests_total[{base}, ('endpoint', 'completions'), ('outcome', 'finished')]"] >= 1
    for name in ("first_token", "request_queue", "inter_token"):
        assert web[f"lorikeet_{name}_seconds_count[{base}]"] >= 1, name
    assert web[f"lorikeet_tokens_total[{base}, ('kind', 'completion')]"] >= 5
    assert web["lorikeet_engine_hosts[('state', 'online')]"] == 1
    assert web["lorikeet_database_pool_connections[]"] >= 1
    assert web["lorikeet_queue_length[('queue', 'system')]"] >= 0
    assert web["lorikeet_usage_watermark_age_seconds[]"] < 60

    def ran() -> bool:
        return series(scrape(topology, "worker-system").text).get(
            "lorikeet_tasks_total[('outcome', 'succeeded'), ('task', 'usage.aggregate')]", 0
        ) > 0  # fmt: skip

    topology.eventually("a task is counted", ran)
    worker = series(scrape(topology, "worker-system").text)
    assert worker["lorikeet_task_wait_seconds_count[('queue', 'system')]"] > 0
    assert worker["lorikeet_tasks_total[('outcome', 'failed'), ('task', 'usage.aggregate')]"] == 0
    assert series(scrape(topology, "beat").text)["lorikeet_tasks_sent_total[('task', 'usage.aggregate')]"] > 0
    count = "lora_engine_completion_tokens_total[]"
    topology.eventually("the engine counts", lambda: series(scrape(topology, "engine-cpu").text)[count] >= 5)


def test_rules_and_dashboards_name_metrics_that_these_processes_show(topology: Topology, client: httpx.Client) -> None:
    """By what is scraped: a name that nothing shows would be an alert that never fires."""

    def missing() -> set[str]:
        pages = (scrape(topology, name).text for name in LONG_RUNNING)
        return all_metrics() - set().union(*map(shown, pages))

    # An engine shows its prediction of first tokens once it has measured steps.
    topology.eventually("all are shown", lambda: not missing())
    assert len(all_metrics()) > 50


def logged(topology: Topology, name: str) -> list[dict[str, Any]]:
    """Return the log lines of a process. Raises for a line that is no JSON."""
    text = (topology.folder / "log" / f"{name}.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


def lines_of(topology: Topology, value: str, field: str = "client_request_id") -> list[dict[str, Any]]:
    return [one for one in logged(topology, "web") if one.get(field) == value]


def test_a_request_has_one_line_with_the_id_that_its_client_sent(topology: Topology, client: httpx.Client) -> None:
    sent = f"proxy-{uuid.uuid4().hex}"
    for stream in (False, True):
        body = {"model": "lorikeet-demo", "prompt": "Hello", "max_tokens": 5, "stream": stream, "ignore_eos": True}
        answer = client.post("/v1/completions", json=body, headers={"X-Request-Id": f"{sent}-{stream}"})
        assert answer.headers["x-request-id"] == f"{sent}-{stream}"
        (line,) = topology.eventually("the line is written", partial(lines_of, topology, f"{sent}-{stream}"))
        assert line["request_id"] == answer.headers["request-id"]
        assert (line["tenant"], line["model"], line["host"]) == ("acme", "lorikeet-demo", "local")
        assert (line["outcome"], line["streamed"], line["completion_tokens"]) == ("finished", stream, 5)
        assert line["first_token_ms"] >= 0
    assert client.get("/api/tenants/acme/keys", headers={"X-Request-Id": sent}).status_code == 200
    (line,) = topology.eventually("the line is written", partial(lines_of, topology, sent, "request_id"))
    assert (line["status"], line["route"], line["tenant"]) == (200, "api/tenants/<slug:tenant>/keys", "acme")


@pytest.mark.parametrize("name", LONG_RUNNING)
def test_every_line_of_every_process_is_json(topology: Topology, client: httpx.Client, name: str) -> None:
    for line in logged(topology, name):
        assert line["time"] and line["level"] and line["message"], line
