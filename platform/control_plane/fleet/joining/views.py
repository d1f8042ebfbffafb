"""Views of join tokens, and of machines that join with them."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.config import current
from control_plane.core.http.access import Access
from control_plane.core.http.api_view import ApiView
from control_plane.core.http.serializers import CONFLICT, validated
from control_plane.fleet.joining import joining
from control_plane.fleet.joining.join_tokens import create_token, shown_tokens, withdraw_token
from control_plane.fleet.joining.serializers import (
    CreatedJoinTokenSerializer,
    JoinedSerializer,
    JoinSerializer,
    JoinTokenSerializer,
    NewJoinTokenSerializer,
)
from control_plane.identity.access.operator import OperatorView


class JoinTokensView(OperatorView):
    http_method_names = ["get", "post", "options"]

    @extend_schema("list_join_tokens", responses=JoinTokenSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Tokens with which machines can join as engine hosts, and those of the last days that are over."""
        return Response(JoinTokenSerializer(shown_tokens(), many=True).data)

    @extend_schema("create_join_token", request=NewJoinTokenSerializer, responses={201: CreatedJoinTokenSerializer})
    def post(self, request: Request) -> Response:
        """Let one machine join as an engine host, once."""
        body = validated(NewJoinTokenSerializer, request.data)
        lifetime = timedelta(seconds=body["expires_s"])
        row, text = create_token(actor=self.actor, host_name=body["host"], lifetime=lifetime)
        shown = {**JoinTokenSerializer(row).data, "token": text, "join_url": current().address}
        return Response(shown, status=201, headers={"Cache-Control": "no-store"})


class JoinTokenView(OperatorView):
    @extend_schema("withdraw_join_token", responses={204: None})
    def delete(self, request: Request, token_id: UUID) -> Response:
        """Let no machine join with the token any more. A host that did join stays."""
        withdraw_token(actor=self.actor, token_id=token_id)
        return Response(status=204)


class HostCredentialView(OperatorView):
    @extend_schema("revoke_host", responses={204: None} | CONFLICT)
    def delete(self, request: Request, host_name: str) -> Response:
        """Take back the credential of a host that joined. It is in quarantine at once; its requests go on at others."""
        joining.revoke_host(actor=self.actor, name=host_name)
        return Response(status=204)


class OperatorHostView(OperatorView):
    @extend_schema("forget_host", responses={204: None} | CONFLICT)
    def delete(self, request: Request, host_name: str) -> Response:
        """Revoke a host that joined, and take it out of the lists. Its name is free again."""
        joining.forget_host(actor=self.actor, name=host_name)
        return Response(status=204)


class JoinView(ApiView):
    """The endpoint that a new host calls. Its token has 256 bits, so failed attempts need no limit."""

    access = Access.PUBLIC
    authentication_classes = ()
    permission_classes = ()

    @extend_schema(
        "join_fleet", request=JoinSerializer, responses={201: JoinedSerializer} | CONFLICT, tags=["hosts"], auth=[]
    )
    def post(self, request: Request) -> Response:
        """Exchange a join token for a certificate of the fleet. `python -m lora_engine --join` does it. The same key
        may ask again, as the answer may have been lost."""
        body = validated(JoinSerializer, request.data)
        joined = joining.join(
            token=body["token"],
            name=body["name"],
            address=body["address"],
            request=body["certificate_request"],
            wire_version=body["wire_version"],
        )
        return Response(JoinedSerializer(joined).data, status=201)
