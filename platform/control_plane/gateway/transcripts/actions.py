"""The recording setting; storing and deleting transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from control_plane.core.jobs import clocks
from control_plane.core.writes import announce
from control_plane.gateway.transcripts.models import Recording, Transcript
from control_plane.gateway.transcripts.queries import oldest_kept
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant

# Rows that one statement deletes: keeps each transaction short.
DELETE_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class NewTranscript:
    """The text of one request, before it is stored."""

    request_id: str
    tenant_id: UUID
    created_at: datetime
    prompt: list[dict[str, str]]
    answers: list[str]
    cut: bool
    settings: dict[str, Any] | None = None


def set_recording(*, acting: Principal, enabled: bool, days: int) -> Recording:
    """Turn recording on or off, within a second. Stored transcripts stay for `days`; `delete_transcripts` removes them
    at once.
    """
    values: dict[str, Any] = {"enabled": enabled, "days": days}
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # one change after another
        settings = Recording.objects.for_tenant(acting.tenant)
        before = settings.values(*values).first()
        if before == values:
            return settings.get()
        row: Recording = settings.update_or_create(tenant=acting.tenant, defaults=values)[0]
        slug = acting.tenant.slug
        audit.record(acting.actor, "recording.update", row, tenant=acting.tenant, label=slug, **values, before=before)
        announce(acting.tenant.pk, "recording.updated", dict)
    return row


def delete_transcripts(*, acting: Principal) -> int:
    """Delete all transcripts of the tenant. Returns their number."""
    tenant = acting.tenant
    with transaction.atomic():
        count, _ = Transcript.objects.for_tenant(tenant).delete()
        audit.record(acting.actor, "recording.delete", tenant, tenant=tenant, label=tenant.slug, transcripts=count)
        announce(tenant.pk, "recording.updated", dict)
    return count


def store(transcripts: Sequence[NewTranscript]) -> int:
    """Store the texts of tenants that have recording on. Returns their number; each request is stored once.

    The rows follow from the tenant's setting, which is audited; they have no audit rows of their own.
    """
    with transaction.atomic():
        tenants = {one.tenant_id for one in transcripts}
        # Locked: turning recording off waits for this write, so that nothing is stored after its response.
        recording = Recording.objects.filter(tenant__in=tenants, enabled=True).order_by("pk").select_for_update()
        willing = {row.tenant_id for row in recording}
        rows = [Transcript(**vars(one)) for one in transcripts if one.tenant_id in willing]
        Transcript.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def forget(now: datetime | None = None) -> int:
    """Delete transcripts older than their tenant's setting. Returns the number of rows. Raises DeletionPausedError."""
    now = now or clocks.deletion_time()
    return sum(_forget(recording, now) for recording in Recording.objects.select_related("tenant"))


def _forget(recording: Recording, now: datetime) -> int:
    old = Transcript.objects.for_tenant(recording.tenant).filter(created_at__lt=oldest_kept(recording, now))
    deleted = 0
    while ids := list(old.values_list("pk", flat=True)[:DELETE_BATCH]):
        deleted += old.filter(pk__in=ids).delete()[0]
    return deleted
