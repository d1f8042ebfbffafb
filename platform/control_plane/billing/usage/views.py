"""Views of usage sums and of recent requests."""

from __future__ import annotations

from functools import partial

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry.queries import get_adapter
from control_plane.billing.archives.reading import archived_until
from control_plane.billing.usage import queries, series
from control_plane.billing.usage.base_models import filtered_bases
from control_plane.billing.usage.ledger_archive import LEDGER_NAME
from control_plane.billing.usage.queries import RequestFilters
from control_plane.billing.usage.serializers import (
    OfBaseModelSerializer,
    OperatorSeriesQuerySerializer,
    RequestFiltersSerializer,
    RequestPageSerializer,
    SeriesReportSerializer,
    TenantSeriesQuerySerializer,
    UsagePartSerializer,
    UsagePartsQuerySerializer,
    UsageReportSerializer,
)
from control_plane.core.errors import LorikeetError
from control_plane.core.http.cursors import PAGE_PARAMETERS, PageQuery, days_parameter
from control_plane.core.http.lists import TOTAL, TOTAL_HEADER
from control_plane.core.http.serializers import NOT_FOUND, read_query
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView

operation = partial(extend_schema, tags=["usage"])

MAX_DAYS = 366


class _UsageQuery(OfBaseModelSerializer):
    days = serializers.IntegerField(min_value=1, max_value=MAX_DAYS, default=30)


class UsageView(TenantView):
    @operation(
        "read_usage", parameters=[days_parameter(MAX_DAYS), OfBaseModelSerializer], responses=UsageReportSerializer
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Requests, tokens, device time and cost of the last days: by day, adapter, base model and key."""
        query = read_query(_UsageQuery, request)
        bases = filtered_bases(query["base_model"])
        return Response(UsageReportSerializer(queries.usage(self.principal.tenant, query["days"], bases)).data)


class RequestsView(TenantView):
    @operation(
        "list_requests", parameters=[*PAGE_PARAMETERS, RequestFiltersSerializer], responses=RequestPageSerializer
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Recent requests, newest first. With filters but no `since` and no `id`, of the 30 days before `until`."""
        filters = RequestFilters(**read_query(RequestFiltersSerializer, request))
        page = queries.recent_requests(self.principal.tenant, **read_query(PageQuery, request), filters=filters)
        archived_before = None if page.next_cursor else archived_until(LEDGER_NAME)
        return Response(RequestPageSerializer({**vars(page), "archived_before": archived_before}).data)


class SeriesView(TenantView):
    @operation("read_series", parameters=[TenantSeriesQuerySerializer], responses=SeriesReportSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read traffic, errors, tokens, cost and latency over time: of a tenant, an adapter, a host or a base model."""
        query = read_query(TenantSeriesQuerySerializer, request)
        window, of, on = _window(query), self.principal.tenant, _bases(query)
        if query["adapter"] and query["host"]:
            raise LorikeetError(
                "bad_request", "Series are kept by adapter or by host, not by both.", "Send only one.", param="host"
            )
        if query["adapter"] and on is not None:
            raise LorikeetError(
                "bad_request",
                "Each version of an adapter runs on one base model.",
                "Send only one of both filters.",
                param="base_model",
            )
        if query["adapter"]:
            adapter = get_adapter(of, query["adapter"]).adapter
            report = series.of_adapter(of, adapter.pk, query["version"], window)
        elif query["host"]:
            report = series.of_tenant_on_host(of, query["host"], window, on)
        else:
            report = series.of_tenant(of, window, on)
        return Response(SeriesReportSerializer(report).data)


class UsagePartsView(TenantView):
    @operation(
        "list_usage_parts", parameters=[UsagePartsQuerySerializer, TOTAL], responses=UsagePartSerializer(many=True)
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List the usage of each adapter or key in a window of time, those with most first, a part at a time."""
        query = read_query(UsagePartsQuerySerializer, request)
        page = {name: query[name] for name in ("by", "search", "offset", "limit")}
        page["sort"] = series.PartSort(query["sort"])
        rows, total = series.parts_of_tenant(self.principal.tenant, _window(query), on=_bases(query), **page)
        return Response(UsagePartSerializer(rows, many=True).data, headers={TOTAL_HEADER: str(total)})


class OperatorSeriesView(OperatorView):
    @extend_schema(
        "read_operator_series",
        parameters=[OperatorSeriesQuerySerializer],
        responses={200: SeriesReportSerializer} | NOT_FOUND,
    )
    def get(self, request: Request) -> Response:
        """Read usage over time of all tenants, of one, or of a host and its tenants; on all base models or one."""
        query = read_query(OperatorSeriesQuerySerializer, request)
        tenant = get_tenant(query["tenant"]) if query["tenant"] else None
        report = series.of_everybody(_window(query), tenant, query["host"], _bases(query))
        return Response(SeriesReportSerializer(report).data)


def _window(query: dict[str, object]) -> series.Window:
    return series.window(query["range"], query["since"], query["until"], query["step"])  # type: ignore[arg-type]


def _bases(query: dict[str, str]) -> tuple[int, ...] | None:
    bases = filtered_bases(query["base_model"])
    return None if bases is None else bases.pks
