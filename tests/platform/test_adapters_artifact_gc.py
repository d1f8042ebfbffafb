"""The collector against uploads of the same contents, as processes of their own on PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.collecting import LEAST
from lorikeet_testing.web import ROOT, SOURCE_ROOTS, new_installation

pytestmark = pytest.mark.services


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("LORIKEET_")},
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in SOURCE_ROOTS),
        "LORIKEET_VAR_DIR": str(tmp_path),
        "LORIKEET_ENGINE_HOSTS": f"local=unix:{tmp_path}/none.sock",
        **new_installation(),
    }


def begin(env: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lorikeet_testing.collecting", *arguments]
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> Any:
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0, error[-4000:]
    return json.loads(out)


def test_nothing_that_is_wanted_is_removed(env: dict[str, str]) -> None:
    result(begin(env, "prepare"))
    uploading = [begin(env, "upload", name) for name in ("one", "two")]
    removed = result(begin(env, "collect"))["removed"]
    uploaded = [result(process)["uploads"] for process in uploading]
    print(f"{removed} removed, {uploaded} uploaded")
    assert removed >= LEAST, "the collector has to have met contents that were wanted again later"
    assert min(uploaded) >= LEAST
