"""The version of this build: the release, and the commit that it was made from.

The release stands in `pyproject.toml` and nowhere else: a checkout reads the file, an installed package its metadata.
The commit comes from ``LORIKEET_BUILD``, from the file that the build of a wheel writes (`build_hook.py`), or in a
checkout from git. The control plane, the engine and the command line use this package, which loads only the standard
library.
"""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

VARIABLE = "LORIKEET_BUILD"
# The file beside this one with the commit, in wheels and source distributions.
COMMIT_FILE = "commit.txt"
UNKNOWN_RELEASE = "0"
# Seconds for git, which answers within milliseconds.
_GIT_S = 2.0
_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


@cache
def release() -> str:
    """Return the version of the release, such as ``0.1.0``."""
    if is_checkout():
        return str(tomllib.loads((_CHECKOUT / "pyproject.toml").read_text())["project"]["version"])
    from importlib import metadata  # a checkout does not need it, and it takes 20 ms to load

    try:
        return metadata.version("lorikeet")
    except metadata.PackageNotFoundError:
        return UNKNOWN_RELEASE


@cache
def build_version() -> str:
    """Return a version such as ``0.1.0+gf66acf9d``, or the release alone where the commit is not known."""
    build = commit()
    return f"{release()}+{build}" if build else release()


def commit() -> str:
    """Return git's name of the commit that this build was made from; "" if it is not known."""
    return _cleaned(os.environ.get(VARIABLE, "")) or _cleaned(_written()) or _cleaned(_described())


def is_checkout() -> bool:
    """Return whether this package lies in the project's source tree and not among installed packages."""
    return (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "inference_engine").is_dir()


def _written() -> str:
    try:
        return (_PACKAGE / COMMIT_FILE).read_text(errors="replace")
    except OSError:
        return ""


def _described() -> str:
    """Return git's name of the commit of this checkout; "" outside one, or without git."""
    if not (_CHECKOUT / ".git").exists() or not is_checkout():
        return ""  # installed into another project's checkout
    command = ["git", "-C", str(_CHECKOUT), "describe", "--tags", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _cleaned(text: str) -> str:
    """Return at most 64 letters, digits and dots, as a local part of a version may have (PEP 440)."""
    return re.sub(r"[^A-Za-z0-9]+", ".", text.strip()).strip(".")[:64]
