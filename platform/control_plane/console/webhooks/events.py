"""Events for webhooks. Most come from the audit log: a recorded write is published in its transaction, so that neither
exists without the other."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from control_plane.console.webhooks.models import Delivery, Endpoint, Event, EventType
from control_plane.core.config import current
from control_plane.core.db import referable
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant

FROM_AUDIT = {
    "upload.accepted": EventType.UPLOAD_ACCEPTED,
    "upload.refused": EventType.UPLOAD_REFUSED,
    "version.ready": EventType.VERSION_READY,
    "version.failed": EventType.VERSION_FAILED,
    "version.flag": EventType.VERSION_FLAGGED,
    "version.promote": EventType.VERSION_PROMOTED,
    "alias.canary_fail": EventType.CANARY_FAILED,
    "adapter.archive": EventType.ADAPTER_ARCHIVED,
}


def publish_audit(row: AuditEvent) -> None:
    """Publish a row of the audit log, if it has an event type."""
    kind = FROM_AUDIT.get(row.action)
    if kind is None or row.tenant is None:
        return
    data = {"target": row.target_label, "kind": row.target_kind, "id": row.target_id, "detail": row.detail}
    publish(row.tenant, kind, {**data, "actor": row.actor_label})


def publish(tenant: Tenant, kind: EventType, data: dict[str, Any], *, occasion: str | None = None) -> Event | None:
    """Queue a message to each endpoint that subscribes to `kind`; None if none does, or `occasion` was published."""
    with transaction.atomic():
        subscribed = [
            endpoint
            for endpoint in referable(Endpoint.objects.for_tenant(tenant).filter(active=True))
            if not endpoint.events or kind in endpoint.events
        ]
        if not subscribed:
            return None
        if occasion is None:
            event = Event.objects.create(tenant=tenant, type=kind, data=data)
        else:  # two workers may count at once: one of them publishes
            new = {"type": kind, "data": data}
            event, created = Event.objects.get_or_create(tenant=tenant, occasion=occasion, defaults=new)
            if not created:
                return None
        for endpoint in subscribed:
            queue(event, endpoint)
        # As many tasks as the tenant may have slots; each enqueues the next after it has sent a message.
        for _ in subscribed[: current().tenant_deliveries]:
            enqueue("webhooks.deliver_next")
    return event


# Share of a limit at which a warning is published.
WARN_AT = 0.8


def publish_quota(tenant: Tenant, *, limit: str, period: str, used: int, allowed: int) -> None:
    """Publish that a limit is nearly or wholly used up, each once in a `period` (like "2026-05" or "2026-05-04").

    Call it with every count: it does nothing below the warning, or if the event of this period exists.
    """
    if allowed <= 0 or used < allowed * WARN_AT:
        return
    kind = EventType.QUOTA_EXHAUSTED if used >= allowed else EventType.QUOTA_WARNING
    data = {"limit": limit, "period": period, "used": used, "allowed": allowed}
    publish(tenant, kind, data, occasion=f"{kind}/{limit}/{period}")


def queue(event: Event, endpoint: Endpoint) -> Delivery:
    """Create the message of an event to an endpoint; the caller enqueues the task that sends it."""
    return Delivery.objects.create(
        tenant_id=endpoint.tenant_id, endpoint=endpoint, event=event, next_attempt_at=clocks.database_time()
    )
