"""Budgets in money. The model of the other limits is in `limits`; its migrations are here too."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.billing.limits.models import LimitSet
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet

__all__ = ["AtLimit", "Budget", "BudgetSpan", "LimitSet"]


class BudgetSpan(models.TextChoices):
    """The span of a budget, in UTC as in every report."""

    DAY = "day"
    MONTH = "month"


class AtLimit(models.TextChoices):
    WARN = "warn"
    REFUSE = "refuse"


class Budget(models.Model):
    """A cap on spending in a day or month: of a tenant, granted by an operator or set by its admins; or of a key."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="budgets")
    api_key = models.ForeignKey(
        ApiKey,
        null=True,
        on_delete=models.CASCADE,
        related_name="budgets",
        help_text="API key that the budget is for; null: it is for the whole tenant.",
    )
    by_operator = models.BooleanField(default=False)
    span = models.CharField(max_length=8, choices=BudgetSpan.choices)
    amount_micros = models.PositiveBigIntegerField(
        help_text="Amount of the budget, in millionths of the price list's currency."
    )
    at_limit = models.CharField(max_length=8, choices=AtLimit.choices, default=AtLimit.REFUSE)
    alerts = models.JSONField(
        default=list, help_text="Percentages of the amount at which an alert is sent, in ascending order."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["Budget"].as_manager()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "by_operator", "span"], condition=Q(api_key=None), name="budget_once_per_tenant"
            ),
            models.UniqueConstraint(fields=["api_key", "span"], name="budget_once_per_key"),
            models.CheckConstraint(
                condition=Q(api_key=None) | Q(by_operator=False), name="budget_of_a_key_is_its_tenants"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.span}'s budget of {self.api_key_id or self.tenant_id}"
