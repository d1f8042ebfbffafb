"""Garbage collection of the artifact store: deletes unreferenced content without racing an upload.

Every digest in the store has a row here. Before content is stored, its digest is written into the upload under a lock
on
the row; content is removed under the same lock, until the files are deleted. So the collector either sees an upload, or
the upload waits for it and stores the files again.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from control_plane.adapters.artifacts.configured import artifact_store
from control_plane.adapters.artifacts.models import Content
from control_plane.adapters.registry.locks import lock_claimed
from control_plane.adapters.registry.models import AdapterVersion, VersionState
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit

logger = logging.getLogger(__name__)

# Minimum time without a use before content is removed: content that is soon needed again is not stored twice.
SETTLED = timedelta(minutes=10)
UNDECIDED = (UploadState.ARRIVING, UploadState.RECEIVED, UploadState.VALIDATING)


def reserve_content(upload: Upload, digest: str) -> bool:
    """Keep content from being removed until the upload is decided. Call it before storing the content.

    Returns False if the upload is decided already, so that nothing must be stored.
    """
    with transaction.atomic():
        locked = lock_claimed(upload)
        if locked is None:
            return False
        _lock(digest)
        locked.digest = digest
        locked.save(update_fields=["digest"])
    return True


def touch_content(digest: str) -> None:
    """Record that content may be in the store, so that the collector checks it."""
    with transaction.atomic():
        _lock(digest)


def _lock(digest: str) -> None:
    """Create an artifact's row, or renew its time of use, in one statement that locks it until the transaction ends."""
    Content.objects.bulk_create(
        [Content(digest=digest, touched_at=clocks.database_time())],
        update_conflicts=True,
        unique_fields=["digest"],
        update_fields=["touched_at"],
    )


def collect(settled: timedelta = SETTLED) -> int:
    """Remove the content that nothing refers to. Returns how many contents. Raises DeletionPausedError."""
    old = _unreferenced().filter(touched_at__lt=clocks.deletion_time() - settled)
    return sum(_removed(digest) for digest in list(old.values_list("digest", flat=True)))


def _removed(digest: str) -> bool:
    try:
        return _remove(digest)
    except OSError:
        logger.warning(
            "Content could not be removed; the next run tries again.", extra={"digest": digest}, exc_info=True
        )
        return False


def _remove(digest: str) -> bool:
    with transaction.atomic():
        if not Content.objects.select_for_update().filter(digest=digest).exists():
            return False
        # Check again under the lock, in a separate statement: the one above may have read an older state.
        content = _unreferenced().filter(digest=digest).first()
        if content is None:
            return False
        # If this process ends before the commit, the row stays, and the next run has no files left to remove.
        artifact_store().remove(digest)
        audit.record(SYSTEM, "content.remove", content, tenant=None, label=digest)
        content.delete()
    logger.info("Content removed", extra={"digest": digest})
    return True


def _unreferenced() -> QuerySet[Content]:
    """Return the content without references. One statement, so that an upload becoming a version cannot be missed."""
    same = Q(digest=OuterRef("digest"))
    versions = AdapterVersion.objects.filter(same).exclude(state=VersionState.DELETED)
    uploads = Upload.objects.filter(same, state__in=UNDECIDED)
    return Content.objects.exclude(Exists(versions)).exclude(Exists(uploads))


# -- after a restored back-up ------------------------------------------------------------------------------------------


def note_strays() -> int:
    """Create rows for content in the store that the database does not know, so that it is collected.

    Returns how many.
    """
    known = set(Content.objects.values_list("digest", flat=True))
    strays = [digest for digest in artifact_store().digests() if digest not in known]
    for digest in strays:
        touch_content(digest)
    return len(strays)


def missing_contents() -> list[AdapterVersion]:
    """Return the versions that are not deleted and whose files are not in the store."""
    store, versions = artifact_store(), AdapterVersion.objects.exclude(state=VersionState.DELETED)
    present: dict[str, bool] = {}
    for digest in versions.order_by().values_list("digest", flat=True).distinct():
        present[digest] = store.has(digest)
    missing = [digest for digest, is_there in present.items() if not is_there]
    return list(versions.filter(digest__in=missing).select_related("tenant", "adapter").defer("report"))
