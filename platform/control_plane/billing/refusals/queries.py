"""Queries of refusals."""

from __future__ import annotations

from control_plane.billing.refusals.models import Refusal
from control_plane.core.http.cursors import Page, page_of
from control_plane.identity.tenants.models import Tenant


def recent_refusals(tenant: Tenant, limit: int, cursor: str | None = None) -> Page[Refusal]:
    """Return a page of refusals, the newest first."""
    return page_of(Refusal.objects.for_tenant(tenant), limit, cursor, "api_key")
