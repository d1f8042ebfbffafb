"""Invitations of people to a tenant, and their acceptance.

The token is the invitation's id, signed under the secret key: the database alone reveals no token, and the worker that
mails the link can make it again instead of reading it from the queue.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import ForbiddenError, LorikeetError, NotFoundError
from control_plane.core.jobs import clocks
from control_plane.core.secrets.signatures import is_signed, sign
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.principal import Principal
from control_plane.identity.accounts.actions import insert_user
from control_plane.identity.accounts.addresses import new_address
from control_plane.identity.accounts.mail import link
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import hashed, require_passwords
from control_plane.identity.audit import actions as audit
from control_plane.identity.members.actions import add_member
from control_plane.identity.members.memberships import require_rank
from control_plane.identity.tenants.models import Invitation, Membership
from control_plane.identity.tenants.roles import Role

LIFETIME = timedelta(days=7)
_PURPOSE = b"invitation"
# Maximum number of open invitations of a tenant.
MAX_OPEN = 200


class InvitationError(NotFoundError):
    def __init__(self) -> None:
        super().__init__(
            "This invitation was already accepted, revoked, or has expired.",
            "Ask the person who invited you for a new one.",
            code="invitation_invalid",
            param="token",
        )


class OtherPersonError(ForbiddenError):
    def __init__(self, email: str) -> None:
        super().__init__(
            f"The invitation is for {email}.",
            f"Sign in as {email}, or ask for an invitation to your own address.",
            code="invitation_for_other",
        )


class AccountExistsError(LorikeetError):
    def __init__(self, email: str) -> None:
        super().__init__(
            "account_exists",
            f"{email} already has an account.",
            "Sign in with it, then accept the invitation.",
            status=409,
        )


def invite(*, acting: Principal, email: str, role: Role) -> Invitation:
    """Invite a person, in place of an open invitation of theirs. Raises LorikeetError (403, 409)."""
    require_rank(acting, role)
    email = new_address(email)
    with transaction.atomic():
        rows = Invitation.objects.for_tenant(acting.tenant)
        if Membership.objects.for_tenant(acting.tenant).filter(user__email=email).exists():
            raise _conflict("already_member", f"{email} is a member already.", "Change the role among the members.")
        replaced = rows.filter(email=email, accepted_at=None, revoked_at=None).update(revoked_at=timezone.now())
        if rows.filter(accepted_at=None, revoked_at=None, expires_at__gt=clocks.database_time()).count() >= MAX_OPEN:
            raise _conflict("too_many_invitations", f"{MAX_OPEN} invitations are open.", "Revoke some of them.")
        invitation = rows.create(
            tenant=acting.tenant,
            email=email,
            role=role,
            invited_by=acting.user,
            expires_at=clocks.database_time() + LIFETIME,
        )
        _audit(acting.actor, "invitation.create", invitation, role=str(role), replaced=bool(replaced))
        enqueue("members.mail_invitation", str(invitation.pk))
    return invitation


def revoke_invitation(*, acting: Principal, invitation: Invitation) -> None:
    """Revoke an invitation, so that its link stops working. Raises RoleTooHighError."""
    require_rank(acting, Role(invitation.role))
    with transaction.atomic():
        rows = Invitation.objects.for_tenant(acting.tenant)
        row = rows.select_for_update().filter(pk=invitation.pk, accepted_at=None, revoked_at=None).first()
        if row is not None:
            row.revoked_at = timezone.now()
            row.save(update_fields=["revoked_at"])
            _audit(acting.actor, "invitation.revoke", invitation)


def accept_as(*, token: str, user: User) -> Membership:
    """Accept an invitation as a signed-in person. Raises InvitationError, OtherPersonError."""
    with transaction.atomic():
        invitation = open_invitation(token, lock=True)
        if invitation.email != user.email:
            raise OtherPersonError(invitation.email)
        return _accept(invitation, user)


def accept_with_new_account(*, token: str, name: str, password: str) -> User:
    """Create the account of the invited address and join.

    Raises InvitationError, AccountExistsError, WeakPasswordError.

    This does not prove the address: the person who invited them has seen the link too.
    """
    require_passwords()
    email = _without_account(open_invitation(token)).email
    new = hashed(password, User(email=email, name=name))
    with transaction.atomic():
        invitation = _without_account(open_invitation(token, lock=True))
        user = insert_user(actor=None, email=email, password_hash=new, name=name, verified=False)
        _accept(invitation, user)
    return user


def _without_account(invitation: Invitation) -> Invitation:
    """Return the invitation if its address has no account. Raises AccountExistsError."""
    if User.objects.filter(email=invitation.email).exists():
        raise AccountExistsError(invitation.email)
    return invitation


def open_invitation(token: str, *, lock: bool = False) -> Invitation:
    """Return the invitation behind a link, with its tenant. Raises InvitationError."""
    who, _, proof = token.partition(".")
    try:
        key = UUID(hex=who)
    except ValueError:
        raise InvitationError from None
    if not is_signed(_PURPOSE, key.bytes, proof, _text):
        raise InvitationError
    rows = Invitation.objects.select_related("tenant", "invited_by")
    invitation = (rows.select_for_update(of=("self",)) if lock else rows).filter(pk=key).first()
    if invitation is None or not invitation.is_open_at(clocks.database_time()):
        raise InvitationError
    return invitation


def invitation_link(invitation: Invitation) -> str:
    return link("invitation", f"{invitation.pk.hex}.{_text(sign(_PURPOSE, invitation.pk.bytes))}")


def _text(signature: bytes) -> str:
    return base64.urlsafe_b64encode(signature).decode().rstrip("=")


def _accept(invitation: Invitation, user: User) -> Membership:
    """Accept an invitation. An existing member keeps the role they have."""
    tenant = invitation.tenant
    invitation.accepted_at = timezone.now()
    invitation.save(update_fields=["accepted_at"])
    _audit(Actor.of(user), "invitation.accept", invitation)
    membership = Membership.objects.for_tenant(tenant).filter(user=user).first()
    return membership or add_member(actor=Actor.of(user), tenant=tenant, user=user, role=Role(invitation.role))


def _conflict(code: str, message: str, fix: str) -> LorikeetError:
    return LorikeetError(code, message, fix, param="email", status=409)


def _audit(actor: Actor, action: str, invitation: Invitation, **detail: object) -> None:
    audit.record(actor, action, invitation, tenant=invitation.tenant, label=invitation.email, **detail)


def forget() -> int:
    """Delete invitations that expired long ago, accepted or not. Returns their number. Raises DeletionPausedError."""
    oldest = clocks.deletion_time() - timedelta(days=current().closed_rows_days)
    return Invitation.objects.filter(expires_at__lt=oldest).delete()[0]
