"""The task that completes the deletion of tenants."""

from celery import shared_task

from control_plane.console.administration import actions
from control_plane.core.writes import enqueue


@shared_task(name="administration.clear_deleted")
def clear_deleted() -> None:
    """Cancel uploads of deleted tenants, and archive their adapters, some at a time."""
    actions.cancel_uploads_of_deleted()
    if actions.archive_of_deleted():
        enqueue("administration.clear_deleted")
