"""Views of limits: read by members; a key's are set by members, the tenant's by operators."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import ClassVar
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.billing.limits.actions import set_key_limits, set_tenant_limits
from control_plane.billing.limits.queries import tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.billing.quotas.serializers import (
    KeyLimitsSerializer,
    TenantLimitsSerializer,
    UsageAgainstLimitsSerializer,
)
from control_plane.billing.quotas.usage_against_limits import usage_against_limits
from control_plane.core.http.lists import TOTAL, TOTAL_HEADER, ListQuerySerializer
from control_plane.core.http.serializers import read_query, validated
from control_plane.identity.access.operator import OperatorView, get_tenant
from control_plane.identity.access.views import TenantView
from control_plane.identity.keys.queries import get_key
from control_plane.identity.tenants.roles import Capability

operation = partial(extend_schema, tags=["limits"])


class LimitsView(TenantView):
    @operation("read_limits", parameters=[ListQuerySerializer, TOTAL], responses=UsageAgainstLimitsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read the limits of the tenant and its keys, all or a part of these, and the current usage of each."""
        query = read_query(ListQuerySerializer, request)
        usage, keys = usage_against_limits(self.principal.tenant, **query)
        return Response(UsageAgainstLimitsSerializer(usage).data, headers={TOTAL_HEADER: str(keys)})


class KeyLimitsView(TenantView):
    needs: ClassVar = {"PUT": Capability.WRITE_KEYS}

    @operation("set_key_limits", request=KeyLimitsSerializer, responses=KeyLimitsSerializer)
    def put(self, request: Request, tenant: str, key_id: UUID) -> Response:
        """Set all limits of a key; one that is left out is lifted. In force within two seconds."""
        key = get_key(self.principal.tenant, key_id)
        body = validated(KeyLimitsSerializer, request.data)
        row = set_key_limits(acting=self.principal, key=key, limits=Limits(**body))
        return Response(KeyLimitsSerializer(asdict(row.limits)).data)


class OperatorLimitsView(OperatorView):
    @extend_schema("read_tenant_limits", responses=TenantLimitsSerializer)
    def get(self, request: Request, tenant: str) -> Response:
        """Read the limits that a tenant is granted."""
        return Response(TenantLimitsSerializer(asdict(tenant_limits(get_tenant(tenant)))).data)

    @extend_schema("set_tenant_limits", request=TenantLimitsSerializer, responses=TenantLimitsSerializer)
    def put(self, request: Request, tenant: str) -> Response:
        """Set all limits of a tenant; one that is left out is lifted. In force within two seconds."""
        body = validated(TenantLimitsSerializer, request.data)
        row = set_tenant_limits(actor=self.actor, tenant=get_tenant(tenant), limits=Limits(**body))
        return Response(TenantLimitsSerializer(asdict(row.limits)).data)
