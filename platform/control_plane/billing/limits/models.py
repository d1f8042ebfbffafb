"""Limits of tenants and keys. A tenant without a row has none."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from control_plane.billing.limits.values import NAMES, Limits
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant, TenantQuerySet


def _limit(text: str) -> models.PositiveBigIntegerField[int | None, int | None]:
    return models.PositiveBigIntegerField(null=True, blank=True, help_text=f"{text} Null = no limit.")


class LimitSet(models.Model):
    """The limits of a tenant, set by operators, if `api_key` is null; else of that key, set by the tenant's members."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="limit_sets")
    api_key = models.OneToOneField(
        ApiKey,
        null=True,
        on_delete=models.CASCADE,
        related_name="limit_set",
        help_text="API key that the limits are for; null: they are for the whole tenant.",
    )
    requests_per_minute = _limit("Maximum number of requests within any 60 seconds.")
    tokens_per_minute = _limit("Maximum number of prompt and output tokens within any 60 seconds.")
    tokens_per_day = _limit("Maximum number of prompt and output tokens in a UTC day.")
    tokens_per_month = _limit("Maximum number of prompt and output tokens in a UTC month.")
    concurrency = _limit("Maximum number of choices that run at once: n for each prompt of a request.")
    max_output_tokens = _limit("Maximum number of output tokens for each choice of a request.")
    adapters = _limit("Maximum number of adapters that are not archived.")
    storage_bytes = _limit("Maximum bytes of adapter versions that are not archived; shared content counts once.")
    max_rank = _limit("Maximum rank of any module of an adapter.")
    pinned_bytes: models.PositiveBigIntegerField[int | None, int | None] = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Maximum bytes of adapters and prefixes pinned in each host's device memory. Null or 0 = none.",
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["LimitSet"].as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant"], condition=Q(api_key=None), name="limits_once_per_tenant"),
            models.CheckConstraint(
                condition=Q(api_key=None) | Q(adapters=None, storage_bytes=None, max_rank=None, pinned_bytes=None),
                name="limits_of_a_key_are_of_requests",
            ),
        ]

    def __str__(self) -> str:
        return f"limits of {self.api_key_id or self.tenant_id}"

    @property
    def limits(self) -> Limits:
        return Limits(**{name: getattr(self, name) for name in NAMES})
