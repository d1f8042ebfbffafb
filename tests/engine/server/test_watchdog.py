"""A step that never ends does not leave a host that answers heartbeats and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading

from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.server.engine_loop import EngineLoop
from lora_engine.server.watchdog import EXIT_STATUS, StepWatchdog


def watched(loop: EngineLoop, limit_s: float = 0.1) -> tuple[StepWatchdog, threading.Event]:
    ended = threading.Event()
    return StepWatchdog(lambda: loop.progress, limit_s, tick_s=0.01, end=ended.set), ended


def test_a_hung_step_ends_the_process(engine, caplog):
    loop = EngineLoop(engine, lambda output: None)
    watchdog, ended = watched(loop)
    go_on = threading.Event()
    step, engine.step = engine.step, lambda: go_on.wait() and step()
    loop.start()
    watchdog.start()
    loop.submit(GenerationRequest("r", [1, 2], SamplingParams(max_tokens=3)))
    assert ended.wait(10)
    assert "A step has run for" in caplog.text
    go_on.set()
    loop.stop()


def test_an_idle_engine_and_many_short_steps_are_not_hung(engine):
    loop = EngineLoop(engine, lambda output: None)
    watchdog, ended = watched(loop)
    loop.start()
    watchdog.start()
    assert not ended.wait(0.3)
    engine.has_work = lambda: True  # steps without end, each of them short
    loop.wake()
    assert not ended.wait(0.5)
    watchdog.stop()
    loop.stop()


def test_the_process_says_where_its_threads_are():
    code = (
        "import time; from lora_engine.server.watchdog import StepWatchdog\n"
        "StepWatchdog(lambda: (1, True), 0.05, tick_s=0.01).start()\n"
        "def the_device_hangs(): time.sleep(60)\n"
        "the_device_hangs()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == EXIT_STATUS
    assert "the_device_hangs" in done.stderr
    assert "to be restarted" in done.stderr
