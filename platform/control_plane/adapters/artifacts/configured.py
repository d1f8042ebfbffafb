"""The artifact store of the settings: a folder, or a bucket."""

from __future__ import annotations

from control_plane.adapters.artifacts.file_store import BucketFiles, FileStore, FolderFiles
from control_plane.adapters.artifacts.s3 import S3Store
from control_plane.adapters.artifacts.store import ArtifactStore, FolderStore
from control_plane.core.config import current


def artifact_store() -> ArtifactStore:
    """Return the configured store. Raises the client's errors for settings that it cannot use."""
    settings = current()
    if settings.artifact_url:
        return S3Store(settings.artifact_url, settings.artifact_signed_s)
    return FolderStore(settings.artifacts)


def file_store() -> FileStore:
    """Return the store of plain files, in the same folder or bucket as the adapters."""
    settings = current()
    return BucketFiles(settings.artifact_url) if settings.artifact_url else FolderFiles(settings.artifacts)
