"""A person's second factors, and a tenant's requirement."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.serializers import CONFLICT, NOT_FOUND, validated
from control_plane.identity.access.views import TenantView
from control_plane.identity.accounts.confirmation import is_recent, require_recent
from control_plane.identity.accounts.views import PersonView
from control_plane.identity.second_factor import actions, passkeys
from control_plane.identity.second_factor.models import Passkey
from control_plane.identity.second_factor.qr import qr_rows
from control_plane.identity.second_factor.queries import members_without, second_factors_of
from control_plane.identity.second_factor.requirement import set_requirement
from control_plane.identity.second_factor.serializers import (
    AddedPasskeySerializer,
    AppSetupSerializer,
    CodeSerializer,
    NewPasskeySerializer,
    RecoveryCodesSerializer,
    RequirementSerializer,
    SecondFactorsSerializer,
    SecuritySerializer,
)
from control_plane.identity.tenants.models import Tenant
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["session"])

_SECRET = {"Cache-Control": "no-store"}


class SecondFactorsView(PersonView):
    @operation("read_second_factors", responses=SecondFactorsSerializer)
    def get(self, request: Request) -> Response:
        """Return the second factors of the signed-in account."""
        factors = second_factors_of(self.person)
        body = {
            "app": factors.app,
            "passkeys": factors.passkeys,
            "recovery_codes_left": factors.recovery_codes_left,
            "required_by": factors.required_by,
            "passkeys_available": passkeys.relying_party(request._request) is not None,
            "confirmed": is_recent(request._request),
        }
        return Response(SecondFactorsSerializer(body).data)


class ConfirmedView(PersonView):
    """A view whose changes need a recent confirmation: a stolen session alone cannot make them."""

    counted_as = "second-factor-change"

    def admit_caller(self, request: Request, **kwargs: object) -> None:
        super().admit_caller(request, **kwargs)
        require_recent(request._request)


class AppView(ConfirmedView):
    @operation("set_up_authenticator_app", request=None, responses={201: AppSetupSerializer})
    def post(self, request: Request) -> Response:
        """Make the secret of an authenticator app. An app in use stays in use until the new one is confirmed."""
        setup = actions.begin_app(user=self.person)
        return Response(
            {"secret": setup.secret, "uri": setup.uri, "qr": qr_rows(setup.uri)}, status=201, headers=_SECRET
        )

    @operation("remove_authenticator_app", responses={204: None} | NOT_FOUND | CONFLICT)
    def delete(self, request: Request) -> Response:
        """Remove the authenticator app."""
        actions.remove_app(user=self.person)
        return Response(status=204)


class AppConfirmationView(ConfirmedView):
    @operation("confirm_authenticator_app", request=CodeSerializer, responses={200: RecoveryCodesSerializer} | CONFLICT)
    def post(self, request: Request) -> Response:
        """Put the new app in use with a code that it shows. With the first second factor, other sessions end."""
        body = validated(CodeSerializer, request.data)
        return _recovery_codes(actions.confirm_app(request._request, user=self.person, code=body["code"]))


class PasskeyOptionsView(ConfirmedView):
    @operation("begin_passkey", request=None, responses={200: OpenApiTypes.OBJECT} | CONFLICT)
    def post(self, request: Request) -> Response:
        """Make the options of navigator.credentials.create, for a new passkey."""
        rp = passkeys.require_relying_party(request._request)
        known = list(Passkey.objects.filter(user=self.person, rp_id=rp.id))
        options, challenge = passkeys.creation_options(rp, self.person, known)
        response = Response(options, headers=_SECRET)
        passkeys.remember(response, passkeys.Challenge(challenge, str(self.person.pk), "register"))
        return response


class PasskeysView(ConfirmedView):
    @operation("add_passkey", request=NewPasskeySerializer, responses={201: AddedPasskeySerializer} | CONFLICT)
    def post(self, request: Request) -> Response:
        """Add a passkey. With the first second factor, other sessions end."""
        body = validated(NewPasskeySerializer, request.data)
        rp = passkeys.require_relying_party(request._request)
        challenge = passkeys.take_challenge(request._request, self.person, "register")
        passkey, codes = actions.add_passkey(request._request, user=self.person, challenge=challenge, rp=rp, **body)
        answer = AddedPasskeySerializer({"passkey": passkey, "recovery_codes": codes}).data
        return Response(answer, status=201, headers=_SECRET)


class OnePasskeyView(ConfirmedView):
    @operation("remove_passkey", responses={204: None} | CONFLICT)
    def delete(self, request: Request, passkey_id: UUID) -> Response:
        """Remove a passkey."""
        actions.remove_passkey(user=self.person, passkey_id=passkey_id)
        return Response(status=204)


class RecoveryCodesView(ConfirmedView):
    @operation("replace_recovery_codes", request=None, responses={201: RecoveryCodesSerializer} | CONFLICT)
    def post(self, request: Request) -> Response:
        """Make new recovery codes. The earlier ones end."""
        return _recovery_codes(actions.replace_recovery_codes(user=self.person), status=201)


def _recovery_codes(codes: Sequence[str] | None, status: int = 200) -> Response:
    return Response({"recovery_codes": codes}, status=status, headers=_SECRET)


class SecurityView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TENANT}

    @operation("read_tenant_security", responses=SecuritySerializer, tags=["members"])
    def get(self, request: Request, tenant: str) -> Response:
        """Read whether members must have a second factor."""
        return Response(_security(self.principal.tenant))

    @operation(
        "set_tenant_security",
        request=RequirementSerializer,
        responses={200: SecuritySerializer} | CONFLICT,
        tags=["members"],
    )
    def put(self, request: Request, tenant: str) -> Response:
        """Require a second factor of all members, at once, or end that. You need one yourself, and a recent
        confirmation that it is you."""
        require_recent(request._request)
        body = validated(RequirementSerializer, request.data)
        return Response(_security(set_requirement(acting=self.principal, **body)))


def _security(tenant: Tenant) -> dict[str, object]:
    body = {"second_factor_required": tenant.second_factor_required, "members_without": members_without(tenant)}
    return dict(SecuritySerializer(body).data)
