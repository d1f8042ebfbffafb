"""Messages to endpoints, as workers send them."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.utils import timezone

from control_plane.webhooks import delivery
from control_plane.webhooks.models import Event

MOST_AT_ONCE = 200
KEPT = timedelta(days=30)


@shared_task(name="webhooks.deliver")
def deliver(delivery_id: str) -> None:
    """Try one message once."""
    delivery.deliver(delivery_id)


@shared_task(name="webhooks.deliver_due")
def deliver_due() -> None:
    """Queue what is due: pauses that ended, and what a worker that died had claimed. One endpoint, one message, until
    it answers again."""
    seen = set()
    for pk, endpoint, failures in delivery.due(timezone.now()).order_by("next_attempt_at").values_list(
        "pk", "endpoint_id", "endpoint__failures"
    )[:MOST_AT_ONCE]:
        if not failures or endpoint not in seen:
            deliver.delay(str(pk))
        seen.add(endpoint)


@shared_task(name="webhooks.forget")
def forget() -> None:
    """Remove events of long ago with their messages; those that are told once only stay for their occasion."""
    Event.objects.filter(created_at__lt=timezone.now() - KEPT, occasion__isnull=True).delete()
