"""Every process says of which commit it is."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import lorikeet_version
from lora_engine.server.metrics import HostMetrics
from lora_engine.wire import engine_pb2

RELEASE = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]


def forget() -> None:
    lorikeet_version.build_version.cache_clear()
    lorikeet_version.release.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("value", "version"),
    [
        ("gf66acf9d", f"{RELEASE}+gf66acf9d"),
        ("v0.1.0-3-gf66acf9d-dirty\n", f"{RELEASE}+v0.1.0.3.gf66acf9d.dirty"),
        ('"} 1\nevil 2', f"{RELEASE}+1.evil.2"),
        ("x" * 200, f"{RELEASE}+{'x' * 64}"),
    ],
)
def test_an_image_has_it_in_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, version: str) -> None:
    monkeypatch.setenv(lorikeet_version.VARIABLE, value)
    assert lorikeet_version.build_version() == version
    assert f'version="{version}"' in HostMetrics(engine_pb2.EngineDescription(base_model="m")).text()


def test_a_checkout_asks_git_and_another_project_s_is_not_described(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(lorikeet_version.VARIABLE, raising=False)
    monkeypatch.setattr(lorikeet_version, "_CHECKOUT", tmp_path)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    installed = metadata.version("lorikeet")
    assert lorikeet_version.build_version() == installed, "it is no checkout of this project"
    (tmp_path / "inference_engine").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "7.8.9"\n')
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "First"], check=True)
    commit = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    forget()
    assert lorikeet_version.build_version() == f"7.8.9+{commit}"
    monkeypatch.setenv("PATH", "")
    forget()
    assert lorikeet_version.build_version() == "7.8.9", "without git"


def test_an_installed_package_reads_what_its_build_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(lorikeet_version.VARIABLE, raising=False)
    monkeypatch.setattr(lorikeet_version, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(lorikeet_version, "_PACKAGE", tmp_path)
    (tmp_path / lorikeet_version.COMMIT_FILE).write_text("9be54cee0a1f-dirty\n")
    assert lorikeet_version.build_version() == f"{metadata.version('lorikeet')}+9be54cee0a1f.dirty"

    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    forget()
    assert lorikeet_version.build_version() == "0+9be54cee0a1f.dirty"
