"""Changing a password, and resetting a forgotten one."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.hashers import make_password
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from control_plane.core.config import current
from control_plane.core.errors import ForbiddenError, LorikeetError
from control_plane.core.events.recheck import recheck_user
from control_plane.core.writes import enqueue
from control_plane.identity.access.actor import Actor
from control_plane.identity.accounts.addresses import normalise_email
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.sign_ins import end_all, lock_session, rename
from control_plane.identity.accounts.signals import address_proven
from control_plane.identity.audit import actions as audit


class WeakPasswordError(LorikeetError):
    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            "weak_password", " ".join(reasons), "Choose a longer or less common password.", param="password"
        )


class WrongPasswordError(LorikeetError):
    def __init__(self, param: str = "current_password") -> None:
        super().__init__(
            "wrong_password",
            "The current password is not correct.",
            "Type it again; if you forgot it, sign out and use the link for a forgotten password.",
            param=param,
        )


class ResetLinkError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "reset_link_invalid",
            "This link was used already, or is older than an hour.",
            "Ask for a new one on the sign-in page.",
            param="token",
        )


class PasswordsOffError(ForbiddenError):
    def __init__(self) -> None:
        super().__init__(
            "Passwords are switched off on this installation.",
            "Sign in through your organisation's provider.",
            code="password_login_off",
        )


def require_passwords() -> None:
    """Raise PasswordsOffError where LORIKEET_PASSWORD_LOGIN is off."""
    if not current().password_login:
        raise PasswordsOffError


def check_strength(password: str, user: User) -> None:
    """Raise WeakPasswordError for a password that Django's validators refuse."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise WeakPasswordError(error.messages) from error


def hashed(password: str, user: User) -> str:
    """Return a password's hash. Takes long, so call it outside of transactions.

    Raises WeakPasswordError, HashesBusyError.
    """
    check_strength(password, user)
    return make_password(password)


def require_password(user: User, password: str, param: str) -> None:
    """Raise WrongPasswordError, naming `param`, unless this is the person's password."""
    require_passwords()
    if not user.check_password(password):
        raise WrongPasswordError(param)


def change_password(request: HttpRequest, user: User, *, current_password: str, password: str) -> None:
    """Change the password. The current session gets a new id; all others of the person end.

    Raises WrongPasswordError, also if the password was replaced during this request, WeakPasswordError, and
    NotAuthenticatedError if the session was ended meanwhile.
    """
    require_password(user, current_password, "current_password")
    new = hashed(password, user)
    with transaction.atomic():
        if User.objects.select_for_update().get(pk=user.pk).password != user.password:
            raise WrongPasswordError("current_password")
        before = lock_session(request)
        user.password = new
        user.save(update_fields=["password"])
        update_session_auth_hash(request, user)
        rename(request, user, before)
        end_all(user, but=request.session.session_key)
        audit.record(Actor.of(user), "password.change", user, tenant=None, label=user.email)
        recheck_user(user.pk)


def forgot_password(email: str) -> None:
    """Queue a mail with a link, if the account exists: the worker checks that, so the answer's time reveals nothing."""
    require_passwords()
    enqueue("accounts.mail_reset_link", normalise_email(email))


def reset_token(user: User) -> str:
    """Return a token for an hour, or until the person signs in or changes the password: the signature covers both."""
    return f"{user.pk.hex}.{default_token_generator.make_token(user)}"


def reset_password(*, token: str, password: str) -> User:
    """Set the password of the person behind the link and end all their sessions. Raises ResetLinkError."""
    require_passwords()
    new = hashed(password, _holder(token))
    with transaction.atomic():
        user = _holder(token, lock=True)
        user.password = new
        is_first_proof = not user.address_proven
        user.email_verified_at = user.email_verified_at or timezone.now()
        user.save(update_fields=["password", "email_verified_at"])
        if is_first_proof:
            address_proven.send(User, user=user)
        end_all(user)
        audit.record(Actor.of(user), "password.reset", user, tenant=None, label=user.email)
        recheck_user(user.pk)
    return user


def _holder(token: str, *, lock: bool = False) -> User:
    who, _, proof = token.partition(".")
    users = User.objects.select_for_update() if lock else User.objects
    try:
        user = users.filter(pk=UUID(hex=who), is_active=True).first()
    except ValueError:
        user = None
    if user is None or not default_token_generator.check_token(user, proof):
        raise ResetLinkError
    return user
