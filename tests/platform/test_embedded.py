"""The web process with its worker inside, for real: uploads wait, survive a kill, and the process stops cleanly."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.web import ROOT, STOP_S, WebProcess, eventually

pytestmark = pytest.mark.embedded


@pytest.fixture
def web(tmp_path: Path) -> Iterator[WebProcess]:
    process = WebProcess(tmp_path / "var", f"local=unix:{tmp_path}/engine.sock")
    process.seed()
    process.start()
    yield process
    if process.process is not None:
        process.kill()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[FakeEngineThread]:
    thread = FakeEngineThread(f"unix:{tmp_path}/engine.sock")
    yield thread
    thread.close()


def send(web: WebProcess, name: str, seed: int = 0) -> str:
    files = [("files", (file, content)) for file, content in adapter_files(seed=seed).items()]
    access = web.tenants["acme"]
    url = f"{web.url}/api/tenants/acme/uploads"
    answer = httpx.post(url, data={"name": name}, files=files, headers=access.bearer, trust_env=False, timeout=30)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def read(web: WebProcess, path: str) -> Any:
    headers = web.tenants["acme"].bearer
    return httpx.get(f"{web.url}/api/tenants/acme/{path}", headers=headers, trust_env=False, timeout=30).json()


def test_upload_waits_for_the_engine_and_survives_a_kill(web: WebProcess, tmp_path: Path) -> None:
    upload = send(web, "late")
    waiting = eventually(lambda: read(web, f"uploads/{upload}")["reason"], what="a reason to wait")
    assert waiting["code"] == "waiting_for_host"

    web.kill()
    web.start()
    assert read(web, f"uploads/{upload}")["state"] == "received"

    engine = FakeEngineThread(f"unix:{tmp_path}/engine.sock")
    try:
        eventually(lambda: read(web, f"uploads/{upload}")["state"] == "accepted", 60, what=f"accepted {web.output()}")
        web.wait_until_ready("late")
        assert read(web, "adapters/late")["live_version"] == 1
    finally:
        engine.close()


def test_killed_while_validating(web: WebProcess, engine: FakeEngineThread) -> None:
    eventually(lambda: [host["state"] for host in read(web, "hosts")] == ["online"], what="the host")
    # More than are checked at once: the last are not decided before the kill, however late it comes.
    uploads = [send(web, f"many-{index}", seed=index) for index in range(8)]
    web.kill()
    states = {row["state"] for row in web.query("SELECT state FROM uploads_upload WHERE adapter_name LIKE 'many-%'")}
    assert states & {"received", "validating"}, "killed too late to show anything"
    web.start()
    for upload in uploads:
        eventually(lambda upload=upload: read(web, f"uploads/{upload}")["state"] == "accepted", 60, what=web.output())
    web.wait_until_ready(*(f"many-{index}" for index in range(8)))
    versions = web.query("SELECT digest FROM registry_adapterversion WHERE adapter_id IN "
                         "(SELECT id FROM registry_adapter WHERE name LIKE 'many-%')")  # fmt: skip
    assert len(versions) == 8


def test_one_process_per_folder(web: WebProcess) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "control_plane.serve", "--port", "0"],
        env=web.env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode != 0
    assert "LORIKEET_REDIS_URL" in second.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stops_cleanly(web: WebProcess, engine: FakeEngineThread, number: signal.Signals) -> None:
    send(web, "last")
    assert web.process is not None
    began = time.monotonic()
    web.process.send_signal(number)
    web.process.wait(STOP_S)
    assert time.monotonic() - began < 10
    output = web.output()
    assert "Application shutdown complete" in output
    assert "did not end within" not in output
    assert "Traceback" not in output
    web.process = None
