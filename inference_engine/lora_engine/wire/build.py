"""The version of this build: the release, and the commit that it was made from.

An image has the commit in ``LORIKEET_BUILD``; in a checkout git knows it. Both sides use it, so it is part of what they
share.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from lora_engine import __version__

VARIABLE = "LORIKEET_BUILD"
# Seconds for git, which answers within milliseconds.
_GIT_S = 2.0
_CHECKOUT = Path(__file__).resolve().parents[3]


@cache
def build_version() -> str:
    """Return a version such as ``0.1.0+gf66acf9d``, or the release alone where the commit is not known."""
    build = _cleaned(os.environ.get(VARIABLE, "")) or _cleaned(_described())
    return f"{__version__}+{build}" if build else __version__


def _described() -> str:
    """Return git's name of the commit of this checkout; "" outside one, or without git."""
    if not (_CHECKOUT / ".git").exists() or not (_CHECKOUT / "inference_engine").is_dir():
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
