"""The demo model on a real engine behind a real web process, for clients that come as programs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_testing.web import ROOT, WebProcess

MODEL, TOOL_CALLER = "lorikeet-demo", "tool-caller"


@contextmanager
def demo_server(folder: Path) -> Iterator[WebProcess]:
    """Until the block ends. The model is called ``MODEL``; of the demo's adapters there is ``TOOL_CALLER``."""
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
        _upload(web, ROOT / "demo" / "adapters" / TOOL_CALLER)
        web.wait_until_ready(TOOL_CALLER)
        yield web
    finally:
        web.stop()
        engine.terminate()
        engine.wait(20)


def _upload(web: WebProcess, folder: Path) -> None:
    files = [("files", (name, (folder / name).read_bytes())) for name in (CONFIG_FILE, WEIGHTS_FILE)]
    tenant = web.tenants["acme"]
    answer = httpx.post(
        f"{web.url}/api/tenants/acme/uploads",
        data={"name": folder.name},
        files=files,
        headers=tenant.bearer,
        trust_env=False,
    )
    assert answer.is_success, answer.text
