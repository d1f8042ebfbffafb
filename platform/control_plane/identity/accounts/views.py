"""The session, and the password of its user."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http import HttpRequest
from django.middleware.csrf import get_token
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.config import current
from control_plane.core.http.access import Access
from control_plane.core.http.api_view import ApiView
from control_plane.core.http.serializers import validated
from control_plane.identity.access.principal import Principal, session_user
from control_plane.identity.access.tenant_access import NotAuthenticatedError
from control_plane.identity.accounts import actions, mail, passwords, pending
from control_plane.identity.accounts.attempts import MAILS, count_account, count_address
from control_plane.identity.accounts.auth import SessionAuthentication, enforce_csrf
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.oidc import is_configured
from control_plane.identity.accounts.oidc_views import REFUSAL
from control_plane.identity.accounts.serializers import (
    ChangePasswordSerializer,
    ForgotPasswordSerializer,
    LoginSerializer,
    ProfileSerializer,
    ResetPasswordSerializer,
    SessionSerializer,
)
from control_plane.identity.tenants.models import Membership

operation = partial(extend_schema, tags=["session"])


class CountedView(ApiView):
    """A view that counts POSTs by the client's address, before anything else. Reading is not counted."""

    authentication_classes = (SessionAuthentication,)
    permission_classes = ()
    counted_as = "login"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method == "POST":
            count_address(self.counted_as, request._request.META["REMOTE_ADDR"])
        super().initial(request, *args, **kwargs)


class PublicView(CountedView):
    """A view for people who are not signed in. Unsafe methods check CSRF themselves."""

    access = Access.PUBLIC


class PersonView(CountedView):
    """A view for a signed-in person, about themselves: 401 without a session. Keys are always refused."""

    access = Access.SESSION
    person: User

    def admit_caller(self, request: Request, **kwargs: Any) -> None:
        user = session_user(request._request)
        if user is None:
            raise NotAuthenticatedError
        self.person = user


class SessionView(PublicView):
    @operation("read_session", responses=SessionSerializer, auth=[])
    def get(self, request: Request) -> Response:
        """Read the session: the signed-in person, and the CSRF token to send. Always 200."""
        refusal = REFUSAL.read(request._request)
        response = Response(session_state(request._request, sign_in_error=refusal))
        if refusal is not None:
            REFUSAL.forget(response)
        return response

    @operation("log_in", request=LoginSerializer, responses=SessionSerializer, auth=[])
    def post(self, request: Request) -> Response:
        """Log in. If the person has a second factor, the session starts with POST /api/session/second-factor."""
        enforce_csrf(request._request)
        body = validated(LoginSerializer, request.data)
        count_account(self.counted_as, body["email"])
        user, started = actions.log_in(request._request, **body)
        if started:
            return Response(session_state(request._request))
        if before := session_user(request._request):
            actions.log_out(request._request, before)
        response = Response()
        response.data = session_state(request._request, awaited=pending.begin(response, user))
        return response

    @operation("log_out", request=None, responses={200: SessionSerializer}, auth=[])
    def delete(self, request: Request) -> Response:
        """Log out."""
        enforce_csrf(request._request)
        if user := session_user(request._request):
            actions.log_out(request._request, user)
        response = Response(session_state(request._request, begun=False))
        pending.forget(response)
        return response


class PasswordView(PersonView):
    counted_as = "password"

    @operation("change_password", request=ChangePasswordSerializer, responses=SessionSerializer)
    def post(self, request: Request) -> Response:
        """Change the password of the signed-in account. All its other sessions end."""
        body = validated(ChangePasswordSerializer, request.data)
        count_account(self.counted_as, self.person.email)
        passwords.change_password(request._request, self.person, **body)
        return Response(session_state(request._request))


class ForgotPasswordView(PublicView):
    counted_as = "password"

    @operation("forgot_password", request=ForgotPasswordSerializer, responses={202: None}, auth=[])
    def post(self, request: Request) -> Response:
        """Mail a link for choosing a new password. The answer is the same if there is no such account."""
        enforce_csrf(request._request)
        body = validated(ForgotPasswordSerializer, request.data)
        count_account("mail", body["email"], MAILS)
        passwords.forgot_password(body["email"])
        return Response(status=202)


class ResetPasswordView(PublicView):
    counted_as = "password"

    @operation("reset_password", request=ResetPasswordSerializer, responses={204: None}, auth=[])
    def post(self, request: Request) -> Response:
        """Choose a new password with a link's token. All sessions of the person end."""
        enforce_csrf(request._request)
        body = validated(ResetPasswordSerializer, request.data)
        passwords.reset_password(**body)
        return Response(status=204)


class ProfileView(PersonView):
    @operation("change_name", request=ProfileSerializer, responses=SessionSerializer)
    def put(self, request: Request) -> Response:
        """Change the name that other members see."""
        body = validated(ProfileSerializer, request.data)
        actions.set_name(user=self.person, **body)
        return Response(session_state(request._request))


def session_state(
    request: HttpRequest,
    *,
    sign_in_error: dict[str, Any] | None = None,
    awaited: pending.PendingSignIn | None = None,
    begun: bool = True,
) -> dict[str, Any]:
    """Return the session. `awaited`: a sign-in that this request began; `begun` False: that of the cookie has ended."""
    user = session_user(request)
    if user is None and awaited is None and begun:
        awaited = pending.find(request)
    session = {
        "authenticated": user is not None,
        "csrf_token": get_token(request),
        "password_login": current().password_login,
        "provider": current().oidc_name if is_configured() else None,
        "sends_mail": mail.is_configured(),
        "sign_in_error": sign_in_error,
        "second_factor_for": awaited.user.email if awaited else None,
        "user": user,
        "tenants": _tenants(user) if user else [],
    }
    return dict(SessionSerializer(session).data)


def _tenants(user: User) -> list[dict[str, Any]]:
    memberships = Membership.objects.filter(user=user).select_related("tenant", "user").order_by("tenant__name")
    return [
        {
            "slug": membership.tenant.slug,
            "name": membership.tenant.name,
            "role": membership.role,
            "second_factor_required": membership.tenant.second_factor_required,
            "capabilities": sorted(Principal.of_member(membership).capabilities),
            "suspended_at": membership.tenant.suspended_at,
            "suspended_for": membership.tenant.suspended_for,
        }
        for membership in memberships
    ]
