"""A tenant's objectives. A tenant without a row has none."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.identity.tenants.models import Tenant, TenantQuerySet

DEFAULT_TARGET = 0.99


class Objective(models.Model):
    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="objective")
    first_token_ms = models.PositiveIntegerField(
        null=True, help_text="Objective for milliseconds from the engine's queue to the first token; null: none."
    )
    inter_token_ms = models.PositiveIntegerField(
        null=True, help_text="Objective for milliseconds between tokens, the mean of a request; null: none."
    )
    target = models.FloatField(
        default=DEFAULT_TARGET, help_text="Share of requests that should meet each objective, 0.5 to below 1."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Objective"].as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(target__gte=0.5, target__lt=1), name="objective_target_is_a_share"),
            models.CheckConstraint(
                condition=(Q(first_token_ms=None) | Q(first_token_ms__gte=1))
                & (Q(inter_token_ms=None) | Q(inter_token_ms__gte=1)),
                name="objective_milliseconds_positive",
            ),
        ]

    def __str__(self) -> str:
        return f"objective of {self.tenant.slug}"
