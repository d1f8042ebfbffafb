"""Celery tasks of adapters. They only call actions."""

from celery import shared_task

from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.imports import follows
from control_plane.adapters.registry import archiving
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import resumable, validation_child, validation_job
from control_plane.core.http import egress
from control_plane.core.writes import enqueue


@shared_task(name="adapters.validate_next", throws=(validation_job.ValidationCancelledError,))
def validate_next() -> None:
    """Decide one upload, then queue the next slot. An upload interrupted by an orderly stop of the worker stays
    undecided, for the next worker."""
    validation_child.prepare()
    egress.prepare()
    if validation_job.validate_next():
        enqueue("adapters.validate_next")


@shared_task(name="adapters.poll_follows")
def poll_follows() -> None:
    """Check if branches that tenants follow have moved."""
    follows.poll_due()


@shared_task(name="adapters.tend_uploads")
def tend_uploads() -> None:
    """End resumable uploads that were abandoned; remove files of uploads that are decided."""
    resumable.tend_arriving()
    uploads.sweep()


@shared_task(name="adapters.collect")
def collect() -> None:
    """Delete adapters and versions past their retention period, then content that nothing refers to."""
    archiving.delete_expired()
    artifact_gc.collect()
