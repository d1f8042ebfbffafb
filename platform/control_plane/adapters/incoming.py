"""The folders of uploads that are not decided yet, on the artifact file system so that moving in is a rename."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.core.files.uploadhandler import FileUploadHandler, TemporaryFileUploadHandler

from control_plane.config import current


def spool_folder() -> Path:
    """Where bodies and their files are written while they arrive."""
    folder = current().artifacts / "incoming"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def upload_folder(upload_id: UUID) -> Path:
    return current().artifacts / "uploads" / str(upload_id)


def keep(upload_id: UUID, files: list[TemporaryUploadedFile]) -> Path:
    """Move spooled files into the upload's folder as `0`, `1`, ...: a client's name never becomes a path."""
    folder = upload_folder(upload_id)
    folder.mkdir(parents=True)
    for index, file in enumerate(files):
        Path(file.temporary_file_path()).rename(folder / str(index))
        file.close()
    return folder


def forget(folder: Path) -> None:
    """Remove an upload's folder. What cannot be removed now is removed by the next `resume_uploads`."""
    shutil.rmtree(folder, ignore_errors=True)


class SpooledFile(TemporaryUploadedFile):
    """A file that arrives, in `spool_folder()`; deleted with its object unless it was moved away."""

    def __init__(
        self, name: str, content_type: str, size: int, charset: str | None, extra: dict[str, bytes] | None = None
    ) -> None:
        file = tempfile.NamedTemporaryFile(suffix=".part", dir=spool_folder())  # noqa: SIM115 (lives as long as self)
        UploadedFile.__init__(self, file, name, content_type, size, charset, extra)


class SpoolToStoreHandler(TemporaryFileUploadHandler):
    """Streams every file to disk, whatever its size, onto the artifact file system."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        FileUploadHandler.new_file(self, *args, **kwargs)
        self.file = SpooledFile(self.file_name or "", self.content_type or "", 0, self.charset, self.content_type_extra)
