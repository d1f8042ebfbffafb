"""Uploaded files, and the decision about them."""

import uuid

from django.db import models
from django.db.models import Q

from control_plane.adapters.registry.models import NAME, AdapterVersion
from control_plane.core.columns import account_column
from control_plane.core.jobs.clocks import database_time
from control_plane.core.jobs.models import Claimable
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class UploadState(models.TextChoices):
    ARRIVING = "arriving"
    RECEIVED = "received"
    VALIDATING = "validating"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    CANCELLED = "cancelled"


class Upload(Claimable):
    """Uploaded files, and the decision about them."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="uploads")
    adapter_name = models.CharField(max_length=64, validators=[NAME])
    description = models.CharField(max_length=500, blank=True)
    state = models.CharField(max_length=16, choices=UploadState.choices, default=UploadState.RECEIVED)
    reason = models.JSONField(
        null=True,
        blank=True,
        help_text="{code, message, fix}: why the upload waits, was refused or cancelled, or made no new "
        "version; null: none of these.",
    )
    bytes = models.PositiveBigIntegerField()
    files = models.JSONField(help_text="[{name, bytes}] as the client named them.")
    source = models.JSONField(
        null=True,
        blank=True,
        help_text="{name, revision, commit, fetched, sealed}: the source of an import; null: the client sent "
        "the files.",
    )
    base_digest = models.CharField(
        max_length=71,
        blank=True,
        db_default="",
        default="",
        help_text="Digest of the base model, if the client named one; else empty.",
    )
    folder = models.CharField(max_length=500, help_text="Folder of the files until the upload is accepted or refused.")
    report = models.JSONField(
        null=True, blank=True, help_text="Report of the validation; null: the files were not validated yet, or never."
    )
    digest = models.CharField(
        max_length=71,
        blank=True,
        db_default="",
        default="",
        help_text="Digest of the content, computed before the content is stored.",
    )
    version = models.ForeignKey(
        AdapterVersion,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="uploads",
        help_text="Version with the content of the upload; null: the upload is not accepted.",
    )
    reused_version = models.BooleanField(
        default=False, help_text="Whether an existing version has the same content, so that no new one was made."
    )
    attempts = models.PositiveIntegerField(default=0)
    created_by = account_column("began the upload", otherwise="an API key did")
    created_by_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="API key that began the upload; null: an account did.",
    )
    created_at = models.DateTimeField(default=database_time, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Upload"].as_manager()

    class Meta:
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["state", "created_at"], name="upload_by_state"),
            models.Index(fields=["digest"], name="upload_by_digest"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=UploadState.values), name="upload_state_known"),
            models.CheckConstraint(
                condition=~Q(state=UploadState.ACCEPTED) | Q(version__isnull=False), name="upload_accepted_has_version"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.adapter_name} {self.state}"
