"""The audit log as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC

from django.db.models import QuerySet
from django.utils import timezone

from control_plane.core.http.csv_files import lines, safe
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.audit.queries import page

PAGE = 1000  # rows
COLUMNS = (
    "created_at", "tenant", "action", "actor_kind", "actor", "actor_id", "target_kind", "target", "target_id", "detail",
    "request_id",
)  # fmt: skip


class AuditTable:
    """The rows that match the filters, newest first, without rows written meanwhile."""

    def __init__(self, rows: QuerySet[AuditEvent], whose: str) -> None:
        self._rows, self._whose = rows.select_related("tenant"), whose

    @property
    def file_name(self) -> str:
        return f"audit-{self._whose}-{timezone.now():%Y-%m-%d}.csv"

    def pages(self) -> Iterator[str]:
        yield lines([COLUMNS])
        events, before = page(self._rows, before=None, size=PAGE)
        while events:
            yield lines([_line(event) for event in events])
            events, before = page(self._rows, before=before, size=PAGE) if before is not None else ([], None)


def _line(event: AuditEvent) -> list[object]:
    return [
        event.created_at.astimezone(UTC).isoformat(),
        event.tenant.slug if event.tenant else "",
        event.action,
        event.actor_kind,
        safe(event.actor_label),
        event.actor_id,
        event.target_kind,
        safe(event.target_label),
        safe(event.target_id),
        json.dumps(event.detail, ensure_ascii=False) if event.detail else "",
        safe(event.request_id),
    ]
