"""Tickets for websockets."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.identity.access.views import TenantView
from control_plane.identity.sockets.identity import SessionCaller
from control_plane.identity.sockets.tickets import LIFETIME_S, issue
from control_plane.identity.tenants.roles import Capability


class SocketTicketSerializer(serializers.Serializer[Any]):
    ticket = serializers.CharField(help_text="Ticket for one connection.")
    expires_in = serializers.IntegerField(help_text="Seconds until the ticket expires.")


class TicketView(TenantView):
    needs: ClassVar = {"POST": Capability.BE_MEMBER}

    @extend_schema("make_socket_ticket", request=None, responses={201: SocketTicketSerializer}, tags=["session"])
    def post(self, request: Request, tenant: str) -> Response:
        """Make a ticket, which a page of the console sends as the first message of one websocket."""
        user, key = self.principal.user, request._request.session.session_key
        assert user is not None and key is not None  # no key has this capability
        ticket = issue(SessionCaller(user.pk, key, tenant))
        return Response({"ticket": ticket, "expires_in": LIFETIME_S}, 201, headers={"Cache-Control": "no-store"})
