"""Endpoints for invited people. They are in no tenant yet: the token in the body names it."""

from __future__ import annotations

from functools import partial

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.errors import LorikeetError
from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, validated
from control_plane.identity.access.principal import session_user
from control_plane.identity.accounts.actions import start_session
from control_plane.identity.accounts.auth import enforce_csrf
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.serializers import SessionSerializer
from control_plane.identity.accounts.views import PublicView, session_state
from control_plane.identity.members.invitations import accept_as, accept_with_new_account, open_invitation
from control_plane.identity.members.serializers import (
    AcceptInvitationSerializer,
    InvitationDetailsSerializer,
    InvitationTokenSerializer,
)

operation = partial(extend_schema, tags=["members"])


class OfferView(PublicView):
    counted_as = "invitation"

    @operation(
        "read_invitation",
        request=InvitationTokenSerializer,
        responses={200: InvitationDetailsSerializer} | NOT_FOUND,
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Read an invitation by its token, which is sent in the body, because addresses are logged."""
        enforce_csrf(request._request)
        body = validated(InvitationTokenSerializer, request.data)
        invitation = open_invitation(body["token"])
        known = User.objects.filter(email=invitation.email).exists()
        invitation.has_account = known  # type: ignore[attr-defined]
        return Response(InvitationDetailsSerializer(invitation).data)


class AcceptView(PublicView):
    counted_as = "invitation"

    @operation(
        "accept_invitation",
        request=AcceptInvitationSerializer,
        responses={200: SessionSerializer} | NOT_FOUND | CONFLICT,
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Join as the signed-in person, or with a new account, which is then signed in."""
        enforce_csrf(request._request)
        body = validated(AcceptInvitationSerializer, request.data)
        user = session_user(request._request)
        if user is not None:
            accept_as(token=body["token"], user=user)
        elif body.get("password"):
            made = accept_with_new_account(token=body["token"], name=body["name"], password=body["password"])
            start_session(request._request, made)
        else:
            message, fix = "A new account needs a password.", "Choose one, or sign in first."
            raise LorikeetError("password_required", message, fix, param="password")
        return Response(session_state(request._request))
