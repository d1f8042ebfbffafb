"""GET overview."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.access.views import TenantView
from control_plane.adapters.queries import count_adapters
from control_plane.placements.host_serializers import HostSerializer
from control_plane.placements.hosts import hosts_for
from control_plane.usage import queries as usage
from control_plane.usage.serializers import RequestRecordSerializer

RECENT = 10


class AdapterCountsSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    ready = serializers.IntegerField()


class OverviewSerializer(serializers.Serializer[Any]):
    adapters = AdapterCountsSerializer()
    requests_24h = serializers.IntegerField()
    tokens_24h = serializers.IntegerField()
    hosts = HostSerializer(many=True)
    recent_requests = RequestRecordSerializer(many=True)


class OverviewView(TenantView):
    @extend_schema(operation_id="read_overview", responses=OverviewSerializer, tags=["overview"])
    def get(self, request: Request, tenant: str) -> Response:
        """Adapters, the last day, hosts and the latest requests."""
        own = self.principal.tenant
        day = usage.last_day(own)
        return Response(
            {
                "adapters": count_adapters(own),
                "requests_24h": day.requests,
                "tokens_24h": day.prompt_tokens + day.completion_tokens,
                "hosts": hosts_for(own),
                "recent_requests": RequestRecordSerializer(usage.recent_requests(own, RECENT).results, many=True).data,
            }
        )
