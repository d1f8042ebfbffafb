"""Where ranks leave word for each other: a folder that is there as long as the process that made it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "lora-meeting-"


class MeetingFolder:
    """Among temporary files, locked. Those whose makers are gone, killed for one, go when the next one is made."""

    def __init__(self) -> None:
        _sweep()
        locked = None
        while locked is None:  # another one that sweeps may have been quicker
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            locked = _lock(self.path)
        self._lock = locked

    def remove(self) -> None:
        """Once nobody looks for it any more; twice is not too often."""
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
    """A descriptor that holds the folder until it is closed, by the end of the process too; None if somebody has it, if
    it is somebody else's, or gone."""
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
