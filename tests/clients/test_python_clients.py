"""Real client libraries with tools and structured answers, against the demo model on a real engine.

Each is installed, pinned, into an environment of its own, and runs a program of `tests/clients/python`: exit status 0
is what is to be shown. They need a package index, so they are a part of `make test-long`; openai-python's program runs
in the tests' own environment, in every run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from lorikeet_testing.launched import ROOT, Access

PROGRAMS = Path(__file__).parent / "python"
CLIENTS = {
    "langchain": ("langchain-openai==1.7.3", "langchain-core==1.7.2"),
    "instructor": ("instructor==1.17.0",),
    "pydantic_ai": ("pydantic-ai-slim[openai]==2.38.0",),
    "litellm": ("litellm==1.83.0",),
}
SECONDS = 120.0
INSTALL_SECONDS = 240.0


def run(python: str, client: str, access: Access) -> None:
    own = {"LORIKEET_URL": access.url, "LORIKEET_KEY": access.key, "NO_PROXY": "127.0.0.1"}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LORIKEET_", "PYTHON"))} | own
    program = str(PROGRAMS / f"use_{client}.py")
    done = subprocess.run([python, program], env=env, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_openai_python(access: Access) -> None:
    run(sys.executable, "openai", access)


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
    run(python, client, access)
