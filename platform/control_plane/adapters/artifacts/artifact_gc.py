"""Garbage collection of the artifact store: deletes unreferenced content without racing an upload.

Every digest in the store has a row here. Whoever is about to store content first writes its digest into the upload,
holding the row; whoever removes content holds the row too, until the files are gone. So an upload either is seen by
the collector, or waits for it and stores the files anew.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from control_plane.adapters.artifacts.configured import artifact_store
from control_plane.adapters.registry.locks import lock_claimed
from control_plane.adapters.registry.models import AdapterVersion, Content, Upload, UploadState, VersionState
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit

logger = logging.getLogger(__name__)

# Only so that files that are about to be wanted again are not removed and stored anew for nothing.
SETTLED = timedelta(minutes=10)
UNDECIDED = (UploadState.ARRIVING, UploadState.RECEIVED, UploadState.VALIDATING)


def hold_content(upload: Upload, digest: str) -> bool:
    """Before content is stored for an upload. From here until the upload is decided nobody removes it.

    False if the upload is decided already, so that nothing must be stored.
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
    """Let the collector know of content that may be in the store."""
    with transaction.atomic():
        _lock(digest)


def _lock(digest: str) -> None:
    """Make or touch the row, in one statement that leaves it locked until the transaction ends."""
    Content.objects.bulk_create(
        [Content(digest=digest, touched_at=clocks.database_time())],
        update_conflicts=True,
        unique_fields=["digest"],
        update_fields=["touched_at"],
    )


def collect(settled: timedelta = SETTLED) -> int:
    """Remove from the store what nothing refers to. How many contents. Raises DeletionPausedError."""
    old = _unreferenced().filter(touched_at__lt=clocks.deletion_time() - settled)
    return sum(_removed(digest) for digest in list(old.values_list("digest", flat=True)))


def _removed(digest: str) -> bool:
    try:
        return _remove(digest)
    except OSError:
        logger.warning("Content stays until the next run.", extra={"digest": digest}, exc_info=True)
        return False


def _remove(digest: str) -> bool:
    with transaction.atomic():
        if not Content.objects.select_for_update().filter(digest=digest).exists():
            return False
        # Looked at again under the lock, in a statement of its own: the one above may have seen an older state.
        content = _unreferenced().filter(digest=digest).first()
        if content is None:
            return False
        # Should this process end before the commit, the row stays and the next run finds nothing left to remove.
        artifact_store().remove(digest)
        audit.record(SYSTEM, "content.remove", content, tenant=None, label=digest)
        content.delete()
    logger.info("Content removed", extra={"digest": digest})
    return True


def _unreferenced() -> QuerySet[Content]:
    """One statement, so that an upload that becomes a version in between cannot be missed as both."""
    same = Q(digest=OuterRef("digest"))
    versions = AdapterVersion.objects.filter(same).exclude(state=VersionState.DELETED)
    uploads = Upload.objects.filter(same, state__in=UNDECIDED)
    return Content.objects.exclude(Exists(versions)).exclude(Exists(uploads))


# -- after a restored back-up ------------------------------------------------------------------------------------------


def note_strays() -> int:
    """Make rows for what the store holds and the database does not know, so that it is collected. How many."""
    known = set(Content.objects.values_list("digest", flat=True))
    strays = [digest for digest in artifact_store().digests() if digest not in known]
    for digest in strays:
        touch_content(digest)
    return len(strays)


def missing_contents() -> list[AdapterVersion]:
    """Versions that are not deleted and whose files are not in the store."""
    store, versions = artifact_store(), AdapterVersion.objects.exclude(state=VersionState.DELETED)
    present: dict[str, bool] = {}
    for digest in versions.order_by().values_list("digest", flat=True).distinct():
        present[digest] = store.has(digest)
    missing = [digest for digest, is_there in present.items() if not is_there]
    return list(versions.filter(digest__in=missing).select_related("tenant", "adapter").defer("report"))
