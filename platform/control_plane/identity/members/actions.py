"""Creating tenants and memberships."""

from __future__ import annotations

from django.db import transaction

from control_plane.core.names import require_name
from control_plane.identity.access.actor import Actor
from control_plane.identity.accounts.models import User
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.identity.tenants.roles import Role


def create_tenant(*, actor: Actor, slug: str, name: str) -> Tenant:
    """Create a tenant. Raises ValidationError, and BadNameError (400)."""
    with transaction.atomic():
        tenant = Tenant(slug=require_name(slug, "slug"), name=require_name(name))
        tenant.full_clean()
        tenant.save()
        audit.record(actor, "tenant.create", tenant, tenant=tenant, label=slug)
    return tenant


def add_member(*, actor: Actor, tenant: Tenant, user: User, role: Role) -> Membership:
    """Make `user` a member with `role`; an existing membership gets the role."""
    with transaction.atomic():
        membership, created = Membership.objects.for_tenant(tenant).update_or_create(
            tenant=tenant, user=user, defaults={"role": role}
        )
        action = "member.add" if created else "member.role"
        audit.record(actor, action, membership, tenant=tenant, label=user.email, role=str(role))
    return membership
