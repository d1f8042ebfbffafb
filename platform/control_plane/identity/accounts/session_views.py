"""The sessions of the calling person: listing their devices, and signing them out."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.identity.accounts import sign_ins
from control_plane.identity.accounts.serializers import DeviceSerializer
from control_plane.identity.accounts.views import PersonView

operation = partial(extend_schema, tags=["session"])


class SessionsView(PersonView):
    @operation("list_sessions", responses=DeviceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List one's sessions, the last used first."""
        current_key = request._request.session.session_key
        rows = [
            {
                "id": row.pk,
                "current": row.session_key == current_key,
                "address": row.address,
                "user_agent": row.user_agent,
                "created_at": row.created_at,
                "last_seen_at": row.last_seen_at,
            }
            for row in sign_ins.of_person(self.person)
        ]
        return Response(DeviceSerializer(rows, many=True).data)

    @operation("end_other_sessions", responses={204: None})
    def delete(self, request: Request) -> Response:
        """Sign out everywhere else. Websockets of those sessions close."""
        sign_ins.end_others(self.person, request._request.session.session_key)
        return Response(status=204)


class OneSessionView(PersonView):
    @operation("end_session", responses={204: None})
    def delete(self, request: Request, session_id: UUID) -> Response:
        """Sign one device out. Its websockets close."""
        sign_ins.end_one(self.person, session_id)
        return Response(status=204)
