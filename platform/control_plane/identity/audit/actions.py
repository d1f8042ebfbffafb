"""Writing the audit log, always inside the transaction of the write that a row describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import models, transaction

from control_plane.core.http.request_id import current_request_id
from control_plane.identity.access.actor import Actor
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant


class AuditOutsideTransactionError(RuntimeError):
    """An audit row outside the transaction of its write: it could survive the change it describes, or be lost alone."""


def record(
    actor: Actor, action: str, target: models.Model, *, tenant: Tenant | None, label: str = "", **detail: Any
) -> AuditEvent:
    """Add the audit row of `action` ("noun.verb") on `target`. `detail` must be JSON without secrets."""
    if not transaction.get_connection().in_atomic_block:
        raise AuditOutsideTransactionError(f"{action}: wrap the write and its audit row in transaction.atomic().")
    row = AuditEvent.objects.create(
        tenant=tenant,
        actor_kind=actor.kind,
        actor_id=actor.id,
        actor_label=actor.label,
        action=action,
        target_kind=target._meta.model_name or "",
        target_id=str(target.pk),
        target_label=label or str(target),
        detail=detail,
        request_id=current_request_id(),
    )
    for listener in _listeners:
        listener(row)
    return row


_listeners: list[Callable[[AuditEvent], None]] = []


def on_record(listener: Callable[[AuditEvent], None]) -> None:
    """Call `listener` with every row, inside the transaction of the write. Apps register theirs once, when ready."""
    if listener not in _listeners:
        _listeners.append(listener)
