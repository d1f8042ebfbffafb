"""kill -9 of a validation worker of the production topology: another takes its upload within seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import httpx
import psycopg
import pytest
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.topology import Topology
from lorikeet_testing.web import free_port

# Starts seven processes, and waits for a claim to end.
pytestmark = pytest.mark.long
WORKERS = ("worker-validation", "worker-validation-2")


@pytest.fixture
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    made = Topology(tmp_path_factory.mktemp("killed") / "t", free_port())
    made.run("migrate")
    engine = FakeEngineThread(f"unix:{made.folder}/run/engine.sock")
    try:
        for service in ("web", "watcher", "beat", "worker-system", "worker-staging"):
            made.start(service)
        made.start("worker-validation", WORKERS[0])
        yield made
    finally:
        made.stop()
        engine.close()


def test_another_worker_takes_the_upload(topology: Topology) -> None:
    topology.eventually("web answers", lambda: httpx.get(f"{topology.url}/livez", trust_env=False).status_code == 200)
    create = ("manage.py", "create_tenant", "acme", "--owner", "ada@example.org", "--key", "first")
    key = next(word for word in topology.run("web", sys.executable, *create).split() if word.startswith("lk_"))
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx.Client(base_url=topology.url, headers=headers, timeout=60, trust_env=False) as client,
        psycopg.connect(topology.database_url, autocommit=True) as database,
    ):

        def upload(name: str, seed: int) -> str:
            files = [("files", (file, content)) for file, content in adapter_files(seed=seed).items()]
            answer = client.post("/api/tenants/acme/uploads", data={"name": name}, files=files)
            assert answer.status_code == 202, answer.text
            return str(answer.json()["id"])

        def state(of: str) -> str:
            row = database.execute("SELECT state FROM uploads_upload WHERE id = %s", [of]).fetchone()
            assert row is not None
            return str(row[0])

        first = upload("first", 1)
        topology.eventually("the first worker works", lambda: state(first) == "accepted", 120)
        second = upload("second", 2)
        while state(second) == "received":
            time.sleep(0.005)
        topology.kill(WORKERS[0])
        killed = time.monotonic()
        assert state(second) == "validating", "killed too late to show anything"
        topology.start("worker-validation", WORKERS[1])
        topology.eventually("the other worker takes it", lambda: state(second) == "accepted", 90)
        took = time.monotonic() - killed
    print(f"accepted {took:.1f} s after the kill")
    assert took < 40, "a claim is 12 s; the rest is the start of a worker on a busy machine"
