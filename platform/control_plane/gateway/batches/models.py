"""Files of requests and results, batches, and the lines of those that run.

Files are in the database, because the processes of an installation may share no folder.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.jobs.models import Claimable
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet

# The endpoints that a batch may call, by URL path.
ENDPOINTS = {
    f"/v1/{kind.replace('.', '/')}": kind
    for kind in (ApiEndpoint.CHAT, ApiEndpoint.COMPLETIONS, ApiEndpoint.EMBEDDINGS)
}


class Purpose(models.TextChoices):
    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


class StoredFile(models.Model):
    """A file, written once in parts; it is complete when its row exists."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="stored_files")
    name = models.CharField(max_length=255)
    purpose = models.CharField(max_length=16, choices=Purpose.choices)
    bytes = models.BigIntegerField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    objects = TenantQuerySet["StoredFile"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="stored_files_by_tenant"),
            models.Index(fields=["expires_at"], name="stored_files_by_expiry"),
        ]

    def __str__(self) -> str:
        return f"file-{self.id.hex}"


class FilePart(models.Model):
    id = models.BigAutoField(primary_key=True)
    file = models.ForeignKey(StoredFile, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["file", "number"], name="stored_file_part_once")]

    def __str__(self) -> str:
        return f"{self.file_id} {self.number}"


class BatchState(models.TextChoices):
    """OpenAI's states of a batch."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


OPEN = (BatchState.VALIDATING, BatchState.IN_PROGRESS, BatchState.FINALIZING, BatchState.CANCELLING)


class Batch(Claimable):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="batches")
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.PROTECT, related_name="+", help_text="API key in whose limits the requests count."
    )
    endpoint = models.CharField(max_length=32, choices=ApiEndpoint.choices)
    input_file = models.ForeignKey(
        StoredFile,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="File of the requests; null: it was deleted.",
    )
    output_file = models.ForeignKey(
        StoredFile,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="File of the answers; null: none was written, or it was deleted.",
    )
    error_file = models.ForeignKey(
        StoredFile,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="File of the requests that failed, with their errors; null: none was written, or it was deleted.",
    )
    # Public names of the files, kept after the files are deleted.
    file_names = models.JSONField(default=dict)
    state = models.CharField(max_length=16, choices=BatchState.choices, default=BatchState.VALIDATING)
    errors = models.JSONField(
        default=list, help_text="Errors of lines that are no requests, each with code, message, param and line."
    )
    metadata = models.JSONField(null=True, help_text="Metadata that the client sent with the batch; null: none.")
    total = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    times = models.JSONField(
        default=dict, help_text="Time at which the batch reached each state, in seconds since 1970."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    objects = TenantQuerySet["Batch"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="batches_by_tenant"),
            models.Index(fields=["created_at"], condition=Q(state__in=OPEN), name="batches_that_run"),
        ]

    def __str__(self) -> str:
        return f"batch_{self.id.hex}"

    @property
    def url(self) -> str:
        """Path of the endpoint that the batch's requests call."""
        return next(url for url, kind in ENDPOINTS.items() if kind == self.endpoint)


class BatchLine(models.Model):
    """A request of a batch that is open; deleted once its result is in a file."""

    id = models.BigAutoField(primary_key=True)
    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="lines")
    number = models.PositiveIntegerField()
    custom_id = models.CharField(max_length=64)
    body = models.TextField(help_text="The request as JSON.")
    result = models.TextField(
        null=True, help_text="Line of the output or error file, written once; null: the request has not ended."
    )
    failed = models.BooleanField(default=False)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["batch", "number"], name="batch_line_once")]
        indexes = [
            models.Index(fields=["batch", "number"], condition=Q(result=None), name="batch_lines_to_run"),
        ]

    def __str__(self) -> str:
        return f"{self.batch_id} {self.number}"
