"""The periodic Celery task that deletes content."""

from celery import shared_task

from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.registry import archiving


@shared_task(name="artifacts.collect")
def collect() -> None:
    """Delete adapters and versions past their retention period, then content that nothing refers to."""
    archiving.delete_expired()
    artifact_gc.collect()
