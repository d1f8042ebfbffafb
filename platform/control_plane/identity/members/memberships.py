"""Changes of memberships. Nobody grants or removes more rights than they have; an owner always remains."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction
from django.utils import timezone

from control_plane.core.errors import ForbiddenError, LorikeetError, NotFoundError
from control_plane.core.events.recheck import recheck_user
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.actions import require_proven
from control_plane.identity.accounts.models import User
from control_plane.identity.audit import actions as audit
from control_plane.identity.tenants.models import Invitation, Membership, Tenant
from control_plane.identity.tenants.roles import CAPABILITIES, Capability, Role


class RoleTooHighError(ForbiddenError):
    def __init__(self, role: Role) -> None:
        super().__init__(
            f'The role "{role}" has more rights than yours.',
            f"Ask a member with the role {role}.",
            code="role_above_own",
        )


class LastOwnerError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "last_owner",
            "The tenant would be left without an owner.",
            "Make somebody else an owner first.",
            status=409,
        )


def require_rank(acting: Principal, role: Role) -> None:
    """Raise RoleTooHighError unless the caller has all rights of `role`."""
    if not CAPABILITIES[role] <= acting.capabilities:
        raise RoleTooHighError(role)


def change_role(*, acting: Principal, user_id: UUID, role: Role) -> Membership:
    """Change a member's role. Open invitations by which they granted more than the new one allows are revoked.

    Raises NotFoundError, RoleTooHighError (403), LastOwnerError, UnprovenAccountError (409).
    """
    with transaction.atomic():
        membership = _locked(acting, user_id)
        before = Role(membership.role)
        require_rank(acting, before)
        require_rank(acting, role)
        if before == role:
            return membership
        _keep_an_owner(membership)
        if not CAPABILITIES[role] <= CAPABILITIES[before]:
            # The inviter may have accepted the invitation too: an unproven address does not identify the person.
            require_proven(membership.user)
        membership.role = role
        membership.save(update_fields=["role"])
        _audit(acting, "member.role", membership, role=str(role), before=str(before))
        _revoke_invitations(acting, membership.user, CAPABILITIES[role])
    return membership


def remove_member(*, acting: Principal, user_id: UUID) -> None:
    """Remove a member, and revoke their open invitations. Raises as `change_role`.

    Keys that they created belong to the tenant and stay.
    """
    with transaction.atomic():
        membership = _locked(acting, user_id)
        require_rank(acting, Role(membership.role))
        _end(acting, "member.remove", membership)
        _revoke_invitations(acting, membership.user, frozenset())


def leave_tenant(*, acting: Principal) -> None:
    """End the acting person's membership. Raises LastOwnerError (409)."""
    assert acting.user is not None
    with transaction.atomic():
        _end(acting, "member.leave", _locked(acting, acting.user.pk))


def _locked(acting: Principal, user_id: UUID) -> Membership:
    """Lock the tenant's row, so that two owners who remove each other cannot both succeed; return the membership."""
    Tenant.objects.select_for_update(no_key=True).get(pk=acting.tenant.pk)
    members = Membership.objects.for_tenant(acting.tenant).select_related("user")
    membership = members.filter(user_id=user_id).first()
    if membership is None:
        raise NotFoundError(
            "This person is not a member of the tenant.", "GET members lists them.", code="member_not_found", param="id"
        )
    return membership


def _keep_an_owner(membership: Membership) -> None:
    owners = Membership.objects.for_tenant(membership.tenant).filter(role=Role.OWNER)
    if membership.role == Role.OWNER and not owners.exclude(pk=membership.pk).exists():
        raise LastOwnerError


def _end(acting: Principal, action: str, membership: Membership) -> None:
    _keep_an_owner(membership)
    _audit(acting, action, membership, role=membership.role)
    membership.delete()


def _revoke_invitations(acting: Principal, inviter: User, capabilities: frozenset[Capability]) -> None:
    """Revoke open invitations of a person to roles with more than these rights: they could not send them now."""
    rows = Invitation.objects.for_tenant(acting.tenant).filter(invited_by=inviter, accepted_at=None, revoked_at=None)
    for row in rows.select_for_update().order_by("pk"):
        if not (Capability.WRITE_MEMBERS in capabilities and CAPABILITIES[Role(row.role)] <= capabilities):
            row.revoked_at = timezone.now()
            row.save(update_fields=["revoked_at"])
            audit.record(acting.actor, "invitation.revoke", row, tenant=acting.tenant, label=row.email)


def _audit(acting: Principal, action: str, membership: Membership, **detail: str) -> None:
    user: User = membership.user
    audit.record(acting.actor, action, membership, tenant=acting.tenant, label=user.email, user=str(user.pk), **detail)
    recheck_user(user.pk)
