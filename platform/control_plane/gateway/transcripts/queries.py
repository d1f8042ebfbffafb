"""Queries of the recording setting and of transcripts."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from control_plane.core.errors import NotFoundError
from control_plane.gateway.transcripts.models import Recording, Transcript
from control_plane.identity.tenants.models import Tenant


def recording_of(tenant: Tenant) -> Recording:
    """Return the tenant's setting; off by default."""
    return Recording.objects.for_tenant(tenant).first() or Recording(tenant=tenant)


def keeps_text(tenant: Tenant) -> bool:
    return Recording.objects.for_tenant(tenant).filter(enabled=True).exists()


def oldest_kept(recording: Recording, now: datetime) -> datetime:
    return now - timedelta(days=recording.days)


def transcript_of(tenant: Tenant, request_id: str) -> Transcript:
    """Return the transcript of a request. Raises NotFoundError."""
    transcript = find_transcript(tenant, request_id)
    if transcript is None:
        raise NotFoundError(
            "This request has no transcript.",
            "Transcripts are stored only while recording is on, and for as many days as it is set to. Admins find "
            "the setting under Settings.",
            code="transcript_not_found",
        )
    return transcript


def find_transcript(tenant: Tenant, request_id: str) -> Transcript | None:
    """Return the transcript of a request; None also if it is past its time but not yet deleted."""
    since = oldest_kept(recording_of(tenant), timezone.now())
    transcripts = Transcript.objects.for_tenant(tenant).filter(created_at__gte=since)
    return transcripts.filter(request_id=request_id).first()
