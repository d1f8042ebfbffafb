"""Queries of a tenant's API settings."""

from __future__ import annotations

from control_plane.gateway.api_settings.models import ApiSettings
from control_plane.identity.tenants.models import Tenant


def api_settings_of(tenant: Tenant) -> ApiSettings:
    return ApiSettings.objects.for_tenant(tenant).first() or ApiSettings(tenant=tenant)
