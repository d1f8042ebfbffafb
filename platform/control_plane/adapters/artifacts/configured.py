"""The artifact store that the settings name: a folder, or a bucket."""

from __future__ import annotations

from control_plane.adapters.artifacts.s3 import S3Store
from control_plane.adapters.artifacts.store import ArtifactStore, FolderStore
from control_plane.core.config import current


def artifact_store() -> ArtifactStore:
    """Raises what the store's client raises for settings that it does not understand."""
    settings = current()
    if settings.artifact_url:
        return S3Store(settings.artifact_url, settings.artifact_signed_s)
    return FolderStore(settings.artifacts)
