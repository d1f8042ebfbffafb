"""Actions that set limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from django.db import transaction

from control_plane.billing.limits.models import LimitSet
from control_plane.billing.limits.values import Limits
from control_plane.core.writes import announce
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant


def set_tenant_limits(*, actor: Actor, tenant: Tenant, limits: Limits) -> LimitSet:
    """Set a tenant's limits, granted by an operator. In force within two seconds; running requests are completed."""
    with transaction.atomic():
        return _store(actor, tenant, None, limits)


def set_key_limits(*, acting: Principal, key: ApiKey, limits: Limits) -> LimitSet:
    """Set the limits of a tenant's key. The tenant's own limits apply as well."""
    with transaction.atomic():
        return _store(acting.actor, acting.tenant, key, limits)


def _store(actor: Actor, tenant: Tenant, key: ApiKey | None, limits: Limits) -> LimitSet:
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # one change after another
    rows = LimitSet.objects.for_tenant(tenant)
    names = asdict(limits)
    before = rows.filter(api_key=key).values(*names).first() or {}
    if before == names:
        return rows.get(api_key=key)
    row, _ = rows.update_or_create(tenant=tenant, api_key=key, defaults=names)
    action, label = ("tenant.limits", tenant.slug) if key is None else ("key.limits", key.name)
    audit.record(actor, action, key or tenant, tenant=tenant, label=label, limits=_set(names), before=_set(before))
    announce(tenant.pk, "limits.updated", lambda: {"key": str(key.pk) if key else None})
    return row


def _set(limits: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if value is not None}
