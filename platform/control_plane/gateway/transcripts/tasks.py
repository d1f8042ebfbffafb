"""The periodic task that deletes expired transcripts."""

from __future__ import annotations

from celery import shared_task

from control_plane.gateway.transcripts import actions


@shared_task(name="transcripts.forget")
def forget() -> None:
    """Delete expired transcripts."""
    actions.forget()
