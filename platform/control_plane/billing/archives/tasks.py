"""The periodic task that archives the audit log."""

from __future__ import annotations

from celery import shared_task

from control_plane.billing.archives import archiving
from control_plane.billing.archives.audit_log import AUDIT


@shared_task(name="archives.archive_audit")
def archive_audit() -> None:
    """Archive the months of the audit log that are no longer kept, then delete their rows."""
    archiving.run(AUDIT)
