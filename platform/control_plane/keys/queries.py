"""Looking up API keys."""

from __future__ import annotations

from uuid import UUID

from control_plane.errors import NotFoundError
from control_plane.keys.models import ApiKey
from control_plane.tenants.models import Tenant


def get_key(tenant: Tenant, key_id: UUID) -> ApiKey:
    """Raises NotFoundError (404) if the tenant has no such key."""
    key = ApiKey.objects.for_tenant(tenant).filter(pk=key_id).first()
    if key is None:
        raise NotFoundError(
            f"There is no key {key_id} in this tenant.", "GET keys lists them.", code="key_not_found", param="id"
        )
    return key
