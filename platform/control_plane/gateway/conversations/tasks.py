"""Tasks about stored conversations."""

from __future__ import annotations

from celery import shared_task

from control_plane.gateway.conversations import actions


@shared_task(name="conversations.forget")
def forget() -> None:
    """Delete expired stored responses."""
    actions.forget()
