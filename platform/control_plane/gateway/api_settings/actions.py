"""Changing a tenant's API settings."""

from __future__ import annotations

from django.db import transaction

from control_plane.gateway.api_settings.models import ApiSettings
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant


def set_api_settings(*, acting: Principal, refuse_unknown_fields: bool, never_store_responses: bool) -> ApiSettings:
    """Set both settings, within a second. Responses that are stored already remain until they expire."""
    tenant = acting.tenant
    values = {"refuse_unknown_fields": refuse_unknown_fields, "never_store_responses": never_store_responses}
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # one change after another
        rows = ApiSettings.objects.for_tenant(tenant)
        before = rows.values(*values).first()
        if before == values:
            return rows.get()
        row: ApiSettings = rows.update_or_create(tenant=tenant, defaults=values)[0]
        audit.record(
            acting.actor, "api-settings.update", row, tenant=tenant, label=tenant.slug, **values, before=before
        )
    return row
