"""The paths of a checkout, and checks that they can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from scripts.launch.progress import Stop

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
FRONTEND = ROOT / "frontend"
GIB = 1 << 30


def var_dir() -> Path:
    """Return the folder of all run-time data: `LORIKEET_VAR_DIR`, by default `var/`."""
    return Path(os.environ.get("LORIKEET_VAR_DIR") or ROOT / "var").resolve()


def venv_python() -> Path:
    return VENV / "bin" / "python"


def require_writable(folder: Path, variable: str = "") -> None:
    """Create a folder and raise Stop unless a file can be written there. `variable` can name another folder."""
    other = f", or choose another folder: {variable}=/some/folder make run" if variable else ""
    fix = f"Make it yours (sudo chown -R $USER {folder}){other}."
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise Stop(f"Cannot write to {folder}: {error.strerror or error}.", fix) from error


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)


def require_space(folder: Path, need: int, purpose: str) -> None:
    """Raise Stop if fewer than `need` bytes are free on the disk of a folder."""
    free = shutil.disk_usage(_existing(folder)).free
    if free < need:
        raise Stop(
            f"Too little disk space for {purpose}: {free / GIB:.1f} GiB free at {folder}, {need / GIB:.1f} GiB needed.",
            "Free some space there, or put the checkout on a larger disk, and run the command again.",
        )
