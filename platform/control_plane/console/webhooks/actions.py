"""Actions on endpoints, and messages that members request."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from control_plane.console.webhooks.events import queue
from control_plane.console.webhooks.models import Delivery, DeliveryState, Endpoint, Event, EventType
from control_plane.console.webhooks.signing import replaced_secrets
from control_plane.core.config import Rate, current
from control_plane.core.errors import LorikeetError, NotFoundError
from control_plane.core.http.egress import UrlRefusedError, check_url
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.attempts import limiter
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

MAX_ENDPOINTS = 20
# Test messages and replays of a tenant, each per minute.
TESTS = Rate(10, 60)
REPLAYS = Rate(60, 60)


class WebhookNotFoundError(NotFoundError):
    def __init__(self) -> None:
        super().__init__("There is no such webhook.", "GET webhooks lists yours.", code="webhook_not_found")


@dataclass(frozen=True)
class WebhookSettings:
    url: str
    description: str
    events: list[str]
    active: bool


def create_endpoint(*, acting: Principal, settings: WebhookSettings) -> Endpoint:
    """Create an endpoint. Raises LorikeetError: 400 for a URL that may not be called, 409 for one too many."""
    _check_url(settings.url)
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # serialise the count
        endpoints = Endpoint.objects.for_tenant(acting.tenant)
        if endpoints.count() >= MAX_ENDPOINTS:
            raise LorikeetError(
                "too_many_webhooks",
                f"There are {MAX_ENDPOINTS} webhooks already.",
                "Delete one that is not needed.",
                status=409,
            )
        endpoint = endpoints.create(tenant=acting.tenant, created_by=acting.user, **_columns(settings))
        _audit(acting, "create", endpoint, **_columns(settings))
    return endpoint


def change_endpoint(*, acting: Principal, endpoint: Endpoint, settings: WebhookSettings) -> Endpoint:
    """Change an endpoint. Raises LorikeetError: 400 for a URL that may not be called, 404 if it was deleted."""
    _check_url(settings.url)
    with transaction.atomic():
        endpoint = _lock(acting, endpoint)
        before = {name: getattr(endpoint, name) for name in _columns(settings)}
        if before == _columns(settings) and not endpoint.failures and endpoint.rests_until is None:
            return endpoint
        for name, value in _columns(settings).items():
            setattr(endpoint, name, value)
        endpoint.failures, endpoint.rests_until = 0, None
        endpoint.save(update_fields=[*_columns(settings), "failures", "rests_until"])
        _audit(acting, "change", endpoint, **_columns(settings), before=before)
    return endpoint


def delete_endpoint(*, acting: Principal, endpoint: Endpoint) -> None:
    """Delete an endpoint with its messages. Raises WebhookNotFoundError."""
    with transaction.atomic():
        # The endpoint first, as in `delivery.claim_next`: the deletion itself would lock its messages first.
        endpoint = _lock(acting, endpoint, deletes=True)
        _audit(acting, "delete", endpoint)
        endpoint.delete()


def rotate_secret(*, acting: Principal, endpoint: Endpoint) -> Endpoint:
    """Make a new secret; for a day messages are signed under the replaced one too. Raises WebhookNotFoundError."""
    with transaction.atomic():
        endpoint = _lock(acting, endpoint)
        endpoint.secret_version += 1
        endpoint.replaced_at = replaced_secrets(endpoint, clocks.database_time())
        endpoint.save(update_fields=["secret_version", "replaced_at"])
        _audit(acting, "rotate", endpoint)
    return endpoint


class TooManyMessagesError(LorikeetError):
    def __init__(self, what: str, rate: Rate, wait_s: float) -> None:
        super().__init__(
            "too_many_requests",
            f"A tenant may send {rate.count} {what} a minute.",
            f"Wait {math.ceil(wait_s)} s.",
            status=429,
        )
        self.retry_after_s = wait_s


def send_test(*, acting: Principal, endpoint: Endpoint) -> Delivery:
    """Send a message of type "test" to this endpoint only, whatever events it subscribes to.

    Raises TooManyMessagesError (429), WebhookNotFoundError.
    """
    _count("tests", TESTS, acting.tenant)
    with transaction.atomic():
        endpoint = _lock(acting, endpoint)
        data = {"text": "Lorikeet can reach this endpoint."}
        event = Event.objects.create(tenant=acting.tenant, type=EventType.TEST, data=data)
        _wake(endpoint)
        delivery = queue(event, endpoint)
        enqueue("webhooks.deliver_next")
        _audit(acting, "test", endpoint)
    return delivery


def replay(*, acting: Principal, delivery: Delivery) -> Delivery:
    """Send a message again, now, with a full set of attempts.

    Raises TooManyMessagesError (429), WebhookNotFoundError.
    """
    _count("replays", REPLAYS, acting.tenant)
    with transaction.atomic():
        _wake(_lock(acting, delivery.endpoint))  # first: workers too lock the endpoint before its message
        delivery.state, delivery.attempts = DeliveryState.PENDING, 0
        delivery.next_attempt_at = clocks.database_time()
        delivery.save(update_fields=["state", "attempts", "next_attempt_at"])
        _audit(acting, "replay", delivery.endpoint, delivery=str(delivery.pk))
        enqueue("webhooks.deliver_next")
    return delivery


def _lock(acting: Principal, endpoint: Endpoint, *, deletes: bool = False) -> Endpoint:
    """Return the endpoint as it is now, locked until the transaction ends. Raises WebhookNotFoundError."""
    rows = Endpoint.objects.for_tenant(acting.tenant).select_for_update(of=("self",), no_key=not deletes)
    locked = rows.select_related("created_by", "tenant").filter(pk=endpoint.pk).first()
    if locked is None:
        raise WebhookNotFoundError
    return locked


def _check_url(url: str) -> None:
    try:
        check_url(url, allow_private=current().webhook_allow_private)
    except UrlRefusedError as refused:
        raise LorikeetError("webhook_url_refused", refused.message, refused.fix, param="url") from None


def _count(what: str, rate: Rate, tenant: Tenant) -> None:
    wait_s = limiter().take(f"webhook-{what}:{tenant.pk}", rate)
    if wait_s > 0:
        raise TooManyMessagesError(what, rate, wait_s)


def _wake(endpoint: Endpoint) -> None:
    endpoint.rests_until = None
    endpoint.save(update_fields=["rests_until"])


def _columns(settings: WebhookSettings) -> dict[str, Any]:
    return {
        "url": settings.url,
        "description": settings.description,
        "events": settings.events,
        "active": settings.active,
    }


def _audit(acting: Principal, verb: str, endpoint: Endpoint, **detail: Any) -> None:
    audit.record(acting.actor, f"webhook.{verb}", endpoint, tenant=acting.tenant, label=endpoint.url[:200], **detail)
