"""The recording setting of a tenant, and its transcripts.

These tables are separate from the usage ledger, which never holds text and whose rows are never deleted.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.identity.tenants.models import Tenant, TenantQuerySet

# Days for which a text may be kept.
LONGEST_DAYS = 365


class Recording(models.Model):
    """The recording setting of a tenant. Without a row, nothing is recorded."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="recording")
    enabled = models.BooleanField(default=False)
    days = models.PositiveSmallIntegerField(default=7, help_text="Days after which each text is deleted.")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Recording"].as_manager()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(days__gte=1, days__lte=LONGEST_DAYS), name="recording_days")]

    def __str__(self) -> str:
        return f"recording of {self.tenant.slug}"


class Transcript(models.Model):
    """Prompt and answer of one engine request."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    request_id = models.CharField(max_length=64, unique=True)
    prompt = models.JSONField(help_text="Messages of the prompt, each with role and content.")
    answers = models.JSONField(help_text="The text of each choice.")
    settings = models.JSONField(
        null=True, help_text="Parameters of the request, named as in the API; null = not stored."
    )
    cut = models.BooleanField(help_text="Whether the text was longer than is stored.")
    created_at = models.DateTimeField(help_text="Time at which the request arrived.")

    objects = TenantQuerySet["Transcript"].as_manager()

    class Meta:
        indexes = [models.Index(fields=["tenant", "created_at"], name="transcripts_by_age")]

    def __str__(self) -> str:
        return self.request_id
