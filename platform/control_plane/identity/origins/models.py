"""A tenant's allowed origins. Without one, no page of another origin may read an answer."""

from __future__ import annotations

from django.db import models

from control_plane.identity.tenants.models import Tenant, TenantQuerySet

LONGEST_ORIGIN = 200


class AllowedOrigin(models.Model):
    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="allowed_origins")
    origin = models.CharField(max_length=LONGEST_ORIGIN, help_text="Scheme, host and port, as browsers send them.")

    objects = TenantQuerySet["AllowedOrigin"].as_manager()

    class Meta:
        ordering = ["origin"]
        constraints = [models.UniqueConstraint(fields=["tenant", "origin"], name="origin_once_per_tenant")]
        indexes = [models.Index(fields=["origin"], name="origins_by_origin")]

    def __str__(self) -> str:
        return self.origin
