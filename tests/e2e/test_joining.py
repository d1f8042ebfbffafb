"""Two machines join over TLS with a command each: real engines, a real web process, and what becomes of all three."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.web import ROOT, WebProcess, eventually, free_port

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE

pytestmark = pytest.mark.e2e
TOKENS = """
import django; django.setup()
from datetime import timedelta
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.joining.join_tokens import create_token
for _ in range(2): print(create_token(actor=SYSTEM, host_name="", lifetime=timedelta(hours=1))[1])
"""
REVOKE = """
import django; django.setup()
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.joining.joining import revoke_host
revoke_host(actor=SYSTEM, name="gpu2")
"""


class Fleet:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: dict[str, EngineProcess] = {}
        self.ports = {name: free_port() for name in ("gpu1", "gpu2", "late")}
        self.web = WebProcess(folder / "var", "")
        self.web.seed(adapters=False)
        self.web.start()

    def program(self, text: str) -> list[str]:
        return self.web.run("-c", text).split()

    def engine(self, name: str, *options: str) -> EngineProcess:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        at = ("--listen", f"127.0.0.1:{self.ports[name]}", "--host-name", name, "--model-name", "demo")
        started = EngineProcess(ROOT / "demo" / "model", folder, *at, "--join", self.web.url, *options)
        self.engines[name] = started
        return started

    def hosts(self) -> dict[str, Any]:
        return {row["name"]: row for row in self.web.query("select * from hosts_enginehost where active")}

    def online(self, *names: str) -> bool:
        hosts = self.hosts()
        return all(name in hosts and hosts[name]["state"] == "online" for name in names)

    def placed(self) -> set[str]:
        """Where the adapter is, in the engine process that runs there now."""
        ready = "where placement.phase = 'ready' and placement.boot_id = host.boot_id and host.state = 'online'"
        joined = "placements_placement placement join hosts_enginehost host on host.id = placement.host_id"
        return {row["name"] for row in self.web.query(f"select host.name from {joined} {ready}")}

    def ask(self, words: str = "Hello") -> httpx.Response:
        body = {"model": "demo", "prompt": words, "max_tokens": 3}
        headers = self.web.tenants["acme"].bearer
        return httpx.post(f"{self.web.url}/v1/completions", json=body, headers=headers, trust_env=False, timeout=30)

    def answers(self) -> bool:
        return self.ask().status_code == 200


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    made = Fleet(tmp_path_factory.mktemp("joining"))
    try:
        first, second = made.program(TOKENS)
        made.engine("gpu1", "--token", first, "--zone", "rack-1")
        made.engine("gpu2", "--token", second, "--zone", "rack-1")
        eventually(lambda: made.online("gpu1", "gpu2"), 60, what="two hosts")
        made.engine("late", "--token", second)  # used
        yield made
    finally:
        made.web.stop()
        for engine in made.engines.values():
            engine.end()


def test_they_serve(fleet: Fleet) -> None:
    eventually(fleet.answers, 30, what="an answer")
    assert {answer.status_code for answer in (fleet.ask(f"words {n}") for n in range(6))} == {200}
    said = [host["description"] for host in fleet.hosts().values()]
    # SQLite gives JSON back as its text, PostgreSQL as what it says.
    zones = [(json.loads(each) if isinstance(each, str) else each)["zone"] for each in said]
    assert zones == ["rack-1", "rack-1"]


def test_a_used_token_lets_nobody_join(fleet: Fleet) -> None:
    late = fleet.engines["late"]
    assert late.wait(30) == 2
    assert "has been used already. Ask an operator for a new one" in late.log.read_text()


def test_a_host_comes_back_without_a_token_and_finds_a_web_process_that_started_anew(fleet: Fleet) -> None:
    boot = fleet.hosts()["gpu1"]["boot_id"]
    fleet.engines["gpu1"].signal(signal.SIGTERM)
    assert fleet.engines["gpu1"].wait(30) == 0
    fleet.web.stop()
    fleet.engine("gpu1")
    fleet.web.start()
    eventually(lambda: fleet.online("gpu1", "gpu2") and fleet.hosts()["gpu1"]["boot_id"] != boot, 60, what="gpu1")
    assert fleet.answers()


def test_an_adapter_comes_from_the_other_host_where_there_is_no_store(fleet: Fleet) -> None:
    adapter = ROOT / "demo" / "adapters" / "pirate"
    files = [("files", (name, (adapter / name).read_bytes())) for name in (CONFIG_FILE, WEIGHTS_FILE)]
    bearer = fleet.web.tenants["acme"].bearer
    path = f"{fleet.web.url}/api/tenants/acme/uploads"
    sent = httpx.post(path, data={"name": "pirate", "base_model": "demo"}, files=files, headers=bearer, trust_env=False)
    assert sent.status_code == 202, sent.text
    eventually(lambda: fleet.placed() == {"gpu1", "gpu2"}, 60, what="the adapter on both")
    boot = fleet.hosts()["gpu2"]["boot_id"]
    fleet.engines["gpu2"].signal(signal.SIGTERM)
    assert fleet.engines["gpu2"].wait(30) == 0
    shutil.rmtree(fleet.folder / "gpu2" / "data" / "adapters")
    store = fleet.web.var / "artifacts"
    store.rename(store.with_name("elsewhere"))
    try:
        fleet.engine("gpu2")
        eventually(lambda: fleet.hosts()["gpu2"]["boot_id"] != boot, 60, what="gpu2")
        eventually(lambda: fleet.placed() == {"gpu1", "gpu2"}, 60, what="the adapter on gpu2 again")
    finally:
        store.with_name("elsewhere").rename(store)
    assert [*(fleet.folder / "gpu2" / "data" / "adapters").rglob(WEIGHTS_FILE)]


def test_a_revoked_host_is_left_at_once_and_the_other_goes_on(fleet: Fleet) -> None:
    log = fleet.folder / "gpu2" / "engine.log"

    def last_session(word: str) -> bool:
        return word in [line for line in log.read_text().splitlines() if "session of" in line][-1]

    # It is told of an adapter by another call: the session with its new process may come a moment later.
    eventually(lambda: last_session("began"), 15, what="a session with it")
    fleet.program(REVOKE)
    eventually(lambda: last_session("ended"), 15, what="the end of its session")
    assert {fleet.ask(f"words {n}").status_code for n in range(4)} == {200}
    host = fleet.hosts()["gpu2"]
    assert host["revoked_at"] and not host["credential"]
    fleet.engines["gpu2"].signal(0)  # it runs, and nobody calls it
