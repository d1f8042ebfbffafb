"""Usage sums and the list of recent requests."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.views import TenantView
from control_plane.http.cursors import PAGE_PARAMETERS, PageQuery, days_parameter
from control_plane.http.serializers import ErrorResponseSerializer, validated
from control_plane.usage import queries
from control_plane.usage.queries import RequestFilters
from control_plane.usage.serializers import RequestFiltersSerializer, RequestPageSerializer, UsageReportSerializer

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
        parameters=[*PAGE_PARAMETERS, RequestFiltersSerializer],
        responses={200: RequestPageSerializer, 400: ErrorResponseSerializer},
        tags=["usage"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Recent requests, newest first. With filters but no `since` and no `id`, of the 30 days before `until`."""
        asked = request.query_params.dict()
        filters = RequestFilters(**validated(RequestFiltersSerializer, asked))
        page = queries.recent_requests(self.principal.tenant, **validated(PageQuery, asked), filters=filters)
        return Response(RequestPageSerializer(page).data)
