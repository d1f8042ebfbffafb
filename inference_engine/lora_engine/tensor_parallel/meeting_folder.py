"""The folder for the rendezvous of ranks, which exists as long as the process that made it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "lora-meeting-"


class MeetingFolder:
    """A locked folder among the temporary files.

    Folders of processes that ended without removal, for example killed ones, are removed when the next one is made.
    """

    def __init__(self) -> None:
        _sweep()
        locked = None
        while locked is None:  # another process may have removed it before it was locked
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            locked = _lock(self.path)
        self._lock = locked

    def remove(self) -> None:
        """Remove the folder, once all ranks have joined; further calls do nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if (lock := _lock(path)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder and return the descriptor, whose closing, also by the end of the process, unlocks it.

    Returns None if another process has the lock, another user owns the folder, or it no longer exists.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except OSError:
        """Somebody has it, or has just removed it."""
    os.close(descriptor)
    return None
