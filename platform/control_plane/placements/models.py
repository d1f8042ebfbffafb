"""A placement: a version that is to be on a host, and how far its staging is."""

import uuid

from django.db import models
from django.db.models import Q

from control_plane.adapters.models import AdapterVersion
from control_plane.fleet.models import EngineHost, StagingPhase
from control_plane.jobs.models import Claimable


class Placement(Claimable):
    """A version that should be on a host, and how far it got."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    version = models.ForeignKey(AdapterVersion, on_delete=models.CASCADE, related_name="placements")
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="placements")
    phase = models.CharField(max_length=16, choices=StagingPhase.choices, default=StagingPhase.QUEUED)
    bytes_done = models.PositiveBigIntegerField(default=0)
    bytes_total = models.PositiveBigIntegerField(default=0)
    bytes_per_second = models.PositiveBigIntegerField(default=0, db_default=0, help_text="0 = not moving.")
    pool_pages = models.PositiveIntegerField(default=0, help_text="Pages it takes on the device, once ready.")
    error = models.JSONField(null=True, blank=True, help_text="{code, message, fix} with phase failed.")
    attempts = models.PositiveIntegerField(default=0, help_text="Since it was queued.")
    next_attempt_at = models.DateTimeField(null=True, help_text="After a failure it waits until then.")
    boot_id = models.CharField(max_length=64, blank=True, help_text="The engine start on which it became ready.")
    failed_boot_id = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="The engine start on which it failed."
    )
    failures = models.PositiveIntegerField(default=0, db_default=0, help_text="In a row.")
    pinned = models.BooleanField(default=False, db_default=False, help_text="The host said that it keeps it loaded.")
    unneeded_since = models.DateTimeField(null=True, blank=True, help_text="By demand: no copy is wanted here since.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "fleet"  # whose migrations it has
        ordering = ["host__name"]
        constraints = [
            models.UniqueConstraint(fields=["version", "host"], name="placement_once_per_host"),
            models.CheckConstraint(condition=Q(phase__in=StagingPhase.values), name="placement_phase_known"),
        ]
        indexes = [models.Index(fields=["phase", "updated_at"], name="placement_by_phase")]

    def __str__(self) -> str:
        return f"{self.version_id} on {self.host_id}: {self.phase}"
