"""The tasks that send webhook messages."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task

from control_plane.console.webhooks import delivery
from control_plane.console.webhooks.models import Event
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue

# Time for which events are kept.
KEPT = timedelta(days=30)


@shared_task(name="webhooks.deliver_next")
def deliver_next() -> None:
    """Send one message once, then enqueue the next."""
    if delivery.deliver_next() is not None:
        enqueue("webhooks.deliver_next")


@shared_task(name="webhooks.forget")
def forget() -> None:
    """Delete old events with their messages. Events that are published once stay, so that they are not repeated."""
    Event.objects.filter(created_at__lt=clocks.deletion_time() - KEPT, occasion__isnull=True).delete()
