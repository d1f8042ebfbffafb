"""The base models of the installation, and engine hosts as last seen."""

from django.db import models
from django.db.models import Q


class HostState(models.TextChoices):
    UNKNOWN = "unknown"
    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class HostService(models.TextChoices):
    """The service that operators want of a host."""

    SERVING = "serving"
    CORDONED = "cordoned"  # no new adapters and no new requests
    DRAINED = "drained"  # cordoned, and the engine itself refuses requests from anywhere


class EngineHost(models.Model):
    """An engine process. Hosts belong to the installation and not to a tenant."""

    name = models.CharField(max_length=64, unique=True)
    address = models.CharField(max_length=300, help_text='"unix:/path" or "host:port".')
    boot_id = models.CharField(max_length=64, blank=True, help_text="New at every engine start; empty if never seen.")
    description = models.JSONField(default=dict, help_text="EngineDescription as JSON, with its geometry.")
    last_status = models.JSONField(default=dict, help_text="The last HostStatus as JSON, but for its adapters.")
    adapters_boot_id = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="The engine start that `adapters` are of."
    )
    last_seen = models.DateTimeField(null=True, blank=True)
    state = models.CharField(max_length=16, choices=HostState.choices, default=HostState.UNKNOWN)
    active = models.BooleanField(default=True, help_text="Named in the settings; inactive hosts get no placements.")
    service = models.CharField(
        max_length=16, choices=HostService.choices, default=HostService.SERVING, db_default="serving"
    )
    drained_boot_id = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="The engine start that was told to drain."
    )
    restart_boot_id = models.CharField(
        max_length=64, blank=True, default="", db_default="", help_text="The engine start that is to end."
    )
    restart_asked_at = models.DateTimeField(null=True, blank=True)
    restart_wait_s = models.PositiveIntegerField(default=0, db_default=0, help_text="For requests to end before it.")
    credential = models.CharField(
        max_length=32, blank=True, default="", db_default="", help_text="Of a host that joined; empty if revoked."
    )
    authorities = models.CharField(
        max_length=80,
        blank=True,
        default="",
        db_default="",
        help_text="Ids: of its certificate's, then of others it trusts.",
    )
    joined_at = models.DateTimeField(null=True, blank=True)
    certificate_expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, help_text="Its credential was taken back.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=HostState.values), name="host_state_known"),
            models.CheckConstraint(condition=Q(service__in=HostService.values), name="host_service_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def restarts(self) -> bool:
        """True while a requested restart is not done."""
        return bool(self.restart_boot_id) and self.restart_boot_id == self.boot_id


class HostAdapter(models.Model):
    """An adapter that a host has, as its last heartbeats reported. A row changes when the host reports a change."""

    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="adapters")
    digest = models.CharField(max_length=71)
    tier = models.CharField(max_length=16, help_text="The nearest to the device: device, host or disk.")
    running = models.PositiveIntegerField(help_text="Requests that use it.")
    bytes = models.PositiveBigIntegerField()
    rank = models.PositiveIntegerField(help_text="0 where it was not looked at yet.")
    experts_resident = models.PositiveIntegerField(default=0, help_text="Units of its experts in the pool.")
    experts_total = models.PositiveIntegerField(
        default=0, help_text="Units of its experts; 0 where none may lie outside the pool."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "digest"], name="host_adapter_once")]

    def __str__(self) -> str:
        return f"{self.digest[:19]} on {self.host_id}: {self.tier}"


class ServiceGap(models.Model):
    """The gap in service per weight of two tenants that both waited on a host: the widest of one step of time."""

    id = models.BigAutoField(primary_key=True)
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="+")
    step = models.PositiveSmallIntegerField(help_text="Minutes.")
    start = models.PositiveIntegerField(help_text="Minutes since 1970.")
    gap = models.FloatField(help_text="Priced tokens per weight.")
    bound = models.FloatField(help_text="What the order keeps it below.")
    share = models.FloatField(help_text="gap / bound")
    ahead = models.CharField(max_length=64, help_text="Id of a tenant.")
    behind = models.CharField(max_length=64, help_text="Id of a tenant.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "step", "start"], name="service_gap_once_per_step")]
        indexes = [models.Index(fields=["step", "start"], name="service_gap_by_time")]

    def __str__(self) -> str:
        return f"{self.host_id} {self.start}: {self.share:.2f}"


class StagingPhase(models.TextChoices):
    """The engine's staging phases, by the names of the wire contract in lower case."""

    QUEUED = "queued"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
