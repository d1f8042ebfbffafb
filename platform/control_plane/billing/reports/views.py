"""Views of statements, the operator's report, and usage as CSV."""

from __future__ import annotations

from datetime import date
from functools import partial

from django.http.response import HttpResponseBase
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.reports.operator import operator_report
from control_plane.billing.reports.requests import LONGEST_DAYS, read_span
from control_plane.billing.reports.serializers import OperatorReportSerializer, StatementSerializer
from control_plane.billing.reports.statements import statement
from control_plane.billing.reports.usage_csv import UsageTable, require_kept
from control_plane.billing.usage.base_models import NamedBases, filtered_bases
from control_plane.billing.usage.serializers import OfBaseModelSerializer
from control_plane.billing.usage.sums import today
from control_plane.core.http.csv_files import CSV, csv_answer
from control_plane.core.http.cursors import days_parameter
from control_plane.core.http.serializers import NOT_FOUND, read_query
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView

operation = partial(extend_schema, tags=["usage"])

SPAN = [
    days_parameter(LONGEST_DAYS),
    OpenApiParameter("from", date, description="First day (UTC); requires `to`, and replaces `days`."),
    OpenApiParameter("to", date),
]
GRAIN = OpenApiParameter("grain", str, enum=["day", "hour"], default="day")
MONTH = OpenApiParameter(
    "month",
    {"type": "string", "pattern": r"^\d{4}-\d{2}$"},
    description="Year and month, such as 2026-05; by default the current month (UTC).",
)


def _bases(request: Request) -> NamedBases | None:
    """Return the base models of a query's filter. Raises BaseModelUnknownError (404)."""
    return filtered_bases(read_query(OfBaseModelSerializer, request)["base_model"])


def requested_month(request: Request) -> str:
    return request.query_params.get("month") or f"{today():%Y-%m}"


class UsageCsvView(TenantView):
    @operation("read_usage_csv", parameters=[*SPAN, GRAIN, OfBaseModelSerializer], responses=CSV)
    def get(self, request: Request, tenant: str) -> HttpResponseBase:
        """Usage by day or hour, adapter version, key, base model and outcome, as CSV."""
        query = read_span(request.query_params.dict())
        require_kept(query.span, query.chosen_grain)
        return csv_answer(UsageTable(self.principal.tenant, query.span, query.chosen_grain, _bases(request)))


class StatementView(TenantView):
    @operation("read_statement", parameters=[MONTH], responses=StatementSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read what a month (UTC) cost, line by line; the current month so far."""
        return Response(StatementSerializer(statement(self.principal.tenant, requested_month(request))).data)


class OperatorReportView(OperatorView):
    @extend_schema(
        "read_operator_report",
        parameters=[*SPAN, OfBaseModelSerializer],
        responses={200: OperatorReportSerializer} | NOT_FOUND,
    )
    def get(self, request: Request) -> Response:
        """All tenants: usage, cost, latency, and whose time the devices spent; on all base models or one."""
        return Response(operator_report(read_span(request.query_params.dict()).span, _bases(request)))


class OperatorCsvView(OperatorView):
    @extend_schema("read_operator_csv", parameters=[*SPAN, GRAIN, OfBaseModelSerializer], responses=CSV)
    def get(self, request: Request) -> HttpResponseBase:
        """Usage of all tenants as CSV."""
        query = read_span(request.query_params.dict())
        require_kept(query.span, query.chosen_grain)
        return csv_answer(UsageTable(None, query.span, query.chosen_grain, _bases(request)))


class OperatorStatementView(OperatorView):
    @extend_schema("read_tenant_statement", parameters=[MONTH], responses=StatementSerializer)
    def get(self, request: Request, slug: str) -> Response:
        """Read what a month of a tenant cost, line by line."""
        return Response(StatementSerializer(statement(get_tenant(slug), requested_month(request))).data)
