"""Exports, which are tables of usage that a job writes for download, and schedules of exports."""

import uuid

from django.db import models

from control_plane.core.columns import account_column
from control_plane.core.jobs.clocks import database_time
from control_plane.core.jobs.models import Claimable
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class Grain(models.TextChoices):
    DAY = "day"
    HOUR = "hour"


class Cadence(models.TextChoices):
    """The period that a schedule exports."""

    WEEK = "week"
    MONTH = "month"


class ExportState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    READY = "ready"
    FAILED = "failed"


class ExportSchedule(models.Model):
    """A schedule that exports the usage of each week or month (UTC) once it is over."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="export_schedules")
    cadence = models.CharField(max_length=8, choices=Cadence.choices)
    grain = models.CharField(max_length=8, choices=Grain.choices)
    created_by = account_column("created the schedule")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["ExportSchedule"].as_manager()

    class Meta:
        ordering = ["created_at"]
        constraints = [models.UniqueConstraint(fields=["tenant", "cadence", "grain"], name="export_schedule_once")]

    def __str__(self) -> str:
        return f"{self.cadence}ly by {self.grain}"


class Export(Claimable):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="exports")
    schedule = models.ForeignKey(
        ExportSchedule,
        null=True,
        on_delete=models.SET_NULL,
        related_name="exports",
        help_text="Schedule that began the export; null: a request did, or the schedule was deleted.",
    )
    first = models.DateField()
    last = models.DateField()
    grain = models.CharField(max_length=8, choices=Grain.choices)
    state = models.CharField(max_length=8, choices=ExportState.choices, default=ExportState.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    lines = models.BigIntegerField(default=0, help_text="Number of lines in the file, without the heading.")
    bytes = models.BigIntegerField(default=0, help_text="Size of the compressed file in bytes.")
    created_by = account_column("requested the export", otherwise="an API key or a schedule did")
    created_by_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="API key that requested the export; null: an account or a schedule did.",
    )
    created_at = models.DateTimeField(default=database_time, editable=False)
    ready_at = models.DateTimeField(null=True, help_text="Time at which the file was complete; null: it is not.")

    objects = TenantQuerySet["Export"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [models.UniqueConstraint(fields=["schedule", "first"], name="export_once_per_schedule_and_time")]

    def __str__(self) -> str:
        return f"{self.first} to {self.last} by {self.grain}"

    @property
    def scheduled(self) -> bool:
        return self.schedule_id is not None

    @property
    def file_name(self) -> str:
        return f"usage-{self.tenant.slug}-{self.first}-{self.last}-by-{self.grain}.csv.gz"


class ExportPart(models.Model):
    """A piece of the compressed file. It is in the database because web and worker may share no folder."""

    id = models.BigAutoField(primary_key=True)
    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["export", "number"], name="export_part_once")]

    def __str__(self) -> str:
        return f"{self.export_id} {self.number}"
