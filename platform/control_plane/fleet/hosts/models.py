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
    address = models.CharField(max_length=300, help_text='Address of the engine: "unix:/path" or "host:port".')
    boot_id = models.CharField(
        max_length=64,
        blank=True,
        help_text="Id of the engine's latest start, new at every start; empty: the host was never seen.",
    )
    description = models.JSONField(
        default=dict, help_text="EngineDescription as JSON, with the geometry of the base model."
    )
    last_status = models.JSONField(default=dict, help_text="The last HostStatus as JSON, without its adapters.")
    adapters_boot_id = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Boot id of the engine that reported the rows of `adapters`; empty: none did yet.",
    )
    last_seen = models.DateTimeField(
        null=True, blank=True, help_text="Time of the latest status; null: the host was never seen."
    )
    state = models.CharField(max_length=16, choices=HostState.choices, default=HostState.UNKNOWN)
    active = models.BooleanField(
        default=True,
        help_text="Whether the host is named in the settings or has joined; inactive hosts get no placements.",
    )
    service = models.CharField(
        max_length=16, choices=HostService.choices, default=HostService.SERVING, db_default="serving"
    )
    drained_boot_id = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Boot id of the engine that has received a drain; empty: none, or it was resumed.",
    )
    restart_boot_id = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Boot id of the engine for which a restart was last requested; empty: none was.",
    )
    restart_asked_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which a restart was last requested; null: none was."
    )
    restart_wait_s = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Seconds that running requests have to end before the requested restart."
    )
    credential = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        help_text="Id of the credential of a host that joined; empty: it was revoked, or the host is of the settings.",
    )
    authorities = models.CharField(
        max_length=80,
        blank=True,
        default="",
        db_default="",
        help_text="Ids of the accepted certificate authorities, first the one that issued the host's "
        "certificate; empty: none.",
    )
    joined_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the host last joined with a token; null: it never did."
    )
    certificate_expires_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the host's certificate expires; null: the host has none, or it was revoked.",
    )
    revoked_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the host's credential was revoked; null: it was not."
    )
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
    tier = models.CharField(
        max_length=16,
        help_text="The tier nearest to the device on which the host has the adapter: device, host or disk.",
    )
    running = models.PositiveIntegerField(help_text="Number of running requests that use the adapter.")
    bytes = models.PositiveBigIntegerField()
    rank = models.PositiveIntegerField(
        help_text="LoRA rank of the adapter; 0: not known, as the host has it on disk only."
    )
    experts_resident = models.PositiveIntegerField(
        default=0, help_text="Number of units of the adapter's experts in the page pool."
    )
    experts_total = models.PositiveIntegerField(
        default=0, help_text="Number of units of the adapter's experts; 0: none can be outside the page pool."
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["host", "digest"], name="host_adapter_once")]

    def __str__(self) -> str:
        return f"{self.digest[:19]} on {self.host_id}: {self.tier}"


class ServiceGap(models.Model):
    """The gap in service per weight of two tenants that both waited on a host: the widest of one step of time."""

    id = models.BigAutoField(primary_key=True)
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="+")
    step = models.PositiveSmallIntegerField(help_text="Length of the step in minutes.")
    start = models.PositiveIntegerField(help_text="Start of the step in minutes since 1970.")
    gap = models.FloatField(
        help_text="The step's gap in service that was nearest to its bound, in priced tokens per weight."
    )
    bound = models.FloatField(help_text="Upper bound of the gap under the queue policy, in priced tokens per weight.")
    share = models.FloatField(help_text="The gap divided by its bound.")
    ahead = models.CharField(max_length=64, help_text="Id of the tenant with more service.")
    behind = models.CharField(max_length=64, help_text="Id of the tenant with less service.")

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
