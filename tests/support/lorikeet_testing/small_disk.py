"""A file system that can be full: a small tmpfs for root, otherwise refusals where Python calls the system."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SIZE = 4 << 20


class Disk:
    """A small disk, on which `folder` lies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, leave: int = 0) -> None:
        """Fill the disk until `leave` bytes are free."""
        with (self.folder / "filler").open("wb", buffering=0) as file:
            free = shutil.disk_usage(self.folder).free
            file.write(bytes(max(0, free - leave)))
            if not leave:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    def free(self) -> None:
        (self.folder / "filler").unlink()


class PretendedDisk(Disk):
    """A folder that refuses to grow or to create files once it is filled. Only for code in this process."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self._full = False
        usage, open_, mkdir, pwrite, os_open = shutil.disk_usage, io.open, os.mkdir, os.pwrite, os.open

        def refuse(path: object) -> None:
            if self._full and str(self.folder) in str(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        def opening(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if set(mode) & set("wxa"):
                refuse(path)
            return open_(path, mode, *args, **kwargs)

        def os_opening(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT and not Path(path).exists():
                refuse(path)
            return os_open(path, flags, *args, **kwargs)

        def making(path: Any, *args: Any, **kwargs: Any) -> None:
            refuse(path)
            mkdir(path, *args, **kwargs)

        def writing(file: int, data: Any, at: int) -> int:
            refuse(Path(f"/proc/self/fd/{file}").readlink())
            return pwrite(file, data, at)

        patch.setattr("builtins.open", opening)
        patch.setattr(io, "open", opening)
        patch.setattr(os, "open", os_opening)
        patch.setattr(os, "mkdir", making)
        patch.setattr(os, "pwrite", writing)
        patch.setattr(shutil, "disk_usage", lambda path: usage(path)._replace(free=0) if self._full else usage(path))

    def fill(self, leave: int = 0) -> None:
        self._full = True

    def free(self) -> None:
        self._full = False


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    folder.mkdir()
    if _mounted(folder):
        try:
            yield Disk(folder)
        finally:
            _unmount(folder)
        return
    with pytest.MonkeyPatch.context() as patch:
        yield PretendedDisk(folder, patch)


@contextmanager
def mounted_disk(folder: Path, size: int) -> Iterator[Disk]:
    """A small disk for other processes, which a pretended one would not reach. Only root can mount it."""
    folder.mkdir()
    assert _mounted(folder, size), "This test mounts a small tmpfs: run it as root, in a container with SYS_ADMIN."
    try:
        yield Disk(folder)
    finally:
        _unmount(folder)


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", folder], check=True)


def _mounted(folder: Path, size: int = SIZE) -> bool:
    if os.geteuid() != 0:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
