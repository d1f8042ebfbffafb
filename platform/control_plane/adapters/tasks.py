"""Celery tasks of adapters. They only call actions."""

from celery import shared_task

from control_plane.adapters import archiving, canaries
from control_plane.adapters.artifacts import artifact_gc
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads import resumable, validation_job


@shared_task(name="adapters.validate_upload", throws=(validation_job.ValidationCancelledError,))
def validate_upload(upload_id: str) -> None:
    """Decide one upload. One that is cut off by the worker's orderly end stays undecided, for the next worker."""
    validation_job.validate(upload_id)


@shared_task(name="adapters.resume_uploads")
def resume_uploads(orphans: bool = False) -> None:
    """Queue again what waits for a task: after a restart, a lost worker, or when the first host appears."""
    resumable.tend_arriving()
    for upload_id in uploads.undecided_uploads(orphans=orphans):
        validate_upload.delay(str(upload_id))
    uploads.sweep()


@shared_task(name="adapters.judge_canaries")
def judge_canaries() -> None:
    """End canaries whose figures speak against them."""
    canaries.judge_canaries()


@shared_task(name="adapters.collect")
def collect() -> None:
    """Delete what was archived long ago, then remove content that nothing refers to any more."""
    archiving.delete_expired()
    artifact_gc.collect()
