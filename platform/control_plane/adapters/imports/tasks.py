"""The periodic Celery task of followed branches."""

from celery import shared_task

from control_plane.adapters.imports import follows


@shared_task(name="imports.poll_follows")
def poll_follows() -> None:
    """Check if branches that tenants follow have moved."""
    follows.poll_due()
