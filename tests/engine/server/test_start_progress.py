"""A start says what it is doing, to the log and to whoever asks the metrics port."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import httpx
import pytest
import torch

from lora_engine.server.metrics_server import MetricsServer, Pages
from lora_engine.server.process import main
from lora_engine.start_progress import StartProgress, process_start


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_phases_are_timed_and_logged_every_other_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    progress = StartProgress(clock, began=97.0)
    with progress.phase("weights") as share:
        for step in range(1, 11):
            clock.now += 0.5
            share(step / 10)
    with progress.phase("decode graphs"):
        clock.now += 1.5
    progress.ready()
    assert [record.message for record in caplog.records] == [
        "start: weights, 40 %",
        "start: weights, 80 %",
        "start: weights took 5.0 s",
        "start: decode graphs took 1.5 s",
        "ready after 9.5 s (weights 5.0, decode graphs 1.5)",
    ]


def test_readyz_says_how_far_it_is_until_it_is_ready() -> None:
    clock = Clock()
    progress = StartProgress(clock)
    pages = Pages(progress)
    server = MetricsServer("127.0.0.1", 0, pages)
    server.start()
    try:
        with (
            httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client,
            progress.phase("weights") as share,
        ):
            share(0.25)
            clock.now += 2
            asked = client.get("/readyz")
            assert asked.status_code == 503
            assert json.loads(asked.text) == {
                "ready": False, "seconds": 2.0, "phases": [{"name": "weights", "done": 0.25, "seconds": 2.0}],
            }  # fmt: skip
            assert client.get("/livez").status_code == 200
        progress.ready()
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
            assert client.get("/readyz").status_code == 200
            assert client.get("/nothing").status_code == 404
    finally:
        server.stop()


def test_too_little_memory_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*_arguments: object, **_settings: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nMore of it")

    monkeypatch.setattr("lora_engine.server.process.load_model", load)
    listen = f"unix:{tmp_path}/engine.sock"
    assert main(["--model", str(tmp_path), "--data-dir", str(tmp_path / "data"), "--listen", listen]) == 2
    said = capsys.readouterr().err
    assert "too little free memory" in said and "--max-running 256" in said and "lower --gpu-memory-fraction" in said
    assert "More of it" not in said


def test_the_time_before_python_counts() -> None:
    assert 0.0 < time.monotonic() - process_start() < 3600 * 24
