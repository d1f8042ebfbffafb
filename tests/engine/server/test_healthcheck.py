"""An engine whose process lives and whose steps stand still is not healthy; neither is one that was stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.server import metrics_server
from lora_engine.server.engine_loop import EngineLoop
from lora_engine.server.metrics_server import MetricsServer, Pages
from lora_engine.start_progress import StartProgress

LIMIT_S = 0.3


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    monkeypatch.setattr(metrics_server, "HUNG_AFTER_S", LIMIT_S)
    progress = StartProgress()
    progress.ready()
    return Pages(progress)


@pytest.fixture
def port(pages: Pages) -> Iterator[int]:
    server = MetricsServer("127.0.0.1", 0, pages)
    server.start()
    yield server.port
    server.stop()


def healthcheck(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "lora_engine", "--healthcheck", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    return done.returncode, done.stdout


def wait_for(status: int, pages: Pages) -> str:
    deadline = time.monotonic() + 20
    while (answer := pages.get("/livez"))[0] != status:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return answer[1]


def test_a_step_that_hangs_is_noticed_and_an_idle_engine_is_healthy(engine, pages: Pages, port: int) -> None:
    loop = EngineLoop(engine, lambda output: None)
    pages.stalled_s = lambda: loop.stalled_s
    go_on = threading.Event()
    step, engine.step = engine.step, lambda: go_on.wait() and step()
    loop.start()
    time.sleep(2 * LIMIT_S)
    assert healthcheck(str(port)) == (0, ""), "it has nothing to do"
    loop.submit(GenerationRequest("r", [1, 2], SamplingParams(max_tokens=3)))
    assert "although requests wait" in wait_for(503, pages)
    status, text = healthcheck(str(port))
    assert status == 1 and "the engine hangs" in text
    assert pages.get("/readyz")[0] == 503 and pages.get("/metrics")[0] == 200
    go_on.set()
    wait_for(200, pages)
    loop.stop()


def test_a_thread_that_hangs_between_two_steps_is_noticed(engine, pages: Pages) -> None:
    """Where it delivers tokens, for example: no step runs, and what arrives is not read."""
    go_on = threading.Event()
    loop = EngineLoop(engine, lambda output: go_on.wait() and None)
    pages.stalled_s = lambda: loop.stalled_s
    loop.start()
    loop.submit(GenerationRequest("r", [1, 2], SamplingParams(max_tokens=3)))
    time.sleep(2 * LIMIT_S)
    assert pages.get("/livez")[0] == 200, "nobody waits"
    loop.submit(GenerationRequest("s", [1, 2], SamplingParams(max_tokens=3)))
    wait_for(503, pages)
    go_on.set()
    wait_for(200, pages)
    loop.stop()


def test_many_short_steps_are_healthy(engine, pages: Pages) -> None:
    loop = EngineLoop(engine, lambda output: None)
    pages.stalled_s = lambda: loop.stalled_s
    engine.has_work = lambda: True
    loop.start()
    deadline = time.monotonic() + 3 * LIMIT_S
    while time.monotonic() < deadline:
        assert pages.get("/livez")[0] == 200
        loop.call(lambda engine: None).result(10)
    loop.stop()


def test_a_stopped_process_and_none_are_not_healthy() -> None:
    code = (
        "from lora_engine.server.metrics_server import MetricsServer, Pages\n"
        "from lora_engine.start_progress import StartProgress\n"
        "progress = StartProgress(); progress.ready(); server = MetricsServer('127.0.0.1', 0, Pages(progress))\n"
        "server.start(); print(server.port, flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:  # type: ignore[call-overload]
        port = process.stdout.readline().strip()
        assert healthcheck(port) == (0, "")
        process.send_signal(signal.SIGSTOP)
        status, text = healthcheck(port)
        assert status == 1 and "does not answer" in text
        process.send_signal(signal.SIGCONT)
        assert healthcheck(port) == (0, "")
        process.kill()
    assert healthcheck(port)[0] == 1


def test_the_check_loads_little_and_its_usage_is_shown() -> None:
    assert healthcheck()[0] == healthcheck("port")[0] == 2
    code = "import runpy, sys; sys.argv = ['x', '--healthcheck', '1']\n"
    code += "try: runpy.run_module('lora_engine', run_name='__main__')\n"
    code += "except SystemExit: print(sorted({'torch', 'numpy', 'grpc'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
