"""The periodic task that deletes old rows."""

from __future__ import annotations

from celery import shared_task

from control_plane.billing.refusals import actions


@shared_task(name="refusals.forget")
def forget() -> None:
    """Delete old counts of refused requests."""
    actions.forget()
