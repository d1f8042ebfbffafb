"""Every process says of which commit it is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_engine import __version__
from lora_engine.server.metrics import HostMetrics
from lora_engine.wire import build, engine_pb2


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    build.build_version.cache_clear()
    yield
    build.build_version.cache_clear()


@pytest.mark.parametrize(
    ("value", "version"),
    [
        ("gf66acf9d", f"{__version__}+gf66acf9d"),
        ("v0.1.0-3-gf66acf9d-dirty\n", f"{__version__}+v0.1.0.3.gf66acf9d.dirty"),
        ('"} 1\nevil 2', f"{__version__}+1.evil.2"),
        ("x" * 200, f"{__version__}+{'x' * 64}"),
    ],
)
def test_an_image_has_it_in_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, version: str) -> None:
    monkeypatch.setenv(build.VARIABLE, value)
    assert build.build_version() == version
    assert f'version="{version}"' in HostMetrics(engine_pb2.EngineDescription(base_model="m")).text()


def test_a_checkout_asks_git_and_another_project_s_is_not_described(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(build.VARIABLE, raising=False)
    monkeypatch.setattr(build, "_CHECKOUT", tmp_path)
    assert build.build_version() == __version__
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    build.build_version.cache_clear()
    assert build.build_version() == __version__, "it has no engine"
    (tmp_path / "inference_engine").mkdir()
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "First"], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    build.build_version.cache_clear()
    assert build.build_version() == f"{__version__}+{commit}"
    monkeypatch.setenv("PATH", "")
    build.build_version.cache_clear()
    assert build.build_version() == __version__, "without git"
