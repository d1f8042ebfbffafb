"""Real client libraries against the demo model on a real engine.

Each is installed, pinned, into an environment of its own, and runs a program of `tests/clients/python` or `node`, which
prints what it has shown: exactly what the table in docs/how-to/clients.md says. They need package registries, so they
are part of `make test-long`; openai-python's program runs in the tests' own environment, in every run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from lorikeet_testing.client_table import promised
from lorikeet_testing.launched import ROOT, Access

from scripts.launch.console import install_console_packages, node_bin_dir

PROGRAMS = Path(__file__).parent
CLIENTS = {
    "langchain": ("langchain==1.4.7", "langchain-openai==1.7.3", "langchain-core==1.7.2"),
    "instructor": ("instructor==1.17.0",),
    "pydantic_ai": ("pydantic-ai-slim[openai]==2.38.0",),
    "litellm": ("litellm==1.83.0",),
}
NODE_CLIENTS = {
    "openai_node": ("openai@6.49.0", "zod@4.6.7"),
    "ai_sdk": ("ai@6.0.326", "@ai-sdk/openai-compatible@2.0.91", "zod@4.6.7"),
}
SECONDS = 120.0
INSTALL_SECONDS = 240.0


def run(command: list[str], client: str, access: Access, cwd: Path | None = None) -> None:
    own = {"LORIKEET_URL": access.url, "LORIKEET_KEY": access.key, "NO_PROXY": "127.0.0.1"}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LORIKEET_", "PYTHON"))} | own
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    shown = [line.removeprefix("ok: ") for line in done.stdout.splitlines() if line.startswith("ok: ")]
    assert sorted(shown) == sorted(promised(client)), "the table in docs/how-to/clients.md says otherwise"


def python_program(client: str) -> str:
    return str(PROGRAMS / "python" / f"use_{client}.py")


def test_openai_python(access: Access) -> None:
    run([sys.executable, python_program("openai")], "openai", access)


def test_the_how_to(access: Access) -> None:
    """Its program as it stands: the demo's adapter calls the tool, and answers with what it returned."""
    page = (ROOT / "docs" / "how-to" / "call-tools.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    program = program.replace("http://127.0.0.1:8000", access.url).replace("lk_…", access.key)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert {"Oslo", "sunny", "21"} <= set(re.findall(r"\w+", done.stdout)), done.stdout


@pytest.mark.long
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_client(client: str, access: Access, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    python = str(tmp_path / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *CLIENTS[client]]
    done = subprocess.run(install, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    run([python, python_program(client)], client, access)


@pytest.mark.long
@pytest.mark.parametrize("client", sorted(NODE_CLIENTS))
def test_node_client(client: str, access: Access, tmp_path: Path) -> None:
    install_console_packages()  # also finds or fetches Node
    os.environ["PATH"] = f"{node_bin_dir()}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "package.json").write_text("{}")
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", *NODE_CLIENTS[client]],
        cwd=tmp_path, capture_output=True, text=True, timeout=INSTALL_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    program = tmp_path / f"use_{client}.mjs"  # packages are looked for beside it
    shutil.copyfile(PROGRAMS / "node" / program.name, program)
    run(["node", str(program)], client, access, tmp_path)
