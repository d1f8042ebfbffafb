"""The artifact store of the settings: a folder, or a bucket."""

from __future__ import annotations

from control_plane.adapters.artifacts.s3 import S3Store
from control_plane.adapters.artifacts.store import ArtifactStore, FolderStore
from control_plane.core.config import current


def artifact_store() -> ArtifactStore:
    """Return the configured store. Raises the client's errors for settings that it cannot use."""
    settings = current()
    if settings.artifact_url:
        return S3Store(settings.artifact_url, settings.artifact_signed_s)
    return FolderStore(settings.artifacts)
