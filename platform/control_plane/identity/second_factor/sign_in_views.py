"""The second step of signing in, and confirmations that it is still the same person."""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.errors import LorikeetError
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.identity.access.principal import session_user
from control_plane.identity.accounts import confirmation, pending
from control_plane.identity.accounts.actions import start_session
from control_plane.identity.accounts.attempts import count_account
from control_plane.identity.accounts.auth import enforce_csrf
from control_plane.identity.accounts.models import User
from control_plane.identity.accounts.passwords import require_password
from control_plane.identity.accounts.serializers import SessionSerializer
from control_plane.identity.accounts.views import PersonView, PublicView, session_state
from control_plane.identity.second_factor import actions, passkeys
from control_plane.identity.second_factor.models import Passkey
from control_plane.identity.second_factor.queries import has_app, has_passkey
from control_plane.identity.second_factor.serializers import (
    IdentityConfirmationSerializer,
    MethodsSerializer,
    SecondFactorSerializer,
)

operation = partial(extend_schema, tags=["session"])


class OneProofError(LorikeetError):
    def __init__(self, names: str) -> None:
        super().__init__("one_proof_required", f"Send exactly one of {names}.", "Leave the others out.", param="code")


class SecondStepView(PublicView):
    counted_as = "second-factor"

    @operation("read_second_factor_methods", responses=MethodsSerializer, auth=[])
    def get(self, request: Request) -> Response:
        """Read which second factors the sign-in of this browser can be completed with."""
        return Response(_methods(request, pending.require(request._request).user))

    @operation(
        "log_in_with_second_factor",
        request=SecondFactorSerializer,
        responses={200: SessionSerializer} | CONFLICT,
        auth=[],
    )
    def post(self, request: Request) -> Response:
        """Complete a log-in with a code or a passkey."""
        enforce_csrf(request._request)
        body = validated(SecondFactorSerializer, request.data)
        step = pending.require(request._request)
        kind = _show(request, step.user, body, "sign in")
        step.use()
        start_session(request._request, step.user, second_factor=kind, **step.detail)
        response = Response(session_state(request._request))
        pending.forget(response)
        return response


class PasskeyRequestView(PublicView):
    counted_as = "second-factor"

    @operation("request_passkey", request=None, responses={200: OpenApiTypes.OBJECT} | CONFLICT, auth=[])
    def post(self, request: Request) -> Response:
        """Make the options of navigator.credentials.get, to complete a log-in or to confirm one's identity."""
        enforce_csrf(request._request)
        rp = passkeys.require_relying_party(request._request)
        user, purpose = session_user(request._request), "confirm"
        if user is None:
            user, purpose = pending.require(request._request).user, "sign in"
        options, challenge = passkeys.request_options(rp, list(Passkey.objects.filter(user=user, rp_id=rp.id)))
        response = Response(options, headers={"Cache-Control": "no-store"})
        passkeys.remember(response, passkeys.Challenge(challenge, str(user.pk), purpose))
        return response


class ConfirmationView(PersonView):
    counted_as = "second-factor"

    @operation("read_confirmation_methods", responses=MethodsSerializer)
    def get(self, request: Request) -> Response:
        """Read what confirms that it is you."""
        return Response(_methods(request, self.person))

    @operation(
        "confirm_identity", request=IdentityConfirmationSerializer, responses={200: SessionSerializer} | CONFLICT
    )
    def post(self, request: Request) -> Response:
        """Confirm that it is you, for ten minutes, by the second factor, or by the password if there is none."""
        body = validated(IdentityConfirmationSerializer, request.data)
        if "password" in body and not self.person.has_second_factor:
            if len(body) > 1:
                raise OneProofError("password, code and credential")
            count_account("password", self.person.email)
            require_password(self.person, body["password"], "password")
            proof = "password"
        else:
            proof = _show(request, self.person, body, "confirm")
        confirmation.confirm(request._request, self.person, proof)
        return Response(session_state(request._request))


def _show(request: Request, user: User, body: dict[str, Any], purpose: str) -> str:
    """Check the one proof of a body. Returns its kind."""
    if body.keys() == {"code"}:
        return actions.use_code(user, body["code"])
    if body.keys() == {"credential"}:
        rp = passkeys.require_relying_party(request._request)
        challenge = passkeys.take_challenge(request._request, user, purpose)
        return actions.use_passkey(user, body["credential"], challenge, rp)
    raise OneProofError("code and credential")


def _methods(request: Request, user: User) -> dict[str, bool]:
    rp = passkeys.relying_party(request._request)
    return {
        "app": has_app(user),
        "passkey": rp is not None and has_passkey(user, rp.id),
        "password": not user.has_second_factor and user.has_usable_password(),
    }
