"""A guard keeps ``zipfile`` within an untrusted file, and from reading a huge table of contents."""

from __future__ import annotations

import os
import zipfile
from typing import BinaryIO

# Maximum bytes of a table of contents.
MAX_DIRECTORY_BYTES = 1 << 20


class DirectoryTooLargeError(Exception):
    """The archive's table of contents is larger than the limit."""


class GuardedZip:
    """A seekable file from which ``zipfile`` can neither read a huge central directory nor seek outside."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell
        self.seekable = file.seekable
        self.close = file.close

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_SET and not 0 <= offset < 1 << 62:
            raise zipfile.BadZipFile("its table of contents points outside the archive")
        return self._file.seek(offset, whence)

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(min(size, MAX_DIRECTORY_BYTES + 1) if size >= 0 else MAX_DIRECTORY_BYTES + 1)
        if len(data) > MAX_DIRECTORY_BYTES:
            raise DirectoryTooLargeError
        return data
