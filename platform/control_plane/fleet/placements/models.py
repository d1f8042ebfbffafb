"""Rows of what is to be on hosts: versions with the progress of their staging, and pinned prefixes."""

import uuid

from django.db import models
from django.db.models import Q

from control_plane.adapters.registry.models import NAME, Adapter, AdapterVersion
from control_plane.core.jobs.models import Claimable
from control_plane.fleet.hosts.models import EngineHost, StagingPhase
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class Placement(Claimable):
    """A version that should be on a host, and the progress of its staging."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    version = models.ForeignKey(AdapterVersion, on_delete=models.CASCADE, related_name="placements")
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="placements")
    phase = models.CharField(max_length=16, choices=StagingPhase.choices, default=StagingPhase.QUEUED)
    bytes_done = models.PositiveBigIntegerField(default=0)
    bytes_total = models.PositiveBigIntegerField(default=0)
    bytes_per_second = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Current rate of the transfer in bytes per second; 0: no bytes are moving."
    )
    pool_pages = models.PositiveIntegerField(
        default=0,
        help_text="Number of pages of the device's pool that the adapter takes once it is ready; 0: not known.",
    )
    dtype = models.CharField(
        max_length=16,
        blank=True,
        default="",
        db_default="",
        help_text="Dtype in which the host serves the adapter; empty: not known.",
    )
    dtype_report = models.JSONField(
        null=True,
        blank=True,
        help_text="Comparison of dtypes on the host, in the form of `DtypeReportSerializer`; null: none yet.",
    )
    error = models.JSONField(
        null=True,
        blank=True,
        help_text="{code, message, fix} of the last failed attempt; null: none failed, or a new attempt has begun.",
    )
    attempts = models.PositiveIntegerField(
        default=0, help_text="Number of staging attempts since the placement was last queued."
    )
    next_attempt_at = models.DateTimeField(
        null=True, help_text="Time before which staging is not tried again after a failure; null: no wait."
    )
    boot_id = models.CharField(
        max_length=64,
        blank=True,
        help_text="Boot id of the engine on which the version last became ready; empty: none.",
    )
    failed_boot_id = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Boot id of the engine on which staging failed; empty: it has not failed since it last succeeded.",
    )
    failures = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of stagings in a row that failed after their last attempt."
    )
    pinned = models.BooleanField(
        default=False, db_default=False, help_text="Whether the host reported that it keeps the adapter loaded."
    )
    unneeded_since = models.DateTimeField(
        null=True, blank=True, help_text="Time since which demand wants no copy on this host; null: a copy is wanted."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["host__name"]
        constraints = [
            models.UniqueConstraint(fields=["version", "host"], name="placement_once_per_host"),
            models.CheckConstraint(condition=Q(phase__in=StagingPhase.values), name="placement_phase_known"),
        ]
        indexes = [models.Index(fields=["phase", "updated_at"], name="placement_by_phase")]

    def __str__(self) -> str:
        return f"{self.version_id} on {self.host_id}: {self.phase}"


class PinnedPrefix(models.Model):
    """The beginning of a tenant's prompts for an adapter or a base model, which is to stay in the hosts' KV cache.

    Its text is kept here, for hosts that start or join, until it is unpinned.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="pinned_prefixes")
    name = models.CharField(max_length=64, validators=[NAME])
    adapter = models.ForeignKey(
        Adapter,
        null=True,
        on_delete=models.CASCADE,
        related_name="pinned_prefixes",
        help_text="Adapter whose prompts begin with the prefix; null: it is for a base model.",
    )
    base_digest = models.CharField(
        max_length=71,
        blank=True,
        help_text="Digest of the base model whose prompts begin with the prefix; empty: it is for an adapter.",
    )
    # Text, as a JSON column may put the members of objects in another order, and templates write them in theirs.
    prompt = models.TextField(
        help_text="The prefix as JSON, in the form of `NewPrefixSerializer`: a prompt, or messages with their options."
    )
    cache_salt = models.CharField(max_length=256, blank=True)
    tokens = models.PositiveIntegerField(
        help_text="Number of tokens shared by all prompts that begin with the prefix, as last counted by a host."
    )
    pinned_at = models.DateTimeField()

    objects = TenantQuerySet["PinnedPrefix"].as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="pinned_prefix_name_once")]

    def __str__(self) -> str:
        return self.name


class PrefixState(models.TextChoices):
    """The state of a pinned prefix on a host."""

    KEPT = "kept"
    COMPUTING = "computing"  # or waiting until requests leave it time and room
    NO_ROOM = "no_room"  # older pins take all that pins may take
    OVER_QUOTA = "over_quota"  # the tenant's older pins take its whole quota
    FAILED = "failed"
    OFF = "off"  # the engine keeps no prefixes
    WAITING = "waiting"  # the host was not told yet


class PrefixOnHost(models.Model):
    """The last report of a host about a pinned prefix."""

    prefix = models.ForeignKey(
        PinnedPrefix,
        null=True,
        on_delete=models.SET_NULL,
        related_name="hosts",
        help_text="The pinned prefix; null: it was unpinned, and the host has not been notified yet.",
    )
    host = models.ForeignKey(EngineHost, on_delete=models.CASCADE, related_name="+")
    boot_id = models.CharField(max_length=64, help_text="Boot id of the engine that sent the report.")
    state = models.CharField(max_length=16, choices=PrefixState.choices)
    tokens = models.PositiveIntegerField(default=0)
    error = models.JSONField(
        null=True, blank=True, help_text="{code, message, fix} with the state `failed`; null in the other states."
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["prefix", "host"], name="pinned_prefix_once_per_host")]

    def __str__(self) -> str:
        return f"{self.prefix_id} on {self.host_id}: {self.state}"
