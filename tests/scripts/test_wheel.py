"""A wheel has the built console and its version; installed alone, its commands start the platform."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane.core.config import REPOSITORY
from lorikeet_version import commit, release

PACKAGES = {"control_plane", "lorikeet_cli", "lora_engine", "lora_kernels", "lorikeet_version"}
START_S = 60.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
    subprocess.run([*command, "--directory", str(folder)], cwd=REPOSITORY, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


def test_the_wheel_has_every_package_the_console_and_the_commit(wheel: Path) -> None:
    assert wheel.name == f"lorikeet-{release()}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        written = archive.read("lorikeet_version/commit.txt").decode()
        page = archive.read("control_plane/console_files/index.html").decode()
        commands = archive.read(f"lorikeet-{release()}.dist-info/entry_points.txt").decode()
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, f"lorikeet-{release()}.dist-info"}
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?\n", written)
    bundles = re.findall(r'(?:src|href)="/(assets/[^"]+)"', page)
    assert bundles and {f"control_plane/console_files/{name}" for name in bundles} <= set(names)
    assert {line.partition(" ")[0] for line in commands.splitlines()[1:]} == {
        "lorikeet", "lorikeet-manage", "lorikeet-serve", "lora-engine",
    }  # fmt: skip
    sources = {
        str(path.relative_to(REPOSITORY / root))
        for root in ("platform", "inference_engine", "kernels")
        for path in (REPOSITORY / root).rglob("*.py")
    }
    assert sources <= set(names)


def test_the_source_distribution_builds_the_same_wheel(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml", "build_hook.py", "frontend/dist/index.html", "inference_engine/lorikeet_version/commit.txt",
    } <= names  # fmt: skip
    assert not any(name.startswith(("tests/", "var/", "demo/", ".venv")) or "node_modules" in name for name in names)


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """Return the programs of an environment with the wheel and, of this environment, all packages but Lorikeet."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = (venv / "lib").glob("python*/site-packages")
    (outer,) = {path for path in sys.path if path.endswith("site-packages") and (Path(path) / "django").is_dir()}
    (site / "dependencies.pth").write_text(f"{outer}\n")
    yield venv / "bin"


@pytest.mark.long
def test_installed_it_serves_the_console_and_says_its_version(installed: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    version = run(str(installed / "lorikeet"), "--version").removeprefix("lorikeet ")
    assert version.startswith(f"{release()}+") and version.removesuffix(".dirty").rpartition("+")[2][:7] in commit()
    assert run(str(installed / "lora-engine"), "--version") == version
    place = run(str(installed / "python"), "-c", "import control_plane; print(control_plane.__file__)")
    assert place.startswith(str(tmp_path / "venv"))
    run(str(installed / "lorikeet-manage"), "migrate", "--no-input")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    web = subprocess.Popen([str(installed / "lorikeet-serve"), "--port", str(port)], cwd=tmp_path, env=home)
    try:
        assert version in until_answered(f"http://127.0.0.1:{port}/version", web)
        page = until_answered(f"http://127.0.0.1:{port}/", web)
        (script,) = re.findall(r'type="module"[^>]* src="(/assets/[^"]+)"', page)
        assert "import" in until_answered(f"http://127.0.0.1:{port}{script}", web)
    finally:
        web.terminate()
        web.wait()
    assert (tmp_path / ".local" / "share" / "lorikeet" / "lorikeet.sqlite3").is_file()


def until_answered(url: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_S
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while True:
        assert process.poll() is None, "the web process has ended"
        try:
            with opener.open(url, timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
