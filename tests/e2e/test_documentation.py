"""The commands and programs of the README, the tutorial and the how-tos, against the platform that `make run` starts.

`lorikeet_testing/documentation.py` describes the marks of blocks. The blocks of a page run in order, as a reader would
type them in one terminal; what the demo does not have (`https://lorikeet.example.org`, a key, a mail address) is
replaced by the platform's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lorikeet_testing.documentation import ROOT, Block, blocks, pages
from lorikeet_testing.launched import Access

# Seconds of one block.
BLOCK_S = 120
PAGES = [page for page in pages() if any(block.is_run for block in blocks(page))]


class Reader:
    """A reader of a page, with a folder, a terminal and the environment that `make run` made."""

    def __init__(self, folder: Path, access: Access) -> None:
        self.folder, self.access, self.output = folder, access, ""
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, command in (("python", '"$@"'), ("lorikeet", '-m lorikeet_cli "$@"')):
            (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} {command}\n")
            (programs / name).chmod(0o755)
        (folder / "var").mkdir()
        (folder / "demo").symlink_to(ROOT / "demo")
        shutil.copytree(ROOT / "demo" / "uploads" / "emoji", folder / "support")
        shutil.copytree(ROOT / "demo" / "adapters" / "pirate", folder / "support-v2")
        (folder / "system.txt").write_text("You answer for the shop. Be kind, be brief, and never guess. " * 12)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("LORIKEET_")}
        self.env |= {
            "PATH": f"{programs}:{self.env['PATH']}",
            # Two torch processes beside an engine on two cores: one thread each.
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "LORIKEET_PASSWORD": access.password,
            "LORIKEET_KEY": access.key,
        }

    def reads(self, block: Block) -> None:
        """Save or run a block, and check what it prints."""
        text = self.of_this_platform(block.text)
        if name := block.marks.get("file"):
            (self.folder / name).write_text(text)
        elif block.is_run:
            self.output = self.runs(text, block.language, str(block))
            assert block.marks.get("prints", "") in self.output, f"{block} prints:\n{self.output}"
        elif "output" in block.marks:
            assert text == self.output, str(block)

    def runs(self, text: str, language: str = "bash", place: str = "") -> str:
        """Run commands, or a program, and return the standard output. Bash keeps variables for the next block."""
        keep = f"set -aeuo pipefail\n[ ! -e .variables ] || . ./.variables\n{text}\nexport -p > .variables"
        command = [sys.executable, "-c", text] if language == "python" else ["bash", "-c", keep]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BLOCK_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{place}\n{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def of_this_platform(self, text: str) -> str:
        values = {
            "http://127.0.0.1:8000": self.access.url,
            "https://lorikeet.example.org": self.access.url,
            "you@example.org": self.access.email,
            "lk_…": self.access.key,
        }
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)
        return text


@pytest.fixture
def reader(tmp_path: Path, access: Access) -> Reader:
    return Reader(tmp_path, access)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_works(page: str, reader: Reader) -> None:
    if page.startswith("docs/how-to/"):  # they assume a login, and some an adapter
        reader.runs(f"lorikeet login {reader.access.url} --tenant acme --key {reader.access.key}")
        if "support" in (ROOT / page).read_text():
            reader.runs("lorikeet upload support --timeout 60")
    for block in blocks(page):
        reader.reads(block)
