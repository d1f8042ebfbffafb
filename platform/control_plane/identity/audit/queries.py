"""Reading the audit log: newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.models import Tenant

NO_TENANT = "-"


@dataclass(frozen=True)
class Filters:
    """Filters of the audit log; an empty one matches every row."""

    # A whole action ("key.create"), or its noun ("key").
    action: str = ""
    # Part of the actor's label.
    actor: str = ""
    # Part of the subject's name, or its whole id.
    target: str = ""
    # A tenant's short name; ``NO_TENANT`` for rows without one, such as sign-ins. For operators.
    tenant: str = ""
    since: datetime | None = None
    until: datetime | None = None


def of_tenant(tenant: Tenant, filters: Filters) -> QuerySet[AuditEvent]:
    return _matching(AuditEvent.objects.for_tenant(tenant).select_related("tenant"), filters)


def of_everybody(filters: Filters) -> QuerySet[AuditEvent]:
    """Return the rows of all tenants, and of none, such as sign-ins. For operators."""
    return _matching(AuditEvent.objects.select_related("tenant"), filters)


def page(rows: QuerySet[AuditEvent], *, before: int | None, size: int) -> tuple[list[AuditEvent], int | None]:
    """Return up to `size` rows older than the row `before`, and the `before` of the next page."""
    older = rows.filter(pk__lt=before) if before is not None else rows
    events = list(older.order_by("-id")[: size + 1])
    return events[:size], events[size - 1].pk if len(events) > size else None


def _matching(rows: QuerySet[AuditEvent], filters: Filters) -> QuerySet[AuditEvent]:
    if filters.action:
        by_noun = Q() if "." in filters.action else Q(action__startswith=f"{filters.action}.")
        rows = rows.filter(Q(action=filters.action) | by_noun)
    if filters.actor:
        rows = rows.filter(actor_label__icontains=filters.actor)
    if filters.target:
        rows = rows.filter(Q(target_label__icontains=filters.target) | Q(target_id=filters.target))
    if filters.tenant == NO_TENANT:
        rows = rows.filter(tenant=None)
    elif filters.tenant:
        # A separate query: in a join, PostgreSQL cannot know that few of the rows are this tenant's.
        tenant = Tenant.objects.filter(slug=filters.tenant).first()
        rows = rows.filter(tenant=tenant) if tenant else rows.none()
    if filters.since:
        rows = rows.filter(created_at__gte=filters.since)
    if filters.until:
        rows = rows.filter(created_at__lt=filters.until)
    return rows
