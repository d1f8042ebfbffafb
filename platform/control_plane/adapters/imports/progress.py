"""Progress of an import, from the size of the files in its folder."""

from __future__ import annotations

import contextlib
import os

from control_plane.adapters.uploads.models import Upload, UploadState

_UNDECIDED = (UploadState.RECEIVED, UploadState.VALIDATING)


def fetched_bytes(upload: Upload) -> int | None:
    """Return the bytes fetched so far of an import in progress; None for every other upload."""
    if upload.source is None or upload.source.get("fetched") or upload.state not in _UNDECIDED:
        return None
    total = 0
    with contextlib.suppress(OSError), os.scandir(upload.folder) as files:  # the folder may not exist yet
        for file in files:
            if file.name.removesuffix(".part").isdecimal():
                with contextlib.suppress(FileNotFoundError):
                    total += file.stat().st_size
    return total
