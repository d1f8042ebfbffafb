"""The view of the overview."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.adapters.registry.queries import count_adapters
from control_plane.billing.limits.values import NAMES
from control_plane.billing.usage import queries as usage
from control_plane.billing.usage.serializers import RequestRecordSerializer
from control_plane.fleet.hosts.api.queries import hosts_for
from control_plane.fleet.hosts.api.serializers import HostSerializer
from control_plane.identity.access.views import TenantView
from control_plane.identity.members.queries import invitations_of_members

RECENT = 10
# Members who are added this soon after their tenant were created with it, as the demo's are: nobody invited them.
CREATED_TOGETHER = timedelta(minutes=5)
# The columns of limits where nothing is limited. The quota of pins is none of them: it allows something.
NO_LIMITS = dict.fromkeys(name for name in NAMES if name != "pinned_bytes")


class AdapterCountsSerializer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    ready = serializers.IntegerField()


class FirstStepsSerializer(serializers.Serializer[Any]):
    """The first steps of a new tenant, and whether each is done."""

    uploaded = serializers.BooleanField()
    called = serializers.BooleanField()
    limited = serializers.BooleanField(help_text="Whether the tenant or a key has a limit or a budget.")
    invited = serializers.BooleanField()


class OverviewSerializer(serializers.Serializer[Any]):
    adapters = AdapterCountsSerializer()
    requests_24h = serializers.IntegerField()
    tokens_24h = serializers.IntegerField()
    hosts = HostSerializer(many=True)
    recent_requests = RequestRecordSerializer(many=True)
    first_steps = FirstStepsSerializer()


class OverviewView(TenantView):
    @extend_schema("read_overview", responses=OverviewSerializer, tags=["overview"])
    def get(self, request: Request, tenant: str) -> Response:
        """Read the adapters, the last day, hosts and the latest requests."""
        row = self.principal.tenant
        day, adapters = usage.last_day(row), count_adapters(row)
        recent = usage.recent_requests(row, RECENT).results
        return Response(
            {
                "adapters": adapters,
                "requests_24h": day.requests,
                "tokens_24h": day.prompt_tokens + day.completion_tokens,
                "hosts": hosts_for(row),
                "recent_requests": RequestRecordSerializer(recent, many=True).data,
                "first_steps": {
                    "uploaded": adapters["total"] > 0,
                    "called": bool(recent),
                    "limited": row.limit_sets.exclude(**NO_LIMITS).exists() or row.budgets.exists(),
                    "invited": invitations_of_members(row).exists()
                    or row.memberships.filter(created_at__gt=row.created_at + CREATED_TOGETHER).exists(),
                },
            }
        )
