"""`make run` on this machine: starts, says where it is, survives a dead engine, stops without a trace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from lorikeet_testing.launched import LOOPBACK, ROOT, Access, Launched
from lorikeet_testing.web import free_port

SECOND_START_S = 15.0


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return condition()


def answers(access: Access) -> bool:
    """Whether an adapter (not only the base model) completes a prompt."""
    with httpx.Client(base_url=access.url, headers=access.bearer, timeout=20, trust_env=False) as client:
        try:
            model = client.get("/v1/models").json()["data"][-1]["id"]
            body = {"model": model, "prompt": "Hello", "max_tokens": 4}
            return client.post("/v1/completions", json=body).status_code == 200
        except (httpx.TransportError, KeyError, IndexError):
            return False


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def platform(tmp_path: Path, port: int) -> Iterator[Launched]:
    made = Launched(tmp_path / "var", port)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    assert eventually(lambda: made.children() == {}, 15)


@pytest.mark.alone
def test_start_stop_and_a_quick_second_start(platform: Launched, tmp_path: Path, port: int) -> None:
    first = platform.start()
    assert answers(first)
    assert platform.listening_addresses() == {LOOPBACK}
    for log in (platform.var / "log").iterdir():
        written = log.read_text(errors="replace")
        assert first.key not in written, f"{log} holds the API key"
    curl = platform.output.split("Try it:")[1].split("Ctrl-C")[0]
    if shutil.which("curl"):
        done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=False)
        assert "data: [DONE]" in done.stdout, done.stdout + done.stderr
    stop_in_the_middle_of_a_stream(platform, first)
    assert platform.children() == {}
    assert not (tmp_path / "var" / "run" / "engine.sock").exists()

    again = Launched(tmp_path / "var", port)
    try:
        second = again.start()
        assert again.started_in_s < SECOND_START_S
        assert (second.email, second.password) == (first.email, first.password)
        assert answers(second)
        assert again.stop(signal.SIGTERM) == 0
        assert again.children() == {}
    finally:
        if again.process is not None and again.process.poll() is None:
            again.process.kill()


def stop_in_the_middle_of_a_stream(platform: Launched, access: Access) -> None:
    body = {"model": "lorikeet-demo", "prompt": "Once", "max_tokens": 900, "stream": True, "ignore_eos": True}
    client = httpx.Client(base_url=access.url, headers=access.bearer, timeout=30, trust_env=False)
    with client, client.stream("POST", "/v1/completions", json=body) as stream:
        next(stream.iter_lines())
        started = time.monotonic()
        assert platform.stop(signal.SIGINT) == 0
    assert time.monotonic() - started < 15


@pytest.fixture(scope="module")
def two_bases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    """As `make run` without settings: a second engine with the hybrid model. The last test ends it."""
    platform = Launched(tmp_path_factory.mktemp("two") / "var", free_port(), {"HYBRID": "1"}, migrated=True)
    platform.start()
    yield platform
    assert platform.process is not None
    if platform.process.poll() is None:
        platform.process.kill()
        platform.process.wait()
    assert eventually(lambda: platform.children() == {}, 15), platform.children()


def test_a_second_base_model(two_bases: Launched) -> None:
    access = two_bases.access()
    asked = {
        "lorikeet-demo": "The capital of Japan is Tokyo.",
        "lorikeet-demo-hybrid": "The capital of Japan is Tokyo.",
        "pirate-hybrid": "Arr, matey! The capital o' Japan be Tokyo.",
        "json-hybrid": '{"topic": "countries", "country": "Japan", "capital": "Tokyo"}',
    }
    with httpx.Client(base_url=access.url, headers=access.bearer, timeout=60, trust_env=False) as client:
        for model, answer in asked.items():
            messages = [{"role": "user", "content": "What is the capital of Japan?"}]
            body = {"model": model, "temperature": 0, "messages": messages}
            said = client.post("/v1/chat/completions", json=body).raise_for_status().json()
            assert said["choices"][0]["message"]["content"] == answer, model
        folder = ROOT / "demo" / "adapters" / "terse"
        config = json.loads((folder / "adapter_config.json").read_text()) | {"base_model_name_or_path": "demo/model"}
        files = [
            ("files", ("adapter_config.json", json.dumps(config).encode())),
            ("files", ("adapter_model.safetensors", (folder / "adapter_model.safetensors").read_bytes())),
        ]
        url = f"/api/tenants/{access.tenant}/uploads"
        client.post(url, data={"name": "own"}, files=files).raise_for_status()
        assert eventually(lambda: client.get("/v1/models/own").status_code == 200, 60), "its shapes tell its base"


def test_a_killed_engine_and_a_killed_web_process_come_back(two_bases: Launched) -> None:
    platform, access = two_bases, two_bases.access()
    for name in ("engine", "web"):
        os.kill(platform.child_pid(name), signal.SIGKILL)
        report = platform.wait_for(f"The {name} was ended by SIGKILL", 10)
        assert "log" in report
        platform.wait_for(f"The {name} was started again", 10)
        assert eventually(lambda: answers(access), 60), platform.output + platform.logs()


def test_a_killed_supervisor_leaves_nothing_running(two_bases: Launched) -> None:
    assert two_bases.process is not None
    assert len(two_bases.children()) > 3, "two engines, the web process and the reaper"
    two_bases.process.kill()
    two_bases.process.wait()
    assert eventually(lambda: two_bases.children() == {}, 15), two_bases.children()


def test_a_taken_port_names_the_holder(platform: Launched) -> None:
    with socket.create_server(("127.0.0.1", platform.port)):
        process = platform.launch()
        assert process.wait(20) == 1
    assert eventually(lambda: "make run PORT=" in platform.output, 5), platform.output
    assert f"Port {platform.port} is taken by" in platform.output
    assert str(os.getpid()) in platform.output
    assert "Traceback" not in platform.output


def test_a_second_platform_on_the_same_data_is_refused(launched: Launched, port: int) -> None:
    other = Launched(launched.var, port)
    process = other.launch()
    assert process.wait(20) == 1
    assert eventually(lambda: "already runs" in other.output, 5), other.output
    assert "LORIKEET_VAR_DIR=" in other.output


def test_a_missing_model_is_a_sentence(platform: Launched, tmp_path: Path) -> None:
    lost = Launched(tmp_path / "other", platform.port, {"MODEL": str(tmp_path)})
    process = lost.launch()
    assert process.wait(20) == 1
    assert eventually(lambda: "There is no model in" in lost.output, 5), lost.output


def test_an_engine_that_cannot_start_shows_its_log(platform: Launched, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    failing = Launched(tmp_path / "other", platform.port, {"MODEL": str(broken)})
    process = failing.launch()
    assert process.wait(60) == 1
    assert eventually(lambda: "engine.log" in failing.output, 5), failing.output
    assert failing.children() == {}
