"""Views of refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.refusals.models import Refusal
from control_plane.billing.refusals.serializers import (
    RefusalPageSerializer,
    RefusalSeriesQuerySerializer,
    RefusalSeriesSerializer,
)
from control_plane.billing.refusals.series import refusal_series
from control_plane.billing.usage import series
from control_plane.billing.usage.serializers import TimeRangeSerializer
from control_plane.core.http.cursors import PAGE_PARAMETERS, PageQuery, page_of
from control_plane.core.http.serializers import NOT_FOUND, read_query
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView

operation = partial(extend_schema, tags=["requests"])


class RefusalsView(TenantView):
    @operation("list_refusals", parameters=PAGE_PARAMETERS, responses=RefusalPageSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Requests that were refused before they reached an engine, counted by minute and reason, newest first."""
        query = read_query(PageQuery, request)
        refusals = Refusal.objects.for_tenant(self.principal.tenant)
        page = page_of(refusals, query["limit"], query["cursor"], "api_key")
        return Response(RefusalPageSerializer(page).data)


class RefusalSeriesView(TenantView):
    @operation("read_refusal_series", parameters=[TimeRangeSerializer], responses=RefusalSeriesSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read refusals over time, by code; `series` has the requests that reached an engine."""
        within = _window(read_query(TimeRangeSerializer, request))
        return Response(RefusalSeriesSerializer(refusal_series(within, self.principal.tenant)).data)


class OperatorRefusalSeriesView(OperatorView):
    @extend_schema(
        "read_operator_refusal_series",
        parameters=[RefusalSeriesQuerySerializer],
        responses={200: RefusalSeriesSerializer} | NOT_FOUND,
    )
    def get(self, request: Request) -> Response:
        """Read refusals over time of all tenants, or of one."""
        query = read_query(RefusalSeriesQuerySerializer, request)
        tenant = get_tenant(query["tenant"]) if query["tenant"] else None
        return Response(RefusalSeriesSerializer(refusal_series(_window(query), tenant)).data)


def _window(query: dict[str, Any]) -> series.Window:
    return series.window(query["range"], query["since"], query["until"], query["step"])
