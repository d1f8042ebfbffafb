"""Counts of requests that never reached an engine, and so are not in the usage ledger, by minute and reason.

A flood of refusals is a few rows: one for each key, endpoint, code and limit in a minute.
"""

from __future__ import annotations

from django.db import models

from control_plane.billing.usage.models import ApiEndpoint
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class Refusal(models.Model):
    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    api_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="API key of the refused requests; null: members sent them in the console.",
    )
    endpoint = models.CharField(max_length=32, choices=ApiEndpoint.choices)
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=64)
    limit = models.CharField(
        max_length=32, blank=True, help_text="Limit that caused the refusals; empty: the cause was not a limit."
    )
    model = models.CharField(max_length=200, blank=True, help_text="Model in the last refused request; empty: none.")
    param = models.CharField(
        max_length=100, blank=True, help_text="Parameter at fault in the last refused request; empty: none."
    )
    minute = models.DateTimeField()
    count = models.PositiveBigIntegerField(default=0)
    last_at = models.DateTimeField()
    # A unique constraint over the columns would treat two rows without a key as different.
    identity = models.CharField(max_length=240, unique=True)

    objects = TenantQuerySet["Refusal"].as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="refusals_recent_by_tenant"),
            models.Index(fields=["minute"], name="refusals_by_age"),
            models.Index(fields=["tenant", "minute"], name="refusals_by_tenant_and_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.count} x {self.code}"


class HourlyRefusals(models.Model):
    """Refusals by hour, for charts of weeks: kept longer than the rows by minute."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    start = models.PositiveIntegerField(help_text="Start of the hour, in minutes since 1970-01-01 UTC.")
    status = models.PositiveSmallIntegerField()
    code = models.CharField(max_length=64)
    count = models.PositiveBigIntegerField(default=0)

    objects = TenantQuerySet["HourlyRefusals"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "start", "status", "code"], name="refusals_once_per_hour")
        ]
        indexes = [models.Index(fields=["start"], name="refusals_hours")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start}: {self.count} x {self.code}"


class DailyRefusals(models.Model):
    """A tenant's refused requests on a day: kept longer than the rows by minute."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    start = models.DateField(help_text="Day (UTC) that the figures cover.")
    count = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(
        default=0,
        db_default=0,
        help_text="Number of the refused requests with a 5xx status, which are the platform's fault.",
    )

    objects = TenantQuerySet["DailyRefusals"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "start"], name="refusals_once_per_tenant_and_day")]
        indexes = [models.Index(fields=["start"], name="refusals_days")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start}: {self.count}"
