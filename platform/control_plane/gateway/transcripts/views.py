"""The recording setting, and transcripts, over HTTP."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.http.serializers import read_query, validated
from control_plane.gateway.transcripts import actions
from control_plane.gateway.transcripts.queries import find_transcript, recording_of, transcript_of
from control_plane.gateway.transcripts.serializers import (
    RecordingSerializer,
    TranscriptSerializer,
    TranscriptsQuerySerializer,
)
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["requests"])


class RecordingView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TRANSCRIPTS}

    @operation("read_recording", responses=RecordingSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Return whether prompts and answers of this tenant's requests are stored. Every member may read this."""
        return Response(RecordingSerializer(recording_of(self.principal.tenant)).data)

    @operation("set_recording", request=RecordingSerializer, responses=RecordingSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Turn recording on or off. The change takes effect within a second; stored transcripts stay for `days`."""
        body = validated(RecordingSerializer, request.data)
        return Response(RecordingSerializer(actions.set_recording(acting=self.principal, **body)).data)


class TranscriptsView(TenantView):
    http_method_names = ["get", "delete", "options"]
    needs: ClassVar = {"GET": Capability.READ_TRANSCRIPTS, "DELETE": Capability.WRITE_TRANSCRIPTS}

    @operation("find_transcripts", parameters=[TranscriptsQuerySerializer], responses=TranscriptSerializer(many=True))
    def get(self, request: Request, tenant: str) -> Response:
        """Return prompt and answer of one request; an empty list if they were not stored."""
        query = read_query(TranscriptsQuerySerializer, request)
        transcript = find_transcript(self.principal.tenant, query["request"])
        return Response(TranscriptSerializer([transcript] if transcript else [], many=True).data)

    @operation("delete_transcripts", responses={204: None})
    def delete(self, request: Request, tenant: str) -> Response:
        """Delete every stored prompt and answer now."""
        actions.delete_transcripts(acting=self.principal)
        return Response(status=204)


class TranscriptView(TenantView):
    needs: ClassVar = {"GET": Capability.READ_TRANSCRIPTS}

    @operation("read_transcript", responses=TranscriptSerializer)
    def get(self, request: Request, tenant: str, request_id: str) -> Response:
        """Return prompt and answer of one request; 404 if they were not stored."""
        return Response(TranscriptSerializer(transcript_of(self.principal.tenant, request_id)).data)
