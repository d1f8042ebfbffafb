"""Recent proof that the person of a session is at the browser: a stolen session alone must not change how one signs in.

Signing in counts, and so does a confirmation by password, code or passkey.
"""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest

from control_plane.core.errors import ForbiddenError
from control_plane.core.jobs import clocks
from control_plane.identity.access.actor import Actor
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.sign_ins import lock_session, rename
from control_plane.identity.audit import actions as audit

# Seconds for which a proof counts.
RECENT_S = 600
_KEY = "confirmed_at"


class ConfirmationRequiredError(ForbiddenError):
    def __init__(self) -> None:
        super().__init__(
            "This needs a recent confirmation that it is you.",
            "Confirm with your password or second factor, then repeat it. If you have neither, sign in again.",
            code="confirmation_required",
        )


def mark(request: HttpRequest) -> None:
    """Record the proof in the session."""
    request.session[_KEY] = clocks.database_time().timestamp()


def confirm(request: HttpRequest, user: User, proof: str) -> None:
    """Record the proof, and give the session a new id: whoever stole the old one gains nothing.

    Raises NotAuthenticatedError if the session was ended meanwhile.
    """
    with transaction.atomic():
        before = lock_session(request)
        request.session.cycle_key()
        mark(request)
        rename(request, user, before)
        audit.record(Actor.of(user), "session.confirm", user, tenant=None, label=user.email, proof=proof)


def is_recent(request: HttpRequest) -> bool:
    age_s = clocks.database_time().timestamp() - float(request.session.get(_KEY, 0))
    return 0 <= age_s < RECENT_S


def require_recent(request: HttpRequest) -> None:
    """Raise ConfirmationRequiredError unless the person signed in or confirmed within the last ten minutes."""
    if not is_recent(request):
        raise ConfirmationRequiredError
