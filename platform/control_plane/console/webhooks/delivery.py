"""Delivery of due messages, at least once each: claimed by one worker, retried with growing pauses.

Tenants choose the servers, so their cost is bounded: one message at a time to an endpoint, a few at a time of a tenant,
a few seconds each, and a pause for an endpoint that fails or is slow.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from control_plane.console.webhooks.models import Attempt, Delivery, DeliveryState, Endpoint
from control_plane.console.webhooks.signing import signature_headers
from control_plane.core.config import current
from control_plane.core.db import release_connections
from control_plane.core.http import egress
from control_plane.core.jobs import claims, clocks, fair_queue

# Pauses between attempts. After the last one the message fails: almost three days after the first attempt.
PAUSES = tuple(
    timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800, 7200, 6 * 3600, 12 * 3600, 24 * 3600, 24 * 3600)
)
# Longest pause of an endpoint after failures; each message keeps its own, longer pauses.
LONGEST_REST = timedelta(minutes=10)
# Time above which an endpoint pauses as long as it took to answer: it gets half of a slot's time at most.
SLOW = timedelta(seconds=1)


@dataclass(frozen=True)
class Result:
    at: datetime
    duration_ms: int
    status: int | None
    error: str

    @property
    def ok(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def deliver_next() -> Result | None:
    """Send one message once, chosen fairly among tenants. Returns None if none can be sent now."""
    delivery = claim_next()
    if delivery is None:
        return None
    now = clocks.database_time()  # receivers refuse a signature whose time is minutes from theirs
    release_connections()
    result = _send(delivery, now)
    _note(delivery, result)
    return result


def claim_next() -> Delivery | None:
    """Claim a message: one at a time of each endpoint, first of the endpoint whose last attempt is oldest.

    A claim lasts longer than an attempt can take, so it is not renewed.
    """
    now = clocks.database_time()
    queue = fair_queue.FairQueue("webhooks", _ready(now), _sending(), current().tenant_deliveries)
    if not queue.is_open():
        return None
    with transaction.atomic():
        endpoint = queue.choose()
        if endpoint is None:
            return None
        Endpoint.objects.for_tenant(endpoint.tenant).filter(pk=endpoint.pk).update(tried_at=now)
        messages = _due(now).filter(endpoint=endpoint).select_related("endpoint", "event", "tenant")
        delivery = messages.select_for_update(of=("self",)).order_by("next_attempt_at").first()
        if delivery is not None:
            claims.take(delivery)
    return delivery


def _ready(now: datetime) -> QuerySet[Endpoint]:
    """Return endpoints with due messages that are not paused and get no message at this moment."""
    awake = Endpoint.objects.filter(Q(rests_until=None) | clocks.due("rests_until", now, LONGEST_REST), active=True)
    of_endpoint = Q(endpoint=OuterRef("pk"))
    ready = awake.filter(Exists(_due(now).filter(of_endpoint)), ~Exists(_sending().filter(of_endpoint)))
    return ready.select_related("tenant").order_by(F("tried_at").asc(nulls_first=True))


def _due(now: datetime) -> QuerySet[Delivery]:
    due = clocks.due("next_attempt_at", now, PAUSES[-1])
    return Delivery.objects.filter(claims.unclaimed(), due, state=DeliveryState.PENDING)


def _sending() -> QuerySet[Delivery]:
    return Delivery.objects.filter(claims.claimed(), state=DeliveryState.PENDING)


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
    """Return the body. `id` is the event's: a message that is delivered twice has the same."""
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
        # The endpoint first, as in `claim_next`.
        Endpoint.objects.for_tenant(delivery.tenant).select_for_update(no_key=True).filter(
            pk=delivery.endpoint_id
        ).first()
        locked = Delivery.objects.select_for_update(of=("self",)).filter(pk=delivery.pk).first()
        if locked is None:
            return  # deleted with its endpoint
        Attempt.objects.create(
            delivery=locked,
            at=result.at,
            duration_ms=result.duration_ms,
            status=result.status,
            error=result.error,
        )
        if not claims.holds(delivery, locked):
            return  # this worker lost its claim, and another sends the message again
        locked.attempts += 1
        if result.ok:
            locked.state, locked.delivered_at = DeliveryState.DELIVERED, timezone.now()
        elif locked.attempts > len(PAUSES):
            locked.state = DeliveryState.FAILED
        else:
            locked.next_attempt_at = clocks.database_time() + _pause(locked.attempts)
        locked.claim = locked.claimed_until = None
        fields = ["attempts", "state", "delivered_at", "next_attempt_at", "claim", "claimed_until"]
        locked.save(update_fields=fields)
        _rest(delivery.endpoint, result)


def _pause(failures: int) -> timedelta:
    return PAUSES[min(failures, len(PAUSES)) - 1]


def _rest(endpoint: Endpoint, result: Result) -> None:
    """Pause an endpoint: after a failure for longer each time, after a slow answer as long as it took."""
    row = Endpoint.objects.for_tenant(endpoint.tenant).filter(pk=endpoint.pk)
    took = timedelta(milliseconds=result.duration_ms)
    if result.ok:
        row.exclude(failures=0, rests_until=None).update(failures=0, rests_until=None)
        if took > SLOW:
            row.update(rests_until=clocks.database_time() + took)
        return
    row.update(failures=F("failures") + 1)
    failures = row.values_list("failures", flat=True).first() or 1
    row.update(rests_until=clocks.database_time() + min(_pause(failures), LONGEST_REST))
