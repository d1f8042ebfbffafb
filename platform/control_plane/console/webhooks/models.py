"""Webhook endpoints of a tenant, events, and the messages in delivery."""

import uuid

from django.db import models
from django.db.models import Q

from control_plane.core.columns import account_column
from control_plane.core.jobs.clocks import database_time
from control_plane.core.jobs.models import Claimable
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class EventType(models.TextChoices):
    """The types of events that an endpoint can subscribe to."""

    UPLOAD_ACCEPTED = "upload.accepted"
    UPLOAD_REFUSED = "upload.refused"
    VERSION_READY = "version.ready"
    VERSION_FAILED = "version.failed"
    VERSION_FLAGGED = "version.flagged"
    VERSION_PROMOTED = "version.promoted"
    CANARY_FAILED = "canary.failed"
    ADAPTER_ARCHIVED = "adapter.archived"
    QUOTA_WARNING = "quota.warning"
    QUOTA_EXHAUSTED = "quota.exhausted"
    BUDGET_ALERT = "budget.alert"
    EXPORT_READY = "export.ready"
    TEST = "test"


class Endpoint(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=500)
    description = models.CharField(max_length=200, blank=True)
    events = models.JSONField(default=list, help_text="Types of events to send; empty = all.")
    active = models.BooleanField(default=True)
    secret_version = models.PositiveIntegerField(default=1)
    replaced_at = models.JSONField(
        default=list, help_text="Times at which the last secrets were replaced, newest first; empty: never."
    )
    failures = models.PositiveIntegerField(
        default=0, help_text="Number of failed attempts in a row, over all messages."
    )
    rests_until = models.DateTimeField(
        null=True,
        help_text="Time before which nothing is sent to the endpoint, after a failure or a slow answer; null: "
        "no pause.",
    )
    tried_at = models.DateTimeField(
        null=True, help_text="Time of the last attempt, whatever its result; null: there was none."
    )
    created_by = account_column("added the endpoint")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Endpoint"].as_manager()

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return self.url


class Event(models.Model):
    """An event to publish. It is kept as long as a message of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    type = models.CharField(max_length=32, choices=EventType.choices)
    data = models.JSONField()
    occasion = models.CharField(
        max_length=100,
        null=True,
        help_text="Key of the occurrence, so that an event is published once; null: it may be repeated.",
    )
    created_at = models.DateTimeField(default=database_time, editable=False)

    objects = TenantQuerySet["Event"].as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "occasion"], name="webhook_occasion_once")]

    def __str__(self) -> str:
        return f"{self.type} {self.id}"


class DeliveryState(models.TextChoices):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class Delivery(Claimable):
    """The message of one event to one endpoint."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="deliveries")
    event = models.ForeignKey(Event, on_delete=models.CASCADE, related_name="deliveries")
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.PENDING)
    attempts = models.PositiveIntegerField(
        default=0, help_text="Number of attempts since the message was created or sent again by a person."
    )
    next_attempt_at = models.DateTimeField()
    delivered_at = models.DateTimeField(
        null=True, help_text="Time at which the endpoint accepted the message; null: it did not."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["Delivery"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["endpoint", "next_attempt_at"], condition=Q(state="pending"), name="webhook_pending"),
            models.Index(fields=["endpoint", "-created_at"], name="webhook_recent"),
        ]
        constraints = [models.UniqueConstraint(fields=["endpoint", "event"], name="webhook_event_once_per_endpoint")]

    def __str__(self) -> str:
        return f"{self.id} {self.state}"


class Attempt(models.Model):
    """An attempt to deliver: the status of the answer, or the error without one."""

    id = models.BigAutoField(primary_key=True)
    delivery = models.ForeignKey(Delivery, on_delete=models.CASCADE, related_name="log")
    at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    status = models.PositiveSmallIntegerField(
        null=True, help_text="HTTP status of the answer; null: there was no answer, see `error`."
    )
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.at} {self.status or self.error}"
