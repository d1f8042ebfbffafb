"""Tasks about batches."""

from __future__ import annotations

from celery import shared_task

from control_plane.gateway.batches import actions


@shared_task(name="batches.forget")
def forget() -> None:
    """Delete old batches and expired files."""
    actions.forget()
