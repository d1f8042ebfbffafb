"""Usage sums and the list of recent requests."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.views import TenantView
from control_plane.http.cursors import PAGE_PARAMETERS, PageQuery, days_parameter
from control_plane.http.serializers import validated
from control_plane.usage import queries
from control_plane.usage.serializers import RequestPageSerializer, UsageReportSerializer

MOST_DAYS = 366


class _UsageQuery(serializers.Serializer[dict[str, int]]):
    days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=30)


class UsageView(TenantView):
    @extend_schema(
        operation_id="read_usage",
        parameters=[days_parameter(MOST_DAYS)],
        responses=UsageReportSerializer,
        tags=["usage"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Requests, tokens, device time and cost of the last days: by day, adapter and key."""
        query = validated(_UsageQuery, request.query_params.dict())
        return Response(UsageReportSerializer(queries.usage(self.principal.tenant, query["days"])).data)


class RequestsView(TenantView):
    @extend_schema(
        operation_id="list_requests",
        parameters=PAGE_PARAMETERS,
        responses=RequestPageSerializer,
        tags=["usage"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Recent requests, newest first."""
        query = validated(PageQuery, request.query_params.dict())
        page = queries.recent_requests(self.principal.tenant, **query)
        return Response(RequestPageSerializer(page).data)
