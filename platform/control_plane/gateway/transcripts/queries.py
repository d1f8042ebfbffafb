"""Reads transcripts."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from control_plane.core.errors import NotFoundError
from control_plane.gateway.transcripts.models import Recording, Transcript
from control_plane.identity.tenants.models import Tenant


def recording_of(tenant: Tenant) -> Recording:
    """The tenant's choice; off if it never made one."""
    return Recording.objects.for_tenant(tenant).first() or Recording(tenant=tenant)


def keeps_text(tenant: Tenant) -> bool:
    return Recording.objects.for_tenant(tenant).filter(enabled=True).exists()


def oldest_kept(recording: Recording, now: datetime) -> datetime:
    return now - timedelta(days=recording.days)


def transcript_of(tenant: Tenant, request_id: str) -> Transcript:
    """Raises NotFoundError."""
    found = find_transcript(tenant, request_id)
    if found is None:
        raise NotFoundError(
            "No text is kept of that request.",
            "Text is kept only of requests that came in while recording was on, and for as many days as it says. "
            "Admins find it under Settings.",
            code="transcript_not_found",
        )
    return found


def find_transcript(tenant: Tenant, request_id: str) -> Transcript | None:
    """None also for what is too old and not deleted yet."""
    since = oldest_kept(recording_of(tenant), timezone.now())
    own = Transcript.objects.for_tenant(tenant).filter(created_at__gte=since)
    return own.filter(request_id=request_id).first()
