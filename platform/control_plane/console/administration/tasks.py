"""The task that completes the deletion of tenants."""

from celery import shared_task

from control_plane.console.administration import actions
from control_plane.core.writes import enqueue


@shared_task(name="administration.clear_deleted")
def clear_deleted() -> None:
    """Archive adapters of deleted tenants, some at a time."""
    if actions.archive_of_deleted():
        enqueue("administration.clear_deleted")
