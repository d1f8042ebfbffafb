"""How much of an import has come: what lies in its folder, which the one who fetches writes to."""

from __future__ import annotations

import contextlib
import os

from control_plane.adapters.registry.models import Upload, UploadState

_UNDECIDED = (UploadState.RECEIVED, UploadState.VALIDATING)


def fetched_bytes(upload: Upload) -> int | None:
    """Of an import that is still being fetched; None for everything else."""
    if upload.source is None or upload.source.get("fetched") or upload.state not in _UNDECIDED:
        return None
    total = 0
    with contextlib.suppress(OSError), os.scandir(upload.folder) as files:  # nothing has come yet
        for file in files:
            if file.name.removesuffix(".part").isdecimal():
                with contextlib.suppress(FileNotFoundError):
                    total += file.stat().st_size
    return total
