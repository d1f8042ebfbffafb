"""The periodic task that judges canaries."""

from celery import shared_task

from control_plane.adapters.canaries import judging


@shared_task(name="canaries.judge")
def judge() -> None:
    """End canaries that perform worse than their alias's regular version."""
    judging.judge_canaries()
