"""Base models that the installation serves."""

from django.db import models
from django.db.models import Q


class BaseModel(models.Model):
    """A base model that this installation serves, or served before it was withdrawn. Only operators change that."""

    name = models.CharField(max_length=200, help_text="What callers put into `model`.")
    digest = models.CharField(max_length=71, unique=True, help_text="Of its configuration and weights.")
    text_digest = models.CharField(max_length=71, blank=True, help_text="Of its tokeniser and chat template.")
    adapters_of = models.JSONField(default=list, help_text="Digests of base models whose adapters it serves too.")
    description = models.JSONField(help_text="EngineDescription as JSON, of the host from which it was taken.")
    decided_by = models.CharField(max_length=300)
    decided_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True, blank=True, help_text="Since then it is not served.")
    sleeps_after_s = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Seconds without a request after which it needs no host; 0 = it never sleeps.",
    )
    asked_at = models.DateTimeField(
        null=True, blank=True, help_text="Of one that may sleep: the last request for it, give or take seconds."
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
