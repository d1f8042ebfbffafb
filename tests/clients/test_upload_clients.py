"""Real clients of the resumable upload: tus-js-client as the console has it, and Uppy, against `make run`'s server."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from lorikeet_testing.launched import ROOT, Access

from scripts.launch.console import install_console_packages, node_bin_dir

PROGRAMS = Path(__file__).parent / "node"
UPPY = ("@uppy/core@6.3.1", "@uppy/tus@6.0.0")
SECONDS = 120.0
INSTALL_SECONDS = 240.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's pirate, in as many bytes as it has."""
    path, adapter = tmp_path_factory.mktemp("archive") / "adapter.zip", ROOT / "demo" / "adapters" / "pirate"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            archive.write(adapter / name, name)
    return path


@pytest.fixture(scope="module")
def node() -> Path:
    install_console_packages()  # also finds or fetches Node
    return node_bin_dir()


def run(program: str, folder: Path, node: Path, access: Access, archive: Path) -> list[str]:
    """What it has shown; its packages are looked for in the folder."""
    shutil.copyfile(PROGRAMS / program, folder / program)
    env = {
        "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
        "LORIKEET_URL": access.url,
        "LORIKEET_KEY": access.key,
        "LORIKEET_TENANT": access.tenant,
        "ARCHIVE": str(archive),
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [str(node / "node"), program], cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [line.removeprefix("ok: ") for line in done.stdout.splitlines() if line.startswith("ok: ")]


def test_tus_js_client(access: Access, archive: Path, node: Path, tmp_path: Path) -> None:
    """The version that the console uploads with (`frontend/package.json`)."""
    (tmp_path / "node_modules").symlink_to(ROOT / "frontend" / "node_modules")
    assert run("upload_with_tus_js_client.mjs", tmp_path, node, access, archive) == [
        "pieces become a version",
        "creation with the first piece",
        "pause and resume",
        "resume from the address",
        "broken connections",
        "wrong offset",
        "cancel",
        "parallel uploads and deferred lengths are refused by name",
        "keys",
    ]


@pytest.mark.long
def test_uppy(access: Access, archive: Path, node: Path, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    env = {**os.environ, "PATH": f"{node}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", *UPPY],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert run("upload_with_uppy.mjs", tmp_path, node, access, archive) == [
        "several at once",
        "pause and resume",
        "a refusal says why",
    ]
