"""Actions that set objectives and weights."""

from __future__ import annotations

from django.db import transaction

from control_plane.billing.slo.models import Objective
from control_plane.core.writes import announce
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Tenant


def set_objective(
    *, acting: Principal, first_token_ms: int | None, inter_token_ms: int | None, target: float
) -> Objective:
    """Set a tenant's objective. Within two seconds new requests carry it to the engine, which may refuse late ones."""
    values = {"first_token_ms": first_token_ms, "inter_token_ms": inter_token_ms, "target": target}
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)  # one change after another
        objectives = Objective.objects.for_tenant(acting.tenant)
        before = objectives.values(*values).first()
        if before == values:
            return objectives.get()
        row: Objective = objectives.update_or_create(tenant=acting.tenant, defaults=values)[0]
        slug = acting.tenant.slug
        audit.record(acting.actor, "slo.update", row, tenant=acting.tenant, label=slug, objective=values, before=before)
        announce(acting.tenant.pk, "slo.updated", dict)
    return row


def set_weight(*, actor: Actor, tenant: Tenant, weight: float) -> Tenant:
    """Set a tenant's weight: its share of full hosts, relative to the weights of the others."""
    with transaction.atomic():
        before = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk).weight
        tenant.weight = weight
        if before == weight:
            return tenant
        tenant.save(update_fields=["weight"])
        audit.record(actor, "tenant.weight", tenant, tenant=tenant, label=tenant.slug, weight=weight, before=before)
        announce(tenant.pk, "slo.updated", dict)
    return tenant
