"""Reads rows with a lock that lasts until the transaction ends.

Adapters and versions are locked without their keys (`no_key`), here and elsewhere: rows that refer to them are then
inserted without a wait, whose transactions may have locked what the holder of this lock needs next, such as the tenant.
"""

from __future__ import annotations

from uuid import UUID

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.jobs import claims


def lock_version(version: AdapterVersion) -> AdapterVersion:
    """Return the version as it is now, locked until the transaction ends."""
    versions = AdapterVersion.objects.for_tenant(version.tenant).select_for_update(of=("self",), no_key=True)
    return versions.select_related("adapter", "tenant").get(pk=version.pk)


def lock_upload(upload_id: UUID | str) -> Upload | None:
    """Return the upload as it is now, locked until the transaction ends."""
    uploads = Upload.objects.select_for_update(of=("self",)).select_related("tenant")
    return uploads.filter(pk=upload_id).first()


def lock_claimed(upload: Upload) -> Upload | None:
    """Return the upload as it is now, locked; None if it is decided, or another worker has taken it."""
    locked = lock_upload(upload.pk)
    if locked is None or locked.state != UploadState.VALIDATING or not claims.holds(upload, locked):
        return None
    return locked
