"""Changing a tenant's allowed origins."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.origins.models import AllowedOrigin
from control_plane.identity.tenants.models import Tenant


def set_origins(*, acting: Principal, origins: Sequence[str]) -> list[str]:
    """Replace the tenant's allowed origins; the change applies within a second."""
    wanted = sorted(set(origins))
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update().get(pk=acting.tenant.pk)  # serialises concurrent changes
        rows = AllowedOrigin.objects.for_tenant(tenant)
        before = sorted(rows.values_list("origin", flat=True))
        if before == wanted:
            return wanted
        rows.exclude(origin__in=wanted).delete()
        AllowedOrigin.objects.bulk_create(
            [AllowedOrigin(tenant=tenant, origin=origin) for origin in wanted], ignore_conflicts=True
        )
        audit.record(
            acting.actor, "origins.update", tenant, tenant=tenant, label=tenant.slug, origins=wanted, before=before
        )
    return wanted
