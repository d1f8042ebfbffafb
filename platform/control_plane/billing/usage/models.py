"""The usage ledger, by the engine's own counts, and its sums by hour and day.

Every report reads the sums, never the ledger. A series is one combination of the sums' dimensions; a rollup row is one
series in one hour or day.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import models

from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.core.jobs.clocks import database_time
from control_plane.fleet.base_models.models import BaseModel
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.append_only import AppendOnlyModel, AppendOnlyQuerySet
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class Outcome(models.TextChoices):
    FINISHED = "finished"
    ABORTED = "aborted"
    FAILED = "failed"
    REFUSED = "refused"


class ApiEndpoint(models.TextChoices):
    CHAT = "chat.completions"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"


def base_model_column(what: str, otherwise: str = "") -> "models.ForeignKey[Any, Any]":
    """Return a column for the base model that ran `what`, such as "the requests". `otherwise`: when it is null besides.

    Base models are never deleted and no query filters by the column, so it needs neither an index nor a constraint.
    """
    return models.ForeignKey(
        BaseModel,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
        db_constraint=False,
        help_text=f"Base model that ran {what}; null: unknown{otherwise}.",
    )


class UsageEvent(AppendOnlyModel):
    """A finished, aborted, failed or refused request. Neither prompt nor output is kept."""

    id = models.BigAutoField(primary_key=True)
    request_id = models.CharField(max_length=64)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="usage_events")
    api_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="API key that sent the request; null: a member did in the console.",
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Member who sent the request in the console; null: an API key did, or the account no longer exists.",
    )
    adapter = models.ForeignKey(
        Adapter,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Adapter that the request used; null: the base model alone.",
    )
    version = models.ForeignKey(
        AdapterVersion,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Version of the adapter that the request used; null: the base model alone.",
    )
    base_model = base_model_column("the request", otherwise=", or older than this column")
    model = models.CharField(max_length=200, help_text="Model name as the client wrote it.")
    endpoint = models.CharField(max_length=32, choices=ApiEndpoint.choices)
    streamed = models.BooleanField(default=False)
    batch = models.BooleanField(
        default=False,
        db_default=False,
        help_text="True: the request is a line of a batch and is billed at the price of batches.",
    )
    host = models.CharField(max_length=64, blank=True)
    prompt_tokens = models.PositiveIntegerField()
    cached_prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField()
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    error_code = models.CharField(max_length=64, blank=True)
    queue_ms = models.PositiveIntegerField(default=0)
    adapter_load_ms = models.PositiveIntegerField(default=0)
    first_token_ms = models.PositiveIntegerField(default=0)
    prefill_ms = models.PositiveIntegerField(default=0)
    decode_ms = models.PositiveIntegerField(default=0)
    preemptions = models.PositiveIntegerField(default=0)
    preempted_ms = models.PositiveIntegerField(default=0, db_default=0)
    device_us = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Request's share of the device time, in microseconds."
    )
    drafted_tokens = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of draft tokens that speculative decoding computed; never billed."
    )
    accepted_tokens = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of completion tokens that were accepted draft tokens."
    )
    auth_ms = models.PositiveIntegerField(default=0, db_default=0)
    quota_ms = models.PositiveIntegerField(default=0, db_default=0)
    finish_reason = models.CharField(max_length=32, blank=True, default="", db_default="")
    adapter_loaded_from = models.CharField(max_length=8, blank=True, default="", db_default="")
    preemption_spans = models.JSONField(
        null=True, help_text="First 16 pre-emptions: start since submission and duration, in milliseconds; null: none."
    )
    ignored = models.JSONField(null=True, help_text="Fields of the request that were ignored; null: none.")
    schema_violations = models.JSONField(
        null=True, help_text="Keywords of the request's schema that the output violates; null: none."
    )
    created_at = models.DateTimeField(help_text="Time at which the request came in.")

    # Set on rows that are shown; see `queries.recent_requests`.
    cost_micros: int | None
    currency: str | None

    objects = AppendOnlyQuerySet["UsageEvent"].as_manager()

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="usage_recent_by_tenant"),
            models.Index(fields=["tenant", "created_at"], name="usage_by_tenant_and_time"),
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(outcome__in=Outcome.values), name="usage_outcome_known"),
            models.CheckConstraint(
                condition=models.Q(cached_prompt_tokens__lte=models.F("prompt_tokens")), name="usage_cached_in_prompt"
            ),
            # ``unique`` of a text would add an index for LIKE, which no query uses: a seventh of a request's bytes.
            models.UniqueConstraint(fields=["request_id"], name="usage_event_once"),
        ]

    def __str__(self) -> str:
        return self.request_id


class Series(models.Model):
    """A combination of tenant, adapter version, key, base model, outcome and batch. No adapter means the base model; no
    key means a member in the console."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    adapter = models.ForeignKey(
        Adapter,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Adapter of the requests; null: the base model alone.",
    )
    version = models.ForeignKey(
        AdapterVersion,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Version of the adapter of the requests; null: the base model alone.",
    )
    api_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="API key that sent the requests; null: members in the console.",
    )
    base_model = base_model_column("the requests")
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    batch = models.BooleanField(default=False, db_default=False)
    # A unique constraint over the columns would treat two rows without a key as different.
    identity = models.CharField(max_length=200, unique=True)

    objects = TenantQuerySet["Series"].as_manager()

    def __str__(self) -> str:
        return self.identity


class Sums(models.Model):
    """The summed figures. Times are of all requests together."""

    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    cached_prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    device_us = models.BigIntegerField()
    queue_ms = models.BigIntegerField()
    adapter_load_ms = models.BigIntegerField()
    drafted_tokens = models.BigIntegerField(default=0, db_default=0)
    accepted_tokens = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        abstract = True


class TenantSums(Sums):
    # Each table has an index that begins with it, and sums rows of an existing tenant: no constraint to check per row.
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)

    class Meta:
        abstract = True


class HourlyUsage(TenantSums):
    id = models.BigAutoField(primary_key=True)
    series = models.ForeignKey(Series, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    start = models.DateTimeField()

    objects = TenantQuerySet["HourlyUsage"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["series", "start"], name="usage_hour_once_per_series")]
        indexes = [
            models.Index(fields=["tenant", "start"], name="usage_hours_of_tenant"),
            models.Index(fields=["start"], name="usage_hours"),
        ]

    def __str__(self) -> str:
        return f"{self.series_id} {self.start:%Y-%m-%d %H}h"


class DailyUsage(TenantSums):
    id = models.BigAutoField(primary_key=True)
    series = models.ForeignKey(Series, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    start = models.DateField(help_text="Day (UTC) that the figures cover.")

    objects = TenantQuerySet["DailyUsage"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["series", "start"], name="usage_day_once_per_series")]
        indexes = [
            models.Index(fields=["tenant", "start"], name="usage_days_of_tenant"),
            models.Index(fields=["start"], name="usage_days"),
        ]

    def __str__(self) -> str:
        return f"{self.series_id} {self.start}"


class DailyTotals(TenantSums):
    """A tenant's day on a base model, without regard to adapters and keys."""

    id = models.BigAutoField(primary_key=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    batch = models.BooleanField(default=False, db_default=False)
    # Not null, as a unique constraint would treat two rows without one as different.
    base_id = models.PositiveBigIntegerField(default=0, db_default=0, help_text="Id of the base model; 0: not known.")
    start = models.DateField(help_text="Day (UTC) that the figures cover.")

    objects = TenantQuerySet["DailyTotals"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "start", "outcome", "batch", "base_id"], name="usage_totals_once_per_tenant_and_day"
            )
        ]
        indexes = [models.Index(fields=["start"], name="usage_totals_days")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start} {self.outcome}"


# Stands for the primary key of an adapter in rows of the base model itself.
BASE_MODEL_ITSELF = UUID(int=0)


class DailyActivity(models.Model):
    """A tenant's day with an adapter or none, on all base models, in which reports search for those that used most.

    It has no cost, as prices are per base model; the costs are then added up from the rows that have them.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    # Not null, as a unique constraint would treat two rows without one as different.
    adapter_id = models.UUIDField(
        default=BASE_MODEL_ITSELF, help_text="Id of the adapter; all zeros: the base model without an adapter."
    )
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    start = models.DateField(help_text="Day (UTC) that the figures cover.")
    requests = models.BigIntegerField()
    device_us = models.BigIntegerField()

    objects = TenantQuerySet["DailyActivity"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["start", "tenant", "adapter_id", "outcome"], name="usage_activity_once_per_adapter_and_day"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start} {self.adapter_id} {self.outcome}"


class OverallTotals(Sums):
    """A day of all tenants on a base model."""

    id = models.BigAutoField(primary_key=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    batch = models.BooleanField(default=False, db_default=False)
    # Not null, as a unique constraint would treat two rows without one as different.
    base_id = models.PositiveBigIntegerField(default=0, db_default=0, help_text="Id of the base model; 0: not known.")
    start = models.DateField(help_text="Day (UTC) that the figures cover.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["start", "outcome", "batch", "base_id"], name="usage_overall_once_per_day")
        ]

    def __str__(self) -> str:
        return f"{self.start} {self.outcome}"


class Metric(models.TextChoices):
    """The latencies of answered requests. The time between tokens is the mean of each request."""

    FIRST_TOKEN = "first_token"
    INTER_TOKEN = "inter_token"


class DailyLatency(models.Model):
    """The number of a tenant's requests of a day in one bucket of `histogram.BOUNDS_US`."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    start = models.DateField(help_text="Day (UTC) that the figures cover.")
    metric = models.CharField(max_length=16, choices=Metric.choices)
    bucket = models.PositiveSmallIntegerField()
    requests = models.BigIntegerField()

    objects = TenantQuerySet["DailyLatency"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "start", "metric", "bucket"], name="usage_latency_once_per_bucket"
            )
        ]
        indexes = [models.Index(fields=["start"], name="usage_latency_days")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start} {self.metric} {self.bucket}"


class OverallLatency(models.Model):
    """The number of all tenants' requests of a day in one bucket."""

    id = models.BigAutoField(primary_key=True)
    start = models.DateField(help_text="Day (UTC) that the figures cover.")
    metric = models.CharField(max_length=16, choices=Metric.choices)
    bucket = models.PositiveSmallIntegerField()
    requests = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["start", "metric", "bucket"], name="usage_overall_latency_once_per_bucket")
        ]

    def __str__(self) -> str:
        return f"{self.start} {self.metric} {self.bucket}"


class SeriesKind(models.TextChoices):
    """The kinds of time series. Each request is in one series of each kind, except a host's if it reached no host."""

    ALL = "all"
    TENANT = "tenant"
    VERSION = "version"
    KEY = "key"
    TENANT_HOST = "tenant_host"
    HOST = "host"


class TimeSeries(models.Model):
    """A time series by minute, hour and day, of one base model: of everybody, a tenant, an adapter version, a key, a
    tenant on a host, or a host.

    A version's series without an adapter is the base model's; a key's without a key is that of members in the console.
    No base model means requests older than that column, or of an unknown host.
    """

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=16, choices=SeriesKind.choices)
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Tenant whose requests are counted; null: all tenants.",
    )
    adapter = models.ForeignKey(
        Adapter,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Adapter of a series of an adapter version; null: the base model alone, or a series of another kind.",
    )
    version = models.ForeignKey(
        AdapterVersion,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="Version of a series of an adapter version; null: the base model alone, or a series of another kind.",
    )
    api_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="API key of a series of a key; null: members in the console, or a series of another kind.",
    )
    host = models.CharField(max_length=64, blank=True, default="", db_default="")
    base_model = base_model_column("the requests")
    # A unique constraint over the columns would treat two rows without a key as different.
    identity = models.CharField(max_length=200, unique=True)

    objects = TenantQuerySet["TimeSeries"].as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["tenant", "kind"], name="usage_series_of_tenant"),
            models.Index(fields=["kind", "host"], name="usage_series_of_host"),
        ]

    def __str__(self) -> str:
        return self.identity


class SeriesSums(Sums):
    """The sums of a series in one minute, hour or day.

    The histogram of latencies is in the row itself, as `time_series.latencies_of` reads it: with few requests, a row
    per bucket would be two rows per request and series.
    """

    id = models.BigAutoField(primary_key=True)
    # Both are written in one statement, and series are not deleted: checking the key would cost as much as the row.
    series = models.ForeignKey(
        TimeSeries, on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    start = models.PositiveIntegerField(help_text="Start of the minute, hour or day, in minutes since 1970-01-01 UTC.")
    outcome = models.CharField(max_length=16, choices=Outcome.choices)
    batch = models.BooleanField(default=False, db_default=False)
    latencies = models.JSONField(
        null=True,
        help_text="Number of requests by metric and bucket of latency; null: none was measured, or the series "
        "is of a key.",
    )

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.series_id} {self.start} {self.outcome}"


class MinuteSums(SeriesSums):
    """The sums of minutes, kept for `time_series.MINUTES_KEPT`."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["series", "start", "outcome", "batch"], name="usage_series_minute_once")
        ]
        indexes = [models.Index(fields=["start"], name="usage_series_minutes")]


class HourSums(SeriesSums):
    """The sums of hours, kept for `time_series.HOURS_KEPT`."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["series", "start", "outcome", "batch"], name="usage_series_hour_once")
        ]
        indexes = [models.Index(fields=["start"], name="usage_series_hours")]


class DaySums(SeriesSums):
    """The sums of UTC days, kept for `time_series.DAYS_KEPT`."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["series", "start", "outcome", "batch"], name="usage_series_day_once")
        ]
        indexes = [models.Index(fields=["start"], name="usage_series_days")]


class Watermark(models.Model):
    """The only row of the watermark: all ledger rows up to `event_id`, and no later ones, are in the rollups."""

    event_id = models.BigIntegerField(default=0)
    overall_event_id = models.BigIntegerField(
        default=0,
        db_default=0,
        help_text="Highest ledger id in the daily sums of all tenants; behind `event_id`: do not read them.",
    )
    series_event_id = models.BigIntegerField(default=0, db_default=0, help_text="Highest ledger id in the time series.")
    activity_event_id = models.BigIntegerField(
        default=0, db_default=0, help_text="Highest ledger id in `DailyActivity`; behind `event_id`: do not read it."
    )
    checked_at = models.DateTimeField(
        null=True, help_text="Time at which the ledger was last read to its end; null: never."
    )

    def __str__(self) -> str:
        return str(self.event_id)


class StorageDay(models.Model):
    """The storage of a tenant's adapters on a day: bytes x hours, measured once an hour."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    start = models.DateField(help_text="Day (UTC) that the figures cover.")
    byte_hours = models.BigIntegerField(default=0)
    measured_hours = models.PositiveSmallIntegerField(default=0)
    last_hour = models.DateTimeField(help_text="Start of the last hour that is included in the sum of byte-hours.")

    objects = TenantQuerySet["StorageDay"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "start"], name="usage_storage_once_per_day")]
        indexes = [models.Index(fields=["start"], name="usage_storage_days")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.start}"


class AbandonedTry(models.Model):
    """An attempt that another host replaced. Its record in the first host's journal is not billed."""

    engine_id = models.CharField(primary_key=True, max_length=64)
    created_at = models.DateTimeField(default=database_time, editable=False)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="usage_abandoned_by_age")]

    def __str__(self) -> str:
        return self.engine_id
