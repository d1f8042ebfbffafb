"""OpenAI's client for Node, from `frontend/node_modules`, against a real web process and a scripted engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import httpx
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.web import ROOT, TenantAccess, WebProcess

from scripts.launch.console import install_console_packages, node_bin_dir


def test_the_suite(tmp_path: Path) -> None:
    install_console_packages()
    engine = FakeEngineThread(f"unix:{tmp_path}/e.sock", Behaviour())
    web = WebProcess(tmp_path / "var", f"local={engine.engine.address}")
    try:
        web.seed()
        web.start()
        web.wait_until_ready("support")
        access = web.tenants["acme"]
        done = _node(web, access, limited_key(web, access))
        assert done.returncode == 0, done.stdout + done.stderr
        assert engine.engine.aborts  # of the stream that was left early
        web.stop()
    finally:
        engine.close()


def _node(web: WebProcess, access: TenantAccess, limited: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": f"{node_bin_dir()}{os.pathsep}{os.environ['PATH']}",
        "OPENAI_BASE_URL": f"{web.url}/v1",
        "OPENAI_API_KEY": access.key,
        "VIEW_KEY": access.view_only_key,
        "LIMITED_KEY": limited,
        "NO_PROXY": "127.0.0.1",
    }
    command = ["node", "--test", "--test-reporter=spec", "tests/openai/client.mjs"]
    return subprocess.run(command, cwd=ROOT / "frontend", env=env, capture_output=True, text=True, timeout=120)


def limited_key(web: WebProcess, access: TenantAccess) -> str:
    """A new key with one request a minute, made as its owner makes it."""
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as http:
        token = http.get("/api/session").json()["csrf_token"]
        login = {"email": access.email, "password": access.password}
        token = http.post("/api/session", json=login, headers={"X-CSRFToken": token}).json()["csrf_token"]
        http.headers["X-CSRFToken"] = token
        made = http.post("/api/tenants/acme/keys", json={"name": "limited"}).json()
        limits = http.put(f"/api/tenants/acme/keys/{made['id']}/limits", json={"requests_per_minute": 1})
        assert limits.status_code == 200
    return str(made["secret"])
