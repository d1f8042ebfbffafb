"""Refusals over HTTP."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.views import TenantView
from control_plane.http.cursors import PAGE_PARAMETERS, PageQuery
from control_plane.http.serializers import validated
from control_plane.refusals.queries import recent_refusals
from control_plane.refusals.serializers import RefusalPageSerializer


class RefusalsView(TenantView):
    @extend_schema(
        operation_id="list_refusals", parameters=PAGE_PARAMETERS, responses=RefusalPageSerializer, tags=["requests"]
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Requests that were refused before they reached an engine, counted by minute and reason, newest first."""
        query = validated(PageQuery, request.query_params.dict())
        return Response(RefusalPageSerializer(recent_refusals(self.principal.tenant, **query)).data)
