"""The file of a resumable upload while it arrives. Any web process that shares the artifact folder can continue it.

Two files in the upload's folder: `0` has the bytes, `offset` the number of acknowledged ones. Bytes are on the disk
before the offset counts them: whatever is killed, an acknowledged byte is there, and bytes beyond the offset are
overwritten. The lock is the operating system's lock on `offset`, so the end of a process releases it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from control_plane.core.errors import LorikeetError

DATA, OFFSET = "0", "offset"
# Bytes between two acknowledgements: what a client has to send again after a process is killed.
KEEP_EVERY = 32 << 20
# Digits of the offset. A constant number: one small write within one disk sector, which no crash can split.
_DIGITS = 20


class UploadBusyError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "upload_busy",
            "Another request is sending to this upload.",
            "Send to an upload over one connection at a time; try again when the other has ended.",
            status=423,
        )


def acknowledged(folder: Path) -> int:
    """Return the number of bytes that are safely on the disk; 0 before the first."""
    try:
        return _offset((folder / OFFSET).read_bytes(), (folder / DATA).stat().st_size)
    except FileNotFoundError:
        return 0


def _offset(text: bytes, size: int) -> int:
    """Return the offset; 0 if it is damaged, or a full disk took only half of it, so that no byte counts as sent."""
    offset = int(text[:_DIGITS]) if len(text) >= _DIGITS and text[:_DIGITS].isdigit() else 0
    return offset if offset <= size else 0


def last_touched(folder: Path) -> float:
    """Return the time of the last acknowledged byte as a POSIX time; 0.0 before the first."""
    try:
        return (folder / OFFSET).stat().st_mtime
    except FileNotFoundError:
        return 0.0


class Transfer:
    """The exclusive writer of one upload's file. Blocking: call it on a thread.

    `offset` is the number of acknowledged bytes, `end` the position of the next write.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._mark = os.open(folder / OFFSET, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._data = os.open(folder / DATA, os.O_WRONLY | os.O_CREAT, 0o600)
        except BlockingIOError:
            os.close(self._mark)
            raise UploadBusyError from None
        except BaseException:
            os.close(self._mark)
            raise
        self.offset = self.end = _offset(os.pread(self._mark, _DIGITS, 0), os.fstat(self._data).st_size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def write(self, parts: Iterable[bytes], hasher: Any = None) -> None:
        """Append bytes. They count after `keep`, which is called after each stretch unless a `hasher` must read all."""
        for part in parts:
            view = memoryview(part)
            while view:
                written = os.pwrite(self._data, view, self.end)
                self.end += written
                view = view[written:]
            if hasher is not None:
                hasher.update(part)
        if hasher is None and self.end - self.offset >= KEEP_EVERY:
            self.keep()

    def keep(self) -> None:
        """Acknowledge everything written so far. If the disk refuses, all of it must be sent again."""
        if self.end == self.offset:
            return
        # After a failed flush the content of the disk is unknown, and the next flush may well succeed.
        end, self.end = self.end, self.offset
        os.fdatasync(self._data)
        if os.pwrite(self._mark, b"%0*d" % (_DIGITS, end), 0) < _DIGITS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fdatasync(self._mark)
        self.offset = self.end = end

    def drop(self) -> None:
        """Discard the bytes written since the last `keep`."""
        self.end = self.offset

    def close(self) -> None:
        os.close(self._data)
        os.close(self._mark)
