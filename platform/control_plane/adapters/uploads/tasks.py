"""Celery tasks that validate uploads and end abandoned ones."""

from celery import shared_task

from control_plane.adapters.uploads import actions, resumable, validation_child, validation_job
from control_plane.core.http import egress
from control_plane.core.writes import enqueue


@shared_task(name="uploads.validate_next", throws=(validation_job.ValidationCancelledError,))
def validate_next() -> None:
    """Decide one upload, then queue the next slot. An upload interrupted by an orderly stop of the worker stays
    undecided, for the next worker."""
    validation_child.prepare()
    egress.prepare()
    if validation_job.validate_next():
        enqueue("uploads.validate_next")


@shared_task(name="uploads.forget")
def forget() -> None:
    """Delete uploads that were refused or cancelled long ago."""
    actions.forget()


@shared_task(name="uploads.tend")
def tend() -> None:
    """End resumable uploads that were abandoned; remove files of uploads that are decided."""
    resumable.tend_arriving()
    actions.sweep()
