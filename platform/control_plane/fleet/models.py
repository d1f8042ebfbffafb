"""The base model of the installation, engine hosts as last seen, and the staging of each version on each host."""

import uuid

from django.db import models
from django.db.models import Q

from control_plane.adapters.models import AdapterVersion
from control_plane.jobs.models import Claimable


class BaseModel(models.Model):
    """One row: the base model that this installation serves. Only an operator changes it."""

    name = models.CharField(max_length=200, help_text="What callers put into `model`.")
    digest = models.CharField(max_length=71, help_text="Of its configuration and weights.")
    text_digest = models.CharField(max_length=71, blank=True, help_text="Of its tokeniser and chat template.")
    adapters_of = models.JSONField(default=list, help_text="Digests of base models whose adapters it serves too.")
    description = models.JSONField(help_text="EngineDescription as JSON, of the host from which it was taken.")
    decided_by = models.CharField(max_length=300)
    decided_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class HostState(models.TextChoices):
    UNKNOWN = "unknown"
    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class EngineHost(models.Model):
    """One engine process. Hosts belong to the installation and not to a tenant."""

    name = models.CharField(max_length=64, unique=True)
    address = models.CharField(max_length=300, help_text='"unix:/path" or "host:port".')
    boot_id = models.CharField(max_length=64, blank=True, help_text="New at every engine start; empty if never seen.")
    description = models.JSONField(default=dict, help_text="EngineDescription as JSON, with its geometry.")
    last_status = models.JSONField(default=dict, help_text="The last HostStatus as JSON.")
    last_seen = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=HostState.choices, default=HostState.UNKNOWN)
    active = models.BooleanField(default=True, help_text="Named in the settings; inactive hosts get no placements.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.CheckConstraint(condition=Q(state__in=HostState.values), name="host_state_known")]

    def __str__(self) -> str:
        return self.name


class Phase(models.TextChoices):
    """The engine's staging phases, by the names of the wire contract in lower case."""

    QUEUED = "queued"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Placement(Claimable):
    """A version that should be on a host, and how far it got."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    version = models.ForeignKey(AdapterVersion, on_delete=models.CASCADE, related_name="placements")
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="placements")
    phase = models.CharField(max_length=16, choices=Phase.choices, default=Phase.QUEUED)
    bytes_done = models.PositiveBigIntegerField(default=0)
    bytes_total = models.PositiveBigIntegerField(default=0)
    pool_pages = models.PositiveIntegerField(default=0, help_text="Pages it takes on the device, once ready.")
    error = models.JSONField(null=True, blank=True, help_text="{code, message, fix} with phase failed.")
    attempts = models.PositiveIntegerField(default=0, help_text="Since it was queued.")
    next_attempt_at = models.DateTimeField(null=True, help_text="After a failure it waits until then.")
    boot_id = models.CharField(max_length=64, blank=True, help_text="The engine start on which it became ready.")
    failed_boot_id = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="The engine start on which it failed."
    )
    failures = models.PositiveIntegerField(default=0, db_default=0, help_text="In a row.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["host__name"]
        constraints = [
            models.UniqueConstraint(fields=["version", "host"], name="placement_once_per_host"),
            models.CheckConstraint(condition=Q(phase__in=Phase.values), name="placement_phase_known"),
        ]
        indexes = [models.Index(fields=["phase", "updated_at"], name="placement_by_phase")]

    def __str__(self) -> str:
        return f"{self.version_id} on {self.host_id}: {self.phase}"
