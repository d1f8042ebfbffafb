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
    """What is left empty does not matter."""

    action: str = ""
    """A whole action ("key.create"), or what it is about ("key")."""
    actor: str = ""
    """Part of who did it."""
    target: str = ""
    """Part of the subject's name, or its whole id."""
    tenant: str = ""
    """A tenant's short name; ``NO_TENANT`` for what belongs to none, as sign-ins do. For operators."""
    since: datetime | None = None
    until: datetime | None = None


def of_tenant(tenant: Tenant, filters: Filters) -> QuerySet[AuditEvent]:
    return _matching(AuditEvent.objects.for_tenant(tenant).select_related("tenant"), filters)


def of_everybody(filters: Filters) -> QuerySet[AuditEvent]:
    """For operators: of all tenants, and of none, as sign-ins are."""
    return _matching(AuditEvent.objects.select_related("tenant"), filters)


def page(rows: QuerySet[AuditEvent], *, before: int | None, size: int) -> tuple[list[AuditEvent], int | None]:
    """Up to `size` rows older than the row `before`, and what to pass as `before` for more."""
    older = rows.filter(pk__lt=before) if before is not None else rows
    found = list(older.order_by("-id")[: size + 1])
    return found[:size], found[size - 1].pk if len(found) > size else None


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
        # Looked up first: joined, the database cannot know that few of the rows are its.
        own = Tenant.objects.filter(slug=filters.tenant).first()
        rows = rows.filter(tenant=own) if own else rows.none()
    if filters.since:
        rows = rows.filter(created_at__gte=filters.since)
    if filters.until:
        rows = rows.filter(created_at__lt=filters.until)
    return rows
