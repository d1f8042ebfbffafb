"""The archive of the audit log."""

from __future__ import annotations

from datetime import date

from django.db.models import Max

from control_plane.billing.archives.tables import ArchivedTable, Sums
from control_plane.core.config import current
from control_plane.identity.audit.models import AuditEvent


def _last_id() -> int:
    # A row's transaction is over long before the row is old enough.
    return AuditEvent.objects.aggregate(last=Max("id"))["last"] or 0


def _nothing_to_compare(month: date, totals: Sums) -> None:
    """Accept the totals: no other table has sums of the audit log."""


AUDIT = ArchivedTable(
    name="audit",
    model=AuditEvent,
    summed=(),
    kept_months=lambda: current().audit_months,
    settled_id=_last_id,
    reconcile=_nothing_to_compare,
)
