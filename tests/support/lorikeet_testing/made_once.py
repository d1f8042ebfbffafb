"""Folders that take seconds to make, made once for all processes of a test run, which copy them."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

# The folder of a full run, for all its stages. Without it, each process makes its own.
SHARED_FOLDER = "LORIKEET_TEST_FOLDER"


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` has filled. Its first use makes it, and nobody changes it afterwards."""
    root = Path(os.environ.get(SHARED_FOLDER) or _folder_of_this_process().name)
    folder = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=root))
            make(unfinished)
            unfinished.rename(folder)
    return folder


@functools.cache
def _folder_of_this_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lorikeet-made-once-")
