"""GET, POST and DELETE /api/session."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.middleware.csrf import get_token
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle, ScopedRateThrottle
from rest_framework.views import APIView

from control_plane.accounts import actions
from control_plane.accounts.auth import SessionAuthentication, enforce_csrf, session_user
from control_plane.accounts.models import User
from control_plane.accounts.serializers import LoginSerializer, SessionSerializer
from control_plane.http.serializers import ErrorResponseSerializer
from control_plane.tenants.models import Membership


class LoginThrottle(ScopedRateThrottle):
    """Counts log-in attempts by address. Reading the session is free."""

    def allow_request(self, request: Request, view: APIView) -> bool:
        return request.method != "POST" or super().allow_request(request, view)


class SessionView(APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = ()
    throttle_scope = "login"

    def get_throttles(self) -> list[BaseThrottle]:
        return [LoginThrottle()]

    @extend_schema(operation_id="read_session", responses=SessionSerializer, tags=["session"], auth=[])
    def get(self, request: Request) -> Response:
        """Who is logged in, and the CSRF token to send. Always 200."""
        return Response(_session(request._request))

    @extend_schema(
        operation_id="log_in",
        request=LoginSerializer,
        responses={200: SessionSerializer, 401: ErrorResponseSerializer, 429: ErrorResponseSerializer},
        tags=["session"],
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Log in."""
        enforce_csrf(request._request)
        body = LoginSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        actions.log_in(request._request, **body.validated_data)
        return Response(_session(request._request))

    @extend_schema(operation_id="log_out", request=None, responses={200: SessionSerializer}, tags=["session"], auth=[])
    def delete(self, request: Request) -> Response:
        """Log out."""
        enforce_csrf(request._request)
        if user := session_user(request._request):
            actions.log_out(request._request, user)
        return Response(_session(request._request))


def _session(request: HttpRequest) -> dict[str, Any]:
    user = session_user(request)
    session = {
        "authenticated": user is not None,
        "csrf_token": get_token(request),
        "user": user,
        "tenants": _tenants(user) if user else [],
    }
    return dict(SessionSerializer(session).data)


def _tenants(user: User) -> list[dict[str, Any]]:
    memberships = Membership.objects.filter(user=user).select_related("tenant").order_by("tenant__name")
    return [
        {
            "slug": membership.tenant.slug,
            "name": membership.tenant.name,
            "role": membership.role,
            "capabilities": sorted(membership.capabilities),
        }
        for membership in memberships
    ]
