"""A full run must not be able to pass by skipping."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def run_pytest(folder: Path, *arguments: str, full: bool = True) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LORIKEET_FULL_RUN": "1" if full else "", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no:django", "-p", "no:cacheprovider", *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: x\n")
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_runs(): pass\n"
        "def test_skips(): pytest.skip('no browser')\n"
        "@pytest.mark.gpu\ndef test_gpu(): pass\n"
    )
    return tmp_path


def test_a_skip_fails_the_full_run_and_is_named(suite: Path) -> None:
    done = run_pytest(suite)
    assert done.returncode == 1
    assert "no browser" in done.stdout


def test_a_skip_in_a_worker_fails_the_full_run(suite: Path) -> None:
    done = run_pytest(suite, "-n", "1")
    assert done.returncode == 1
    assert "no browser" in done.stdout


def test_deselecting_by_mark_is_no_skip(suite: Path) -> None:
    assert run_pytest(suite, "-m", "not gpu", "-k", "not skips").returncode == 0


def test_a_skip_is_allowed_outside_the_full_run(suite: Path) -> None:
    assert run_pytest(suite, full=False).returncode == 0
