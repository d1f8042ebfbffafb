"""The task that completes the deletion of tenants."""

from celery import shared_task

from control_plane.adapters.evaluations.actions import cancel_of_deleted_tenants
from control_plane.console.administration import actions
from control_plane.core.writes import enqueue


@shared_task(name="administration.clear_deleted")
def clear_deleted() -> None:
    """Cancel uploads and evaluations of deleted tenants, and archive their adapters, some at a time."""
    actions.cancel_uploads_of_deleted()
    cancel_of_deleted_tenants()
    if actions.archive_of_deleted():
        enqueue("administration.clear_deleted")
