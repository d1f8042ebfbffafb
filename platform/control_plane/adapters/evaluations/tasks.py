"""The periodic task that moves evaluations on."""

from celery import shared_task

from control_plane.adapters.evaluations import actions


@shared_task(name="evaluations.tend")
def tend() -> None:
    """Send the requests of evaluations whose version is ready; score those whose batch has ended."""
    actions.tend()
