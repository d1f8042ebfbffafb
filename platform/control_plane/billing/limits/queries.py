"""Queries of limits."""

from __future__ import annotations

from uuid import UUID

from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.values import UNLIMITED, Limits
from control_plane.identity.tenants.models import Tenant


def tenant_limits(tenant: Tenant) -> Limits:
    row = LimitSet.objects.for_tenant(tenant).filter(api_key=None).first()
    return row.limits if row else UNLIMITED


def key_limits(tenant: Tenant) -> dict[UUID, Limits]:
    """Return the limits of every key that has some."""
    rows = LimitSet.objects.for_tenant(tenant).exclude(api_key=None)
    return {row.api_key_id: row.limits for row in rows if row.api_key_id is not None}
