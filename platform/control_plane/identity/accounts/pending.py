"""Sign-ins between their two steps: the password or the provider was right, the second factor is still to come.

The state is in a signed cookie. It names the person, can start one session, and ends with a change of the password.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any

from django.core.cache import cache
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from control_plane.core.errors import LorikeetError
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.notes import Note

# Seconds within which the second step follows the first.
WITHIN_S = 600
NOTE = Note("lorikeet_sign_in", "/api/session", WITHIN_S)


class NoPendingSignInError(LorikeetError):
    def __init__(self) -> None:
        super().__init__(
            "sign_in_expired",
            "This sign-in was not begun in this browser, is older than ten minutes, or has been completed already.",
            "Begin again with your e-mail address and password.",
        )


@dataclass(frozen=True)
class PendingSignIn:
    user: User
    token: str
    # Of the audit row of the session: the provider, if the first step was there.
    detail: dict[str, str]

    def use(self) -> None:
        """Use up the sign-in: of two simultaneous requests only one succeeds. Raises NoPendingSignInError."""
        if not cache.add(_used(self.token), True, WITHIN_S):
            raise NoPendingSignInError


def begin(response: HttpResponseBase, user: User, **detail: str) -> PendingSignIn:
    """Remember in the browser that a person passed the first step."""
    pending = PendingSignIn(user, secrets.token_urlsafe(16), detail)
    value = {"user": str(user.pk), "token": pending.token, "password": _state_of(user), "detail": detail}
    NOTE.write(response, value)
    return pending


def find(request: HttpRequest) -> PendingSignIn | None:
    """Return the sign-in that this browser began, if its second step may still follow."""
    value: dict[str, Any] | None = NOTE.read(request)
    if value is None or cache.get(_used(value["token"])):
        return None
    user = User.objects.filter(pk=value["user"], is_active=True).first()
    if user is None or not hmac.compare_digest(_state_of(user), value["password"]):
        return None
    return PendingSignIn(user, value["token"], value["detail"])


def require(request: HttpRequest) -> PendingSignIn:
    """Return the sign-in that this browser began. Raises NoPendingSignInError."""
    pending = find(request)
    if pending is None:
        raise NoPendingSignInError
    return pending


def forget(response: HttpResponseBase) -> None:
    NOTE.forget(response)


def _state_of(user: User) -> str:
    """Return a value that changes with the password, and reveals nothing of it."""
    return hashlib.sha256(user.get_session_auth_hash().encode()).hexdigest()


def _used(token: str) -> str:
    return f"lorikeet:sign-in-used:{token}"
