"""Sending what is due, at least once each: claimed by one worker, tried again with growing pauses."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from control_plane.config import current
from control_plane.http import egress
from control_plane.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint
from control_plane.webhooks.signing import signature_headers

# After the last pause it is given up: almost three days after the first try.
PAUSES = tuple(
    timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200, 6 * 3600, 12 * 3600, 24 * 3600, 24 * 3600)
)
# Longer than a try can take: a claim that is older was made by a worker that died.
CLAIM = timedelta(seconds=3 * egress.TOTAL_S)


def due(now: datetime) -> QuerySet[Delivery]:
    """Messages that may be sent now. An endpoint that failed rests, so that it does not take up every worker."""
    awake = Q(endpoint__rests_until__isnull=True) | Q(endpoint__rests_until__lte=now)
    pending = Delivery.objects.filter(state=DeliveryState.PENDING, next_attempt_at__lte=now)
    return pending.filter(awake, endpoint__active=True)


@dataclass(frozen=True)
class Result:
    at: datetime
    duration_ms: int
    status: int | None
    error: str

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def deliver(delivery_id: str) -> Result | None:
    """Try once, if it is due and nobody else is at it."""
    now = timezone.now()
    if not due(now).filter(pk=delivery_id).exists():
        return None
    unclaimed = Delivery.objects.filter(pk=delivery_id, state=DeliveryState.PENDING, next_attempt_at__lte=now)
    if not unclaimed.update(next_attempt_at=now + CLAIM):
        return None
    delivery = Delivery.objects.select_related("endpoint", "event", "tenant").get(pk=delivery_id)
    result = _send(delivery, now)
    _note(delivery, result)
    return result


def _send(delivery: Delivery, now: datetime) -> Result:
    body = json.dumps(message(delivery), separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Lorikeet-Webhooks/1",
        "Lorikeet-Event": delivery.event.type,
        "Lorikeet-Delivery": str(delivery.pk),
        **signature_headers(delivery.endpoint, str(delivery.event_id), body, now),
    }
    began, status, error = time.monotonic(), None, ""
    try:
        status = egress.post(delivery.endpoint.url, body, headers, allow_private=current().webhook_allow_private)
    except (egress.EgressError, egress.UrlRefusedError) as failure:
        error = str(failure)
    return Result(now, round((time.monotonic() - began) * 1000), status, error[:300])


def message(delivery: Delivery) -> dict[str, Any]:
    """The body. `id` is the event's: a message that comes twice has the same."""
    event = delivery.event
    return {
        "id": str(event.pk),
        "type": event.type,
        "created_at": event.created_at.isoformat(),
        "tenant": delivery.tenant.slug,
        "data": event.data,
    }


def _note(delivery: Delivery, result: Result) -> None:
    with transaction.atomic():
        Attempt.objects.create(
            delivery=delivery,
            at=result.at,
            duration_ms=result.duration_ms,
            status=result.status,
            error=result.error,
        )
        delivery.attempts += 1
        if result.ok:
            delivery.state, delivery.delivered_at = DeliveryState.DELIVERED, timezone.now()
        elif delivery.attempts > len(PAUSES):
            delivery.state = DeliveryState.FAILED
        else:
            delivery.next_attempt_at = timezone.now() + _pause(delivery.attempts)
        delivery.save(update_fields=["attempts", "state", "delivered_at", "next_attempt_at"])
        _rest(delivery.endpoint, result)


def _pause(failures: int, pauses: Sequence[timedelta] = PAUSES) -> timedelta:
    return pauses[min(failures, len(pauses)) - 1]


def _rest(endpoint: Endpoint, result: Result) -> None:
    own = Endpoint.objects.for_tenant(endpoint.tenant).filter(pk=endpoint.pk)
    if result.ok:
        own.exclude(failures=0).update(failures=0, rests_until=None)
        return
    own.update(failures=F("failures") + 1)
    failures = own.values_list("failures", flat=True).get()
    # At most ten minutes for all: each message keeps its own, longer pauses.
    pause = min(_pause(failures), timedelta(minutes=10))
    own.update(rests_until=timezone.now() + pause)
