"""The audit log over HTTP: read only, as nothing can change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.audit.models import AuditEvent
from control_plane.audit.queries import Filters, of_everybody, of_tenant, page
from control_plane.audit.serializers import AuditFiltersSerializer, AuditPageSerializer
from control_plane.tenants.operator import OperatorView
from control_plane.tenants.roles import Capability
from control_plane.tenants.views import TenantView


class AuditView(TenantView):
    needs: ClassVar = {"GET": Capability.READ_AUDIT}

    @extend_schema(
        operation_id="list_audit", parameters=[AuditFiltersSerializer], responses=AuditPageSerializer, tags=["audit"]
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Who changed what in this tenant, newest first."""
        return _answer(request, lambda filters: of_tenant(self.principal.tenant, filters))


class OperatorAuditView(OperatorView):
    needs: ClassVar = {"GET": Capability.OPERATE}

    @extend_schema(
        operation_id="list_operator_audit",
        parameters=[AuditFiltersSerializer],
        responses=AuditPageSerializer,
        tags=["operator"],
    )
    def get(self, request: Request) -> Response:
        """Who changed what in all tenants, and who signed in."""
        return _answer(request, of_everybody)


def _answer(request: Request, read: Callable[[Filters], QuerySet[AuditEvent]]) -> Response:
    asked = AuditFiltersSerializer(data=request.query_params)
    asked.is_valid(raise_exception=True)
    values = dict(asked.validated_data)
    before, size = values.pop("before"), values.pop("size")
    events, following = page(read(Filters(**values)), before=before, size=size)
    return Response(AuditPageSerializer({"events": events, "next": following}).data)
