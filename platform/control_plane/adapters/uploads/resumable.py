"""The life of a resumable upload until its last byte is there: arriving → received, or cancelled."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from django.db import transaction

from control_plane.adapters.registry.base_of_adapter import wanted_base
from control_plane.adapters.registry.locks import lock_upload
from control_plane.adapters.registry.queries import UploadNotFoundError
from control_plane.adapters.registry.storage_limits import require_room
from control_plane.adapters.registry.upload_bounds import require_upload_size
from control_plane.adapters.uploads import partial_file, spool
from control_plane.adapters.uploads.actions import (
    CANCELLED,
    UploadEndedError,
    file_deletion_time,
    forget_after_commit,
    listed,
    move_upload,
    require_free_name,
    require_short_backlog,
    tell_upload,
    uploader_of,
)
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.config import current
from control_plane.core.errors import DeletionPausedError, LorikeetError
from control_plane.core.http.body_guard import MULTIPART_OVERHEAD
from control_plane.core.writes import enqueue
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

logger = logging.getLogger(__name__)

# Maximum number of uploads of a tenant that arrive at the same time.
MAX_ARRIVING = 32
EXPIRED = {
    "code": "upload_expired",
    "message": "This upload was not continued in time, so the bytes that had arrived were removed.",
    "fix": "Upload again.",
}
REFUSED_BY_DISK = {
    "code": "storage_full",
    "message": "The server had no room for this upload when it began.",
    "fix": "Upload again later.",
}


class TooManyArrivingError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "too_many_unfinished_uploads",
            f"{MAX_ARRIVING} uploads of this tenant are unfinished.",
            "Finish or cancel some of them, or wait until they expire.",
            status=429,
        )


def begin_resumable(
    *,
    acting: Principal,
    name: str,
    description: str,
    file_name: str,
    size: int,
    sha256: str | None = None,
    base_model: str = "",
) -> Upload:
    """Begin an upload of `size` bytes of the archive `file_name`, with that SHA-256. Writes nothing to the disk yet.

    Raises NameTakenByBaseError, UnknownBaseError, OtherBaseOfAdapterError, UploadTooLargeError, StoredLimitError,
    TooManyArrivingError or TooManyWaitingError.
    """
    require_free_name(name)
    base_digest = wanted_base(acting.tenant, name, base_model)
    require_upload_size(acting.tenant, name, base_digest, size - MULTIPART_OVERHEAD)
    require_room(acting.tenant, name, size)
    upload_id = uuid4()
    with transaction.atomic():
        require_short_backlog(acting.tenant)
        arriving = Upload.objects.for_tenant(acting.tenant).filter(state=UploadState.ARRIVING)
        if arriving.count() >= MAX_ARRIVING:
            raise TooManyArrivingError
        upload = Upload.objects.create(
            id=upload_id,
            tenant=acting.tenant,
            adapter_name=name,
            description=description,
            state=UploadState.ARRIVING,
            base_digest=base_digest,
            bytes=size,
            files=[listed(file_name, size, sha256)],
            folder=str(spool.upload_folder(upload_id)),
            created_by=acting.user,
            created_by_key=acting.api_key,
        )
        audit.record(acting.actor, "upload.begin", upload, tenant=acting.tenant, label=name, bytes=size)
        tell_upload(upload)
    return upload


def get_resumable(tenant: Tenant, upload_id: UUID) -> Upload:
    """Return a resumable upload.

    Raises UploadNotFoundError (404), and UploadEndedError (410) for one that was cancelled or has expired.
    """
    upload = Upload.objects.for_tenant(tenant).select_related("tenant").filter(pk=upload_id).first()
    if upload is None:
        raise UploadNotFoundError(upload_id)
    if upload.state == UploadState.CANCELLED:
        raise UploadEndedError(upload)
    return upload


def finish_resumable(upload: Upload) -> None:
    """Queue the validation of a complete upload. Safe to repeat."""
    with transaction.atomic():
        upload = lock_upload(upload.pk) or upload
        if upload.state != UploadState.ARRIVING:
            return
        move_upload(upload, UploadState.RECEIVED, None, uploader_of(upload))
        enqueue("uploads.validate_next")


def cancel_resumable(*, acting: Principal, upload_id: UUID) -> None:
    """Cancel the upload and remove its bytes.

    Raises UploadNotFoundError, UploadEndedError (410) once it is complete, UploadBusyError (423) while bytes arrive.
    """
    upload = get_resumable(acting.tenant, upload_id)
    with partial_file.Transfer(Path(upload.folder)), transaction.atomic():
        upload = lock_upload(upload.pk) or upload
        if upload.state != UploadState.ARRIVING:
            raise UploadEndedError(upload)
        move_upload(upload, UploadState.CANCELLED, CANCELLED, acting.actor)
        forget_after_commit(upload)


def abandon_resumable(upload: Upload) -> None:
    """Cancel an upload that the disk refused before the client received its address."""
    with transaction.atomic():
        locked = lock_upload(upload.pk)
        if locked is not None and locked.state == UploadState.ARRIVING:
            move_upload(locked, UploadState.CANCELLED, REFUSED_BY_DISK)
            forget_after_commit(locked)


def tend_arriving() -> None:
    """Finish complete uploads whose process died before it recorded that, and end abandoned ones.

    Nothing is ended while deletion is paused.
    """
    try:
        before = (file_deletion_time() - timedelta(seconds=current().upload_expire_s)).timestamp()
    except DeletionPausedError:
        before = 0.0
    for upload in Upload.objects.filter(state=UploadState.ARRIVING).select_related("created_by", "created_by_key"):
        try:
            _tend(upload, before)
        except OSError:
            logger.exception("The folder of an upload cannot be used.", extra={"upload": str(upload.pk)})


def _tend(upload: Upload, before: float) -> None:
    if partial_file.acknowledged(Path(upload.folder)) == upload.bytes:
        finish_resumable(upload)
    elif max(upload.created_at.timestamp(), partial_file.last_touched(Path(upload.folder))) < before:
        _expire(upload)


def _expire(upload: Upload) -> None:
    try:
        with partial_file.Transfer(Path(upload.folder)), transaction.atomic():
            locked = lock_upload(upload.pk)
            if locked is not None and locked.state == UploadState.ARRIVING:
                move_upload(locked, UploadState.CANCELLED, EXPIRED)
                forget_after_commit(locked)
    except partial_file.UploadBusyError:
        return  # the client continued at the last moment
