"""Folders of uploads that are not validated yet, on the artifact file system so that accepting one is a rename."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django.core.exceptions import RequestAborted
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, TemporaryFileUploadHandler

from control_plane.core.cancellation import to_completion
from control_plane.core.config import current
from control_plane.core.lifespan import Receive
from control_plane.core.storage_errors import StorageFullError

P = ParamSpec("P")
R = TypeVar("R")
_disk = ThreadPoolExecutor(max_workers=16, thread_name_prefix="lorikeet-upload")


# Bytes, or parts if they are small, of a body that are written to the disk at once: each part has an overhead.
PIECE, PIECES = 1 << 20, 256


async def batches(receive: Receive, silence_s: float | None = None) -> AsyncIterator[list[bytes]]:
    """Yield the parts of a body in lists that are large enough to be written to the disk.

    Parts are not joined: copying them took the event loop longer than all other work for an upload. Raises
    RequestAborted, after the parts before, if the client disconnects or is silent for `silence_s` seconds.
    """
    parts, size, more = list[bytes](), 0, True
    while more:
        message: Mapping[str, Any] = {"type": "http.disconnect"}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(silence_s):
                message = await receive()
        is_lost = message["type"] == "http.disconnect"
        if part := message.get("body", b""):
            parts.append(part)
            size += len(part)
        more = not is_lost and message.get("more_body", False)
        if parts and (not more or size >= PIECE or len(parts) >= PIECES):
            yield parts
            parts, size = [], 0
        if is_lost:
            raise RequestAborted


async def on_disk(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that blocks on the disk on a thread for that, so that a slow disk does not block the event loop.

    A cancelled caller waits for the thread, which may be writing to a file that the caller then closes.
    """
    return await to_completion(asyncio.get_running_loop().run_in_executor(_disk, partial(fn, *args, **kwargs)))


def spool_folder() -> Path:
    """Return the folder of bodies and their files while they arrive; the first writer creates it."""
    return current().artifacts / "incoming"


def require_room(size: int) -> None:
    """Raise StorageFullError (507) if `size` bytes do not fit, before any is sent; OSError."""
    if shutil.disk_usage(_made(spool_folder())).free < size:
        raise StorageFullError


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def upload_folder(upload_id: UUID) -> Path:
    return current().artifacts / "uploads" / str(upload_id)


def keep(upload_id: UUID, files: list[TemporaryUploadedFile]) -> Path:
    """Move spooled files into the upload's folder as `0`, `1`, ...: a client's file name never becomes a path."""
    folder = upload_folder(upload_id)
    folder.mkdir(parents=True)
    try:
        for index, file in enumerate(files):
            Path(file.temporary_file_path()).rename(folder / str(index))
            file.close()
    except BaseException:
        forget(folder)
        raise
    return folder


def forget(folder: Path) -> None:
    """Remove an upload's folder. `sweep` removes what cannot be removed now."""
    shutil.rmtree(folder, ignore_errors=True)


def file_time() -> datetime | None:
    """Return the time that the artifact file system gives a new file; None if it is full or away."""
    try:
        with tempfile.TemporaryFile(dir=current().artifacts) as file:
            return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
    except OSError:
        return None


def sweep(undecided: set[str], now: datetime, older_than_s: float = 3600.0) -> int:
    """Remove leftovers of crashes: spooled parts, and folders of uploads that are not `undecided`. Returns how many."""
    at = now.timestamp()
    uploads = [path for path in _old(current().artifacts / "uploads", at - older_than_s) if path.name not in undecided]
    parts = _old(current().artifacts / "incoming", at - 24 * older_than_s)
    for path in [*uploads, *parts]:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return len(uploads) + len(parts)


def _old(folder: Path, before: float) -> list[Path]:
    """Return the files and folders that were last written before a POSIX time."""
    old = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # its owner has just removed it
            if path.lstat().st_mtime < before:
                old.append(path)
    return old


class SpooledFile(TemporaryUploadedFile):
    """A file that arrives, in `spool_folder()`; deleted with its object unless it was moved away."""

    def __init__(
        self, name: str, content_type: str, size: int, charset: str | None, extra: dict[str, bytes] | None = None
    ) -> None:
        file = tempfile.NamedTemporaryFile(suffix=".part", dir=_made(spool_folder()))  # noqa: SIM115 (lives as long as self)
        UploadedFile.__init__(self, file, name, content_type, size, charset, extra)


class SpoolToStoreHandler(TemporaryFileUploadHandler):
    """An upload handler that streams every file, whatever its size, to the artifact file system."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        FileUploadHandler.new_file(self, *args, **kwargs)
        self.file = SpooledFile(self.file_name or "", self.content_type or "", 0, self.charset, self.content_type_extra)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        with self._removed_on_error():
            self.file.write(raw_data)

    def file_complete(self, file_size: int) -> TemporaryUploadedFile:
        with self._removed_on_error():
            self.file.flush()
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    @contextlib.contextmanager
    def _removed_on_error(self) -> Iterator[None]:
        """Delete the file at an error, so that a full disk gets its room back at once and not at garbage collection."""
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):
                self.file.close()
            raise
