"""Queries for allowed origins."""

from __future__ import annotations

from control_plane.identity.origins.models import AllowedOrigin
from control_plane.identity.tenants.models import Tenant


def origins_of(tenant: Tenant) -> list[str]:
    return list(AllowedOrigin.objects.for_tenant(tenant).values_list("origin", flat=True))


def is_allowed_by_any(origin: str) -> bool:
    """Return True if any tenant allows the origin: a preflight request carries no key, so its tenant is unknown."""
    return AllowedOrigin.objects.filter(origin=origin).exists()
