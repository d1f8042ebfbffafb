"""The demo model on a real engine behind a real web process, for clients that come as programs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lorikeet_testing.web import ROOT, WebProcess

MODEL = "lorikeet-demo"


@contextmanager
def demo_server(folder: Path) -> Iterator[WebProcess]:
    """Until the block ends. The model is called ``MODEL``; there are no adapters."""
    socket = folder / "engine.sock"
    web = WebProcess(folder / "var", f"local=unix:{socket}")
    command = [
        *(sys.executable, "-m", "lora_engine", "--model", str(ROOT / "demo" / "model"), "--model-name", MODEL),
        *("--listen", f"unix:{socket}", "--data-dir", str(folder / "engine"), "--threads", "1"),
    ]
    with (folder / "engine.log").open("ab") as log:
        engine = subprocess.Popen(command, env=web.env, cwd=ROOT, stdout=log, stderr=log)
    try:
        web.seed(adapters=False)
        web.start()
        web.wait_until_ready(MODEL)
        yield web
    finally:
        web.stop()
        engine.terminate()
        engine.wait(20)
