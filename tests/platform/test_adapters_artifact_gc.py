"""The collector against uploads of the same contents, as processes of their own on PostgreSQL."""

from __future__ import annotations

import json
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.collecting import LEAST
from lorikeet_testing.forked import run_forked
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


def begin(pool: ThreadPoolExecutor, env: dict[str, str], *arguments: str) -> Future[Any]:
    command = ["lorikeet_testing.collecting", *arguments]
    return pool.submit(run_forked, command, env=env, folder=ROOT, timeout=240)


def result(running: Future[Any]) -> Any:
    done = running.result()
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_nothing_that_is_wanted_is_removed(env: dict[str, str]) -> None:
    with ThreadPoolExecutor(3) as pool:
        result(begin(pool, env, "prepare"))
        uploading = [begin(pool, env, "upload", name) for name in ("one", "two")]
        removed = result(begin(pool, env, "collect"))["removed"]
        uploaded = [result(running)["uploads"] for running in uploading]
    print(f"{removed} removed, {uploaded} uploaded")
    assert removed >= LEAST, "the collector has to have met contents that were wanted again later"
    assert min(uploaded) >= LEAST
