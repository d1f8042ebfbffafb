"""The settings of a tenant for its inference requests."""

from __future__ import annotations

from django.db import models

from control_plane.identity.tenants.models import Tenant, TenantQuerySet


class ApiSettings(models.Model):
    """The settings of one tenant. Without a row, they have their defaults."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="api_settings")
    refuse_unknown_fields = models.BooleanField(
        default=False, help_text="Refuse requests with fields that are not known, instead of leaving the fields out."
    )
    never_store_responses = models.BooleanField(
        default=False, help_text="Store no answer of /v1/responses, whatever its request says."
    )
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet["ApiSettings"].as_manager()

    def __str__(self) -> str:
        return f"API settings of {self.tenant.slug}"
