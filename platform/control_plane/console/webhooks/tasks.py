"""The tasks that send webhook messages."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task

from control_plane.console.webhooks import delivery
from control_plane.console.webhooks.models import Event
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue

KEPT = timedelta(days=30)


@shared_task(name="webhooks.deliver_next")
def deliver_next() -> None:
    """Try one message once, then ask for the next slot."""
    if delivery.deliver_next() is not None:
        enqueue("webhooks.deliver_next")


@shared_task(name="webhooks.forget")
def forget() -> None:
    """Remove events of long ago with their messages; those that are told once only stay for their occasion."""
    Event.objects.filter(created_at__lt=clocks.deletion_time() - KEPT, occasion__isnull=True).delete()
