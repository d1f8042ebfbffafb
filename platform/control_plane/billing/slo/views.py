"""Views of objectives and attainment."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.slo.actions import set_objective, set_weight
from control_plane.billing.slo.fairness import service_gaps
from control_plane.billing.slo.queries import attainment
from control_plane.billing.slo.serializers import (
    FairnessSerializer,
    LatencyObjectivesSerializer,
    SloReportSerializer,
    TenantWeightSerializer,
)
from control_plane.billing.usage import series
from control_plane.billing.usage.serializers import TimeRangeSerializer
from control_plane.core.http.cursors import days_parameter
from control_plane.core.http.serializers import read_query, validated
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["slo"])

MAX_DAYS = 90


class _DaysQuery(serializers.Serializer[dict[str, int]]):
    days = serializers.IntegerField(min_value=1, max_value=MAX_DAYS, default=30)


class SloView(TenantView):
    needs: ClassVar = {"GET": Capability.VIEW, "PUT": Capability.WRITE_TENANT}

    @operation("read_slo", parameters=[days_parameter(MAX_DAYS)], responses=SloReportSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read the tenant's latency objectives, how often they were met in the last days, and the error budget."""
        query = read_query(_DaysQuery, request)
        return Response(SloReportSerializer(attainment(self.principal.tenant, query["days"])).data)

    @operation("set_slo", request=LatencyObjectivesSerializer, responses=LatencyObjectivesSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set the objectives; one that is left out is lifted. In force within two seconds."""
        body = validated(LatencyObjectivesSerializer, request.data)
        return Response(LatencyObjectivesSerializer(set_objective(acting=self.principal, **body)).data)


class OperatorWeightView(OperatorView):
    @extend_schema("set_tenant_weight", request=TenantWeightSerializer, responses=TenantWeightSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set a tenant's share of the hosts when they are full."""
        body = validated(TenantWeightSerializer, request.data)
        return Response(TenantWeightSerializer(set_weight(actor=self.actor, tenant=get_tenant(tenant), **body)).data)


class OperatorFairnessView(OperatorView):
    @extend_schema("read_fairness", parameters=[TimeRangeSerializer], responses=FairnessSerializer)
    def get(self, request: Request) -> Response:
        """Read the gaps between the service of tenants that waited on each host, with the fair order's bound."""
        query = read_query(TimeRangeSerializer, request)
        window = series.window(query["range"], query["since"], query["until"], query["step"])
        return Response(FairnessSerializer(service_gaps(window)).data)
