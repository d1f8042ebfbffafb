"""Creating users, and logging in and out."""

from __future__ import annotations

from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from control_plane.core.errors import LorikeetError
from control_plane.core.events.recheck import recheck_user
from control_plane.core.http.metrics import SIGN_INS
from control_plane.core.names import require_name
from control_plane.identity.access.actor import Actor
from control_plane.identity.access.tenant_access import NotAuthenticatedError
from control_plane.identity.accounts import confirmation
from control_plane.identity.accounts.addresses import new_address, normalise_email
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import hashed, require_passwords
from control_plane.identity.accounts.sign_ins import begin, forget, lock_session
from control_plane.identity.audit import actions as audit


class WrongLoginError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "wrong_login",
            "The e-mail address and the password do not match.",
            "Check both; if you forgot the password, request a link to choose a new one.",
            status=401,
        )


class UnprovenAccountError(LorikeetError):
    """An account made from an invitation's link: its maker chose the password and may not own the address."""

    def __init__(self, email: str) -> None:
        super().__init__(
            "account_unproven",
            f"There is an account of {email}, but it is not proven that the address belongs to its holder.",
            'Have its holder use "Forgot password?" on the sign-in page, or sign in through the provider: '
            ""
            "either replaces the password chosen before. Then try again.",
            status=409,
        )


def require_proven(user: User) -> None:
    """Raise UnprovenAccountError before something is granted to the person behind an unproven address."""
    if not user.address_proven:
        raise UnprovenAccountError(user.email)


def proven_account(email: str) -> User | None:
    """Return the account of an address, None if there is none. Raises UnprovenAccountError."""
    user = User.objects.filter(email=normalise_email(email)).first()
    if user is not None:
        require_proven(user)
    return user


def create_user(
    *, actor: Actor | None, email: str, password: str | None, name: str = "", verified: bool = True
) -> User:
    """Create a user; one without a password signs in through the provider. `actor` None: the user creates the account.
    `verified`: the address is proven. Raises InvalidAddressError, BadNameError, WeakPasswordError.
    """
    new = None if password is None else hashed(password, User(email=email, name=name))
    return insert_user(actor=actor, email=email, password_hash=new, name=name, verified=verified)


def insert_user(*, actor: Actor | None, email: str, password_hash: str | None, name: str, verified: bool) -> User:
    """Create a user from a password hash, within a transaction that hashing should not lengthen."""
    with transaction.atomic():
        user = User(
            email=new_address(email), name=require_name(name), email_verified_at=timezone.now() if verified else None
        )
        user.password = password_hash or make_password(None)
        user.save()
        actor = actor or Actor.of(user)
        audit.record(actor, "user.create", user, tenant=None, label=user.email)
    return user


def set_operator(*, actor: Actor, user: User, operator: bool) -> None:
    """Let `user` run the installation, or end that. Raises UnprovenAccountError."""
    if operator:
        require_proven(user)
    with transaction.atomic():
        if User.objects.select_for_update(no_key=True).get(pk=user.pk).is_operator == operator:
            return
        user.is_operator = operator
        user.save(update_fields=["is_operator"])
        audit.record(actor, "user.operator", user, tenant=None, label=user.email, operator=operator)


def set_name(*, user: User, name: str) -> User:
    """Change the name that other members see. Raises BadNameError."""
    with transaction.atomic():
        before, user.name = User.objects.select_for_update(no_key=True).get(pk=user.pk).name, require_name(name)
        if user.name == before:
            return user
        user.save(update_fields=["name"])
        audit.record(Actor.of(user), "user.rename", user, tenant=None, label=user.email, name=name, before=before)
    return user


def log_in(request: HttpRequest, *, email: str, password: str) -> tuple[User, bool]:
    """Check a password, and start a session (with a new session id) unless a second factor has to follow.

    Returns the person, and whether the session started. Raises WrongLoginError.
    """
    require_passwords()
    user = authenticate(request, username=email, password=password)
    if not isinstance(user, User):
        SIGN_INS.labels("wrong").inc()
        raise WrongLoginError
    return user, start_session(request, user)


def start_session(request: HttpRequest, user: User, *, second_factor: str = "", **detail: str) -> bool:
    """Start a session for a person who is authenticated. `second_factor`: the kind that they showed, if any.

    Returns False, without a session, if they have a second factor and did not show it.
    """
    with transaction.atomic():
        # The lock orders this after a concurrent set-up of a second factor, which ends the sessions without it.
        locked = User.objects.select_for_update().get(pk=user.pk)
        if locked.has_second_factor and not second_factor:
            return False
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
        confirmation.mark(request)
        begin(request, user)
        if second_factor:
            detail["second_factor"] = second_factor
        audit.record(Actor.of(user), "session.create", user, tenant=None, **detail)
    SIGN_INS.labels("ok").inc()
    return True


def log_out(request: HttpRequest, user: User) -> None:
    """End the session of this browser. Of two requests at once, one is recorded."""
    with transaction.atomic():
        try:
            ended = lock_session(request)
        except NotAuthenticatedError:
            logout(request)
            return
        logout(request)
        forget(user, ended)
        audit.record(Actor.of(user), "session.delete", user, tenant=None)
        recheck_user(user.pk)
