"""Reads rows under a lock that is held until the transaction ends."""

from __future__ import annotations

from uuid import UUID

from control_plane.adapters.registry.models import AdapterVersion, Upload, UploadState
from control_plane.core.jobs import claims


def lock_version(version: AdapterVersion) -> AdapterVersion:
    """The version as it is now, locked until the transaction ends."""
    own = AdapterVersion.objects.for_tenant(version.tenant).select_for_update(of=("self",))
    return own.select_related("adapter", "tenant").get(pk=version.pk)


def lock_upload(upload_id: UUID | str) -> Upload | None:
    """The upload as it is now, locked until the transaction ends."""
    uploads = Upload.objects.select_for_update(of=("self",)).select_related("tenant")
    return uploads.filter(pk=upload_id).first()


def lock_claimed(upload: Upload) -> Upload | None:
    """The upload as it is now, locked; None if it is decided, or another worker's by now."""
    locked = lock_upload(upload.pk)
    if locked is None or locked.state != UploadState.VALIDATING or not claims.holds(upload, locked):
        return None
    return locked
