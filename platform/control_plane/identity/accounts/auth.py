"""Session authentication for the console: the user of the cookie, and the CSRF check."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from rest_framework.authentication import BaseAuthentication, CSRFCheck
from rest_framework.request import Request

from control_plane.core.errors import ForbiddenError
from control_plane.core.http.connections import prove, user_holder
from control_plane.identity.access.principal import session_user
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.sign_ins import seen


class CsrfError(ForbiddenError):
    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The request's CSRF check failed: {reason}",
            "Read csrf_token from GET /api/session and send it as the X-CSRFToken header.",
            code="csrf_failed",
        )


def enforce_csrf(request: HttpRequest) -> None:
    """Raise CsrfError unless a state-changing request proves that it comes from the console's pages."""
    check = CSRFCheck(lambda _request: HttpResponse())
    check.process_request(request)
    reason = check.process_view(request, _no_view, (), {})
    if reason is not None:
        raise CsrfError(str(reason))


def _no_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class SessionAuthentication(BaseAuthentication):
    """DRF authentication by the session cookie, with CSRF checked on every unsafe method."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        user = session_user(request._request)
        if user is None:
            return None
        enforce_csrf(request._request)
        seen(request._request, user)
        prove(getattr(request._request, "scope", {}), user_holder(user.pk))
        return user, None
