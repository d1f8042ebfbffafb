"""Short-lived certificates of hosts under load: they are renewed in time, and one that expired is replaced by a token.

Two real engines joined with certificates of 100 seconds, of which the last third is longer than the interval of the
task that renews them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.web import ROOT, WebProcess, eventually, free_port

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.services]
LIFETIME_S = 100
SECOND = timedelta(seconds=1)
MODEL = "lorikeet-demo"
TOKEN = """
import django; django.setup()
from datetime import timedelta
from control_plane.identity.access.actor import SYSTEM
from control_plane.fleet.joining.join_tokens import create_token
print(create_token(actor=SYSTEM, host_name="{host}", lifetime=timedelta(hours=1))[1])
"""


class Fleet:
    """Two hosts that joined, and a web process with its workers inside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: dict[str, EngineProcess] = {}
        self.ports = {name: free_port() for name in ("gpu1", "gpu2")}
        self.web = WebProcess(folder / "var", "", {"LORIKEET_HOST_CERTIFICATE_S": str(LIFETIME_S)})
        self.web.seed(adapters=False)
        self.web.start()

    def join(self, name: str, *, again: bool = False) -> None:
        """Start a host's engine with a token, which names the host if it is to be replaced."""
        printed = self.web.run("-c", TOKEN.format(host=name if again else ""))
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        options = ("--listen", f"127.0.0.1:{self.ports[name]}", "--host-name", name, "--model-name", MODEL)
        token = ("--join", self.web.url, "--token", printed.strip())
        self.engines[name] = EngineProcess(ROOT / "demo" / "model", folder, *options, *token)

    def host(self, name: str) -> dict[str, Any]:
        rows = self.web.query(f"SELECT * FROM hosts_enginehost WHERE name = '{name}' AND active")
        return rows[0] if rows else {"state": "absent"}

    def is_online(self, name: str) -> bool:
        return bool(self.host(name)["state"] == "online")

    def expires(self, name: str) -> datetime:
        at: datetime = self.host(name)["certificate_expires_at"]
        return at


def body(number: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"Tell me about river number {number % 12} and"}]
    return {"model": MODEL, "messages": messages, "max_tokens": (8, 32)[number % 2], "temperature": 0}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path)
    try:
        for name in made.ports:
            made.join(name)
        eventually(lambda: all(map(made.is_online, made.ports)), 60, what="two hosts")
        yield made
    finally:
        made.web.stop()
        for engine in made.engines.values():
            engine.end()


@pytest.mark.timeout(900)
def test_certificates_expire(fleet: Fleet) -> None:
    load = Load(fleet.web.url, fleet.web.tenants["acme"].key, body, ("whole", "stream", "socket"))
    with load.running():
        first = {name: fleet.expires(name) for name in fleet.ports}
        eventually(lambda: datetime.now(UTC) > max(first.values()), 2 * LIFETIME_S, what="the first expiry")
        assert all(fleet.expires(name) > first[name] for name in fleet.ports), "renewed"
        assert all(map(fleet.is_online, fleet.ports))
        load.progress()
        # A host that stands still answers no renewal.
        fleet.engines["gpu2"].signal(signal.SIGSTOP)
        # Certificates have whole seconds, and are valid to the end of the last one.
        eventually(lambda: datetime.now(UTC) > fleet.expires("gpu2") + SECOND, 2 * LIFETIME_S, what="its expiry")
        fleet.engines["gpu2"].signal(signal.SIGCONT)
        load.progress()
        assert not fleet.is_online("gpu2"), "nobody may believe an expired certificate"
        fleet.engines["gpu2"].end()
        fleet.join("gpu2", again=True)
        eventually(lambda: fleet.is_online("gpu2"), 60, what="the host with a new certificate")
        load.progress()
    report(
        "host_certificate_expires",
        {"": load},
        "certificates of 100 s: renewed in time; one expires while its host stands still; the host joins again",
        engine="demo model",
    )
    assert load.failures == []
    check_ledger(fleet.web, load.answers)
