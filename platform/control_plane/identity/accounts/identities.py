"""Maps the claims of an OpenID Connect provider to an account.

A person is known by the provider's subject, never by the address alone. An address leads to an account only the first
time, only if the provider states that it verified the address, and only if no other subject of the provider is linked
to the account: the provider may have given the address to another person. The account's password is then dropped if the
address was never proven here: somebody else may have chosen it. An address that changes at the provider changes here.
"""

from __future__ import annotations

import logging

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from control_plane.core.config import current, split_list
from control_plane.core.db import is_duplicate
from control_plane.core.errors import ForbiddenError
from control_plane.core.events.recheck import recheck_user
from control_plane.core.jobs import clocks
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import Actor
from control_plane.identity.accounts.actions import create_user
from control_plane.identity.accounts.addresses import InvalidAddressError, new_address, normalise_domain
from control_plane.identity.accounts.models import Identity, User
from control_plane.identity.accounts.oidc import Claims
from control_plane.identity.accounts.sign_ins import end_all
from control_plane.identity.accounts.signals import address_proven
from control_plane.identity.audit import actions as audit

logger = logging.getLogger(__name__)


class UnprovenAddressError(ForbiddenError):
    def __init__(self) -> None:
        super().__init__(
            "Your provider does not state that your e-mail address is verified.",
            "Verify it at the provider, then sign in again.",
            code="email_not_verified",
        )


class NoAccountError(ForbiddenError):
    def __init__(self, email: str) -> None:
        super().__init__(
            f"There is no account for {email} here.",
            "Ask an owner or admin of your organisation for an invitation to this address.",
            code="no_account",
        )


class OtherSubjectError(ForbiddenError):
    def __init__(self, email: str) -> None:
        super().__init__(
            f"The account of {email} is linked to another person at your provider.",
            "If both are you, ask the operator of this installation to remove that link, then sign in again.",
            code="other_identity_linked",
        )


class InactiveError(ForbiddenError):
    def __init__(self) -> None:
        super().__init__(
            "This account is switched off.", "Ask the operator of this installation.", code="account_inactive"
        )


def user_of(claims: Claims) -> User:
    """Return the account of a person whom the provider authenticated. Raises ForbiddenError of several codes."""
    with transaction.atomic():
        known = Identity.objects.filter(issuer=claims.issuer, subject=claims.subject).select_related("user").first()
        user = known.user if known else _first_time(claims)
        if not user.is_active:
            raise InactiveError
        if claims.email_verified and claims.email not in ("", user.email):
            _change_address(user, claims)
    return user


def unlink(*, actor: Actor, identity: Identity) -> None:
    """Remove a person's link to the provider, and end their sessions. Their address can then be linked anew."""
    user = identity.user
    with transaction.atomic():
        about = {"issuer": identity.issuer, "subject": identity.subject, "sessions_ended": end_all(user)}
        audit.record(actor, "identity.unlink", identity, tenant=None, label=user.email, **about)
        identity.delete()
        recheck_user(user.pk)


def _other_subjects(user: User, claims: Claims) -> QuerySet[Identity]:
    return Identity.objects.filter(user=user, issuer=claims.issuer).exclude(subject=claims.subject)


def _change_address(user: User, claims: Claims) -> None:
    """Take over the address that the provider verified, unless it cannot be an account's or is another account's."""
    if _other_subjects(user, claims).exists():
        return  # of two subjects, each with an address, neither counts
    before, actor = user.email, Actor.of(user)
    try:
        email = new_address(claims.email)
    except InvalidAddressError:
        email = ""
    if not email or User.objects.filter(email=email).exists():
        logger.warning("The provider's address of %s is another account's, or none that an account can have.", before)
        return
    user.email = email
    user.save(update_fields=["email"])
    about = {"before": before, "issuer": claims.issuer}
    audit.record(actor, "user.email", user, tenant=None, label=user.email, email=user.email, **about)
    enqueue("accounts.mail_address_changed", before, user.email)


def _first_time(claims: Claims) -> User:
    if not (claims.email and claims.email_verified):
        raise UnprovenAddressError
    # Two tabs may come at once: the second finds the account of the first.
    users = User.objects.select_for_update().filter(email=claims.email)
    try:
        with transaction.atomic():
            user = users.first() or _new_user(claims)
    except IntegrityError as error:
        if not is_duplicate(error):
            raise
        user = users.get()
    if _other_subjects(user, claims).exists():
        raise OtherSubjectError(user.email)
    who = {"issuer": claims.issuer, "subject": claims.subject}
    identity, created = Identity.objects.get_or_create(**who, defaults={"user": user})
    if created:
        audit.record(Actor.of(user), "identity.link", identity, tenant=None, label=user.email, issuer=claims.issuer)
    if not user.address_proven:
        _prove(user)
    return user


def _prove(user: User) -> None:
    user.email_verified_at = timezone.now()
    user.set_unusable_password()
    user.save(update_fields=["email_verified_at", "password"])
    end_all(user)
    audit.record(Actor.of(user), "password.drop", user, tenant=None, label=user.email)
    address_proven.send(User, user=user)
    recheck_user(user.pk)


def _new_user(claims: Claims) -> User:
    """Create an account for an invited person, or for one of the domains that are let in."""
    from control_plane.identity.tenants.models import Invitation

    domain = claims.email.rpartition("@")[2]
    invited = Invitation.objects.filter(
        email=claims.email, accepted_at=None, revoked_at=None, expires_at__gt=clocks.database_time()
    ).exists()
    if not invited and domain not in map(normalise_domain, split_list(current().oidc_domains)):
        raise NoAccountError(claims.email)
    return create_user(actor=None, email=claims.email, password=None, name=claims.name)
