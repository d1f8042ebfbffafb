"""docs/tutorial.md, block by block as it stands, against the platform that `make run` starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lorikeet_testing.launched import ROOT, Access

BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETTINGS = ("export URL=", "export KEY=", "export API=")


def blocks() -> list[tuple[str, str]]:
    return [(kind, text) for kind, text in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text())]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What a reader has: a checkout with its environment, in which `var` is writable."""
    (tmp_path / "var").mkdir()
    (tmp_path / "demo").symlink_to(ROOT / "demo")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    yield tmp_path


def test_every_block_works_and_the_second_version_answers(folder: Path, access: Access) -> None:
    reader = {
        **os.environ,
        "URL": access.url,
        "KEY": access.key,
        "API": f"{access.url}/api/tenants/acme",
        # Two torch processes beside an engine on two cores: one thread each.
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for kind, text in blocks():
        if kind == "python":
            (folder / "var" / "train_greeter.py").write_text(text)
            continue
        lines = [line for line in text.splitlines() if not line.startswith(SETTINGS)]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=reader, capture_output=True,
            text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        if "/v1/chat/completions" in text:
            assert "Greetings from my first adapter" in json.loads(done.stdout)["choices"][0]["message"]["content"]
