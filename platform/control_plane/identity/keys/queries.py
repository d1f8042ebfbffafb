"""Queries for API keys."""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q, QuerySet

from control_plane.core.errors import NotFoundError
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant


def find_keys(tenant: Tenant, search: str) -> QuerySet[ApiKey]:
    """Return a tenant's keys with `search` in the name or public prefix, newest first."""
    keys = ApiKey.objects.for_tenant(tenant).select_related("created_by").order_by("-created_at", "pk")
    public = search.removeprefix("lk_").split("_")[0]
    return keys.filter(Q(name__icontains=search) | Q(prefix__icontains=public)) if search else keys


def get_key(tenant: Tenant, key_id: UUID) -> ApiKey:
    """Return a key of the tenant. Raises NotFoundError (404)."""
    key = ApiKey.objects.for_tenant(tenant).filter(pk=key_id).first()
    if key is None:
        raise NotFoundError(
            f"There is no key {key_id} in this tenant.", "GET keys lists them.", code="key_not_found", param="id"
        )
    return key
