"""Making users, and logging in and out."""

from __future__ import annotations

from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django.http import HttpRequest

from control_plane.accounts.models import User
from control_plane.audit import actions as audit
from control_plane.audit.actor import Actor
from control_plane.audit.models import ActorKind
from control_plane.errors import LorikeetError


class WrongLoginError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "wrong_login",
            "The e-mail address and the password do not match.",
            "Check both; ask an owner of your organisation to reset the password if it is lost.",
            status=401,
        )


def create_user(*, actor: Actor, email: str, password: str, name: str = "") -> User:
    """Make a user. Raises django's ValidationError for a weak password."""
    with transaction.atomic():
        validate_password(password, User(email=email, name=name))
        user = User.objects.create_user(email, password, name=name)
        audit.record(actor, "user.create", user, tenant=None, label=user.email)
    return user


def set_operator(*, actor: Actor, user: User, operator: bool) -> None:
    """Let `user` run the installation, or no longer."""
    with transaction.atomic():
        user.is_operator = operator
        user.save(update_fields=["is_operator"])
        audit.record(actor, "user.operator", user, tenant=None, label=user.email, operator=operator)


def log_in(request: HttpRequest, *, email: str, password: str) -> User:
    """Start a session (with a new session id). Raises WrongLoginError."""
    user = authenticate(request, username=email, password=password)
    if not isinstance(user, User):
        raise WrongLoginError
    with transaction.atomic():
        login(request, user)
        audit.record(_actor(user), "session.create", user, tenant=None)
    return user


def log_out(request: HttpRequest, user: User) -> None:
    with transaction.atomic():
        logout(request)
        audit.record(_actor(user), "session.delete", user, tenant=None)


def _actor(user: User) -> Actor:
    return Actor(ActorKind.USER, str(user.pk), user.email)
