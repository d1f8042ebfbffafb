"""Base models that the installation serves."""

from django.db import models
from django.db.models import Q


class BaseModel(models.Model):
    """A base model that this installation serves, or served before it was withdrawn. Only operators change that."""

    name = models.CharField(
        max_length=200, help_text="Name that callers put into `model`; unique among the served base models."
    )
    digest = models.CharField(
        max_length=71, unique=True, help_text="Digest of the base model's configuration and weights."
    )
    text_digest = models.CharField(
        max_length=71,
        blank=True,
        help_text="Digest of the base model's tokeniser and chat template; empty: not reported by its engine.",
    )
    adapters_of = models.JSONField(
        default=list, help_text="Digests of other base models whose adapters this base model serves too."
    )
    description = models.JSONField(help_text="EngineDescription as JSON, from the host whose base model was approved.")
    decided_by = models.CharField(max_length=300)
    decided_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(
        null=True, blank=True, help_text="Time from which the base model is not served; null: it is served."
    )
    sleeps_after_s = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Seconds without a request after which the base model needs no host; 0: it never sleeps.",
    )
    asked_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time of the last request for a base model that may sleep, accurate to a few seconds; null: none.",
    )

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(withdrawn_at__isnull=True), name="base_model_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name
