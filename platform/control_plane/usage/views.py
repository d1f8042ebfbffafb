"""Usage sums and the list of recent requests."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.views import TenantView
from control_plane.http.cursors import PAGE_PARAMETERS, PageQuery
from control_plane.usage import queries
from control_plane.usage.serializers import RequestPageSerializer, UsageReportSerializer


class _UsageQuery(serializers.Serializer[dict[str, int]]):
    days = serializers.IntegerField(min_value=1, max_value=366, default=30)


class UsageView(TenantView):
    @extend_schema(
        operation_id="read_usage",
        parameters=[OpenApiParameter("days", int, default=30)],
        responses=UsageReportSerializer,
        tags=["usage"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Requests, tokens, device time and cost of the last days: by day, adapter and key."""
        query = _UsageQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        return Response(UsageReportSerializer(queries.usage(self.principal.tenant, query.validated_data["days"])).data)


class RequestsView(TenantView):
    @extend_schema(
        operation_id="list_requests",
        parameters=PAGE_PARAMETERS,
        responses=RequestPageSerializer,
        tags=["usage"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Recent requests, newest first."""
        query = PageQuery(data=request.query_params.dict())
        query.is_valid(raise_exception=True)
        page = queries.recent_requests(self.principal.tenant, **query.validated_data)
        return Response(RequestPageSerializer(page).data)
