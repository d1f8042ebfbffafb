"""Evaluation sets, and evaluations of versions with them. The result is stored with the version too."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from control_plane.adapters.registry.models import NAME, AdapterVersion, EvaluationMetric
from control_plane.adapters.uploads.models import Upload
from control_plane.core.columns import account_column
from control_plane.gateway.batches.models import Batch
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class EvaluationSet(models.Model):
    """A set of items with expected answers. It never changes, so scores of one set can be compared."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="evaluation_sets")
    name = models.CharField(max_length=64, validators=[NAME])
    metric = models.CharField(max_length=16, choices=EvaluationMetric.choices)
    max_tokens = models.PositiveIntegerField(help_text="Maximum number of tokens of an answer.")
    items = models.JSONField(help_text="[{line, prompt or messages, expected}]")
    created_by = account_column("created the set", otherwise="an API key did")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet["EvaluationSet"].as_manager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["tenant", "name"], name="evaluation_set_once_per_tenant")]

    def __str__(self) -> str:
        return self.name

    @property
    def count(self) -> int:
        return len(self.items)

    @property
    def is_chat(self) -> bool:
        """True if all of its items have messages, False if all have a prompt."""
        return "messages" in self.items[0]


class EvaluationState(models.TextChoices):
    WAITING = "waiting"  # until the upload is accepted and the version ready
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (EvaluationState.WAITING, EvaluationState.RUNNING)


class Evaluation(models.Model):
    """An evaluation of one version; its requests are those of a batch."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="evaluations")
    set = models.ForeignKey(
        EvaluationSet,
        null=True,
        on_delete=models.SET_NULL,
        related_name="evaluations",
        help_text="Evaluation set; null: it was deleted.",
    )
    set_name = models.CharField(max_length=64, help_text="Name of the set; it stays when the set is deleted.")
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.PROTECT, related_name="+", help_text="API key with which the requests are counted."
    )
    upload = models.ForeignKey(
        Upload,
        null=True,
        on_delete=models.CASCADE,
        related_name="evaluations",
        help_text="Upload whose version is evaluated; null: the evaluation was started for a version.",
    )
    version = models.ForeignKey(
        AdapterVersion,
        null=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="Version that is evaluated; null: its requests have not begun, and it was started for an upload.",
    )
    live = models.ForeignKey(
        AdapterVersion,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Live version whose answers are scored too; null: none was ready, or it is the evaluated one.",
    )
    batch = models.ForeignKey(
        Batch,
        null=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Batch of the requests; null: they have not begun, or the batch was deleted.",
    )
    state = models.CharField(max_length=16, choices=EvaluationState.choices, default=EvaluationState.WAITING)
    problem = models.JSONField(
        null=True, help_text="{code, message, fix}: the reason why the evaluation waits or failed; null: neither."
    )
    score = models.JSONField(
        null=True, help_text="Result, with the fields of `ScoreSerializer`; null: the evaluation is not completed."
    )
    created_by = account_column("requested the evaluation", otherwise="an upload or an API key did")
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(
        null=True, help_text="Time at which the evaluation was completed, failed or cancelled; null: it is open."
    )

    objects = TenantQuerySet["Evaluation"].as_manager()

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["tenant", "-created_at"], name="evaluations_by_tenant"),
            models.Index(fields=["created_at"], condition=Q(state__in=OPEN), name="evaluations_that_run"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(upload__isnull=False) | Q(version__isnull=False), name="evaluation_of_something"
            )
        ]

    def __str__(self) -> str:
        return f"{self.set_name} {self.state}"

    @property
    def adapter_name(self) -> str:
        if self.version is not None:
            return self.version.adapter.name
        assert self.upload is not None
        return self.upload.adapter_name
